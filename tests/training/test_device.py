from pathlib import Path

import pytest
import torch
from toy_runs import train_toy

from maskwright.core.errors import DeviceError, MaskwrightError
from maskwright.core.files import read_json
from maskwright.kernels.setting import kernels_enabled
from maskwright.recipes.catalog import get
from maskwright.training import device
from maskwright.training.device import Precision, computing_on, prepare_machine, prepare_machine_again
from maskwright.training.pretrain import Run

needs_bf16 = pytest.mark.skipif(
    not device.multiplies_bf16(torch.device("cpu")), reason="this processor does not multiply bf16 numbers"
)


def test_a_cpu_computes_in_fp32_by_default(tmp_path: Path) -> None:
    machine = prepare_machine("cpu", "default", tmp_path)
    assert (machine.precision, machine.autocast) == ("fp32", None)
    assert machine.peak_flops > 1e8


@pytest.mark.parametrize(
    ("name", "tokens"), [("bert/tiny", 4096), ("bert/medium", 4096), ("bert/base", 2048), ("electra/base", 2048)]
)
def test_narrow_encoders_compute_more_tokens_at_a_time(name: str, tokens: int, tmp_path: Path) -> None:
    assert device.pretraining_microbatch(prepare_machine("cpu", "default", tmp_path), get(name)) == tokens


def test_unknown_precision_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="auto, fp32, bf16"):
        prepare_machine("cpu", "default", tmp_path, "fp16")  # type: ignore[arg-type]


def test_bf16_is_refused_where_it_would_be_emulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "multiplies_bf16", lambda _: False)
    with pytest.raises(DeviceError, match="slower than fp32"):
        prepare_machine("cpu", "default", tmp_path, "bf16")


@needs_bf16
def test_a_run_in_bf16_stays_near_the_one_in_fp32_and_is_another_run(tmp_path: Path) -> None:
    def train(out: str, precision: Precision) -> Run:
        return train_toy(tmp_path, out, recipe="roberta/tiny", steps=20, precision=precision)

    exact, rounded = train("fp32", "auto"), train("bf16", "bf16")
    assert read_json(tmp_path / "bf16" / "run.json")["machine"]["precision"] == "bf16"
    assert rounded.held_out["mlm"].loss != exact.held_out["mlm"].loss
    assert rounded.held_out["mlm"].loss == pytest.approx(exact.held_out["mlm"].loss, abs=0.02)
    with pytest.raises(MaskwrightError, match="precision"):
        train("bf16", "auto")


@pytest.mark.parametrize(
    ("seconds", "error", "chosen"),
    [(0.8, 1e-6, "onednn"), (0.8, 1e-3, "default"), (0.98, 1e-6, "default"), (1.2, 1e-6, "default")],
)
def test_onednn_is_used_if_faster_and_as_exact_and_the_choice_is_cached(
    seconds: float, error: float, chosen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "has_onednn", lambda _: True)
    monkeypatch.setattr(device, "layer_seconds", lambda: {"default": 1.0, "onednn": seconds})
    monkeypatch.setattr(device, "matmul_error", lambda _: error)
    assert prepare_machine("cpu", None, tmp_path).matmul == chosen
    monkeypatch.setattr(device, "layer_seconds", lambda: pytest.fail("measured again"))
    assert prepare_machine("cpu", None, tmp_path).matmul == chosen


@pytest.mark.parametrize(
    ("recorded", "kernels"), [({}, "auto"), ({"kernels": "reference"}, "reference"), ({"kernels": "auto"}, "auto")]
)
def test_a_run_resumes_with_its_kernels(recorded: dict[str, str], kernels: str, tmp_path: Path) -> None:
    machine, message = prepare_machine_again(recorded, "cpu", tmp_path, "auto")
    assert machine.kernels == kernels
    assert not message
    with computing_on(machine):
        assert kernels_enabled() == (kernels == "auto")
