"""`maskwright doctor` prints what the doctor found, for people and for programs."""

import json

import pytest

from maskwright.cli.main import main
from maskwright.kernels.cpu.int8_support import Int8Support
from maskwright.training import doctor as room
from maskwright.training.doctor import Diagnosis, Peaks, Usage
from maskwright.training.hardware import look_at_hardware
from maskwright.training.probe import MatmulRate


@pytest.fixture
def diagnosis(monkeypatch):
    """Let the doctor find fixed figures; return what it was asked."""
    asked = []
    rates = {"fp32": MatmulRate(2e11, 3e-7), "fp32_onednn": MatmulRate(5e11, 7e-7)}
    found = Diagnosis(
        hardware=look_at_hardware(),
        peaks={"cpu": Peaks(matmul=rates, bandwidth=4.4e10, measured="2030-01-01T00:00:00+00:00", busy=0.0)},
        usage=Usage(
            device="cpu",
            threads=2,
            precision="fp32",
            matmul="onednn",
            attention={"length 128, with dropout": "rows"},
            allocator="glibc 2.36",
            tokens_per_microbatch={256: 4096, 768: 2048},
        ),
        int8=Int8Support(by="libraries", why="there is no C compiler here", todo="Install gcc."),
        advice=("Set [this] to that.",),
        kept=True,
    )

    def doctor(device, *, precision, fresh):
        asked.append((device, precision, fresh))
        return found

    monkeypatch.setattr(room, "doctor", doctor)
    return asked


def run(*arguments):
    with pytest.raises(SystemExit) as exit:
        main(["doctor", *arguments])
    return exit.value.code


def test_figures_choices_and_advice_are_printed(diagnosis, capsys):
    assert run() == 0
    out = capsys.readouterr().out
    for expected in ("200 GFLOP/s", "error 7e-07", "44 GB/s", "fp32, oneDNN", "batched matmul", "--fresh"):
        assert expected in out
    assert "PyTorch: there is no C compiler here" in " ".join(out.split())
    assert "- Set [this] to that." in out
    assert diagnosis == [("auto", "auto", False)]


def test_json_holds_the_same(diagnosis, capsys):
    assert run("--json", "--fresh", "--device", "cpu", "--precision", "bf16") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["usage"]["matmul"] == "onednn"
    assert data["peaks"]["cpu"]["matmul"]["fp32_onednn"]["flops"] == 5e11
    assert diagnosis == [("cpu", "bf16", True)]
