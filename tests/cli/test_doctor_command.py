"""`maskwright doctor` prints what the doctor found, as a table or as JSON."""

import json

import pytest

from maskwright.cli.main import main
from maskwright.training import doctor as module
from maskwright.training.doctor import Diagnosis, read_hardware


@pytest.mark.parametrize("as_json", [False, True])
def test_results_are_printed(as_json, monkeypatch, capsys):
    found = Diagnosis(
        hardware=read_hardware(),
        peak_flops={"cpu": {"fp32": 2e11, "fp32_onednn": 5e11}},
        training={"device": "cpu", "precision": "fp32", "matmul": "onednn", "kernels": "auto"},
        int8="there is no C compiler here",
        advice=("Set [this] to that.",),
    )
    monkeypatch.setattr(
        module, "doctor", lambda device, precision: found if (device, precision) == ("cpu", "bf16") else 0
    )
    with pytest.raises(SystemExit) as exit:
        main(["doctor", "--device", "cpu", "--precision", "bf16", *(["--json"] if as_json else [])])
    assert exit.value.code == 0
    out = capsys.readouterr().out
    if as_json:
        data = json.loads(out)
        assert data["training"]["matmul"] == "onednn"
        assert data["peak_flops"]["cpu"]["fp32_onednn"] == 5e11
        return
    for expected in ("200 GFLOP/s", "500 GFLOP/s", "fp32, oneDNN", "- Set [this] to that."):
        assert expected in out
    assert "unavailable, fp32 instead: there is no C compiler here" in " ".join(out.split())
