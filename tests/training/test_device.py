import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor
from toy_runs import train_toy

from maskwright.core.errors import DeviceError, MaskwrightError
from maskwright.core.storage.files import read_json
from maskwright.kernels.setting import kernels_enabled
from maskwright.recipes.catalog import get
from maskwright.training.pretrain import RunResult
from maskwright.training.ranks import device
from maskwright.training.ranks.device import (
    Precision,
    layer_seconds,
    matmul_error,
    peak_matmul_flops,
    prepare_machine,
    restore_machine,
    use_machine,
)

needs_bf16 = pytest.mark.skipif(
    not device.multiplies_bf16(torch.device("cpu")), reason="this processor does not multiply bf16 numbers"
)


def test_a_cpu_computes_in_fp32_by_default(tmp_path: Path) -> None:
    machine = prepare_machine("cpu", "default", tmp_path)
    assert (machine.precision, machine.autocast) == ("fp32", None)


@pytest.mark.parametrize(
    ("name", "tokens"), [("bert/tiny", 4096), ("bert/medium", 4096), ("bert/base", 2048), ("electra/base", 2048)]
)
def test_narrow_encoders_compute_more_tokens_at_a_time(name: str, tokens: int, tmp_path: Path) -> None:
    assert device.pretraining_microbatch(prepare_machine("cpu", "default", tmp_path), get(name)) == tokens


def test_unknown_precision_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="auto, fp32, bf16"):
        prepare_machine("cpu", "default", tmp_path, "fp16")


def test_bf16_is_refused_where_it_would_be_emulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "multiplies_bf16", lambda _: False)
    with pytest.raises(DeviceError, match="slower than fp32"):
        prepare_machine("cpu", "default", tmp_path, "bf16")


def test_precision_is_that_of_the_named_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    current = [0]

    @contextlib.contextmanager
    def use(named: torch.device) -> Iterator[None]:
        before, current[0] = current[0], named.index
        yield
        current[0] = before

    monkeypatch.setattr(torch.cuda, "device", use)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: current[0] == 1)
    assert [device.multiplies_bf16(torch.device("cuda", number)) for number in range(3)] == [False, True, False]


@needs_bf16
def test_a_run_in_bf16_stays_near_the_one_in_fp32_and_is_another_run(tmp_path: Path) -> None:
    def train(out: str, precision: Precision) -> RunResult:
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
def test_onednn_is_used_if_faster_and_as_exact_and_the_choice_is_cached(seconds, error, chosen, tmp_path, monkeypatch):
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
    machine, message = restore_machine(recorded, "cpu", tmp_path, "auto")
    assert machine.kernels == kernels
    assert not message
    with use_machine(machine):
        assert kernels_enabled() == (kernels == "auto")


# Matmul timing: counts are right and the library setting is restored. No speed is asserted.

CPU = torch.device("cpu")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_PEAK_SHAPES", ((16, 8, 12),))
    monkeypatch.setattr(device, "_LAYER_SHAPES", ((16, 8, 12),))
    monkeypatch.setattr(device, "_ATTENTION_SHAPE", (3, 4, 5, 6))


def setting() -> str:
    return str(torch.backends.mkldnn.matmul.fp32_precision)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_multiply_and_an_add_count_as_two(small: None, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_seconds", lambda work, _: 0.5 if work().dtype == dtype else 0.0)
    assert peak_matmul_flops(CPU, dtype, seconds=0.0) == 2 * 16 * 8 * 12 / 0.5


def test_the_library_setting_is_restored_after_a_failure(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    before = setting()

    def fail(*_: object) -> float:
        assert setting() == "bf16"
        raise RuntimeError("interrupted")

    monkeypatch.setattr(device, "_seconds", fail)
    with pytest.raises(RuntimeError, match="interrupted"):
        peak_matmul_flops(CPU, library="onednn", seconds=0.0)
    assert setting() == before


def test_the_default_library_is_exact() -> None:
    assert matmul_error("default") < 1e-5


def test_the_matmuls_of_a_layer_are_summed_by_library(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, tuple[int, ...]]] = []

    def took(work: Callable[[], Tensor], _: torch.device) -> float:
        seen.append((setting(), tuple(work().shape)))
        return 1.0 if setting() == "none" else 0.5

    monkeypatch.setattr(device, "_seconds", took)
    assert layer_seconds(seconds=0.0) == {"default": 4.0, "onednn": 2.0}
    assert {shape for _, shape in seen} == {(16, 12), (16, 8), (12, 8), (3, 4, 6)}
    assert [each for each, _ in seen[:8]] == ["none"] * 4 + ["bf16"] * 4
