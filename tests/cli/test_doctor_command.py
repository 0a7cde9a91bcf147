"""`maskwright doctor` prints what the doctor found, as a table or as JSON."""

import json

from maskwright.training import doctor as module
from maskwright.training.doctor import Diagnosis, read_hardware


def test_results_are_printed(run, monkeypatch):
    diagnosis = Diagnosis(
        hardware=read_hardware(),
        peak_flops={"cpu": {"fp32": 2e11, "fp32_onednn": 5e11}},
        training={"device": "cpu", "precision": "fp32", "matmul": "onednn", "kernels": "auto"},
        int8="there is no C compiler here",
        advice=("Set [this] to that.",),
    )
    monkeypatch.setattr(
        module, "doctor", lambda device, precision: diagnosis if (device, precision) == ("cpu", "bf16") else 0
    )
    command = ("doctor", "--device", "cpu", "--precision", "bf16")
    data = json.loads(run(*command, "--json")[1])
    assert (data["training"]["matmul"], data["peak_flops"]["cpu"]["fp32_onednn"]) == ("onednn", 5e11)
    code, out, _ = run(*command)
    assert code == 0
    for expected in ("200 GFLOP/s", "500 GFLOP/s", "fp32, oneDNN", "- Set [this] to that."):
        assert expected in out
    assert "unavailable, fp32 instead: there is no C compiler here" in " ".join(out.split())
