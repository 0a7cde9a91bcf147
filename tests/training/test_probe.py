"""Matmul timing: counts are right and the library setting is restored. No speed is asserted."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from maskwright.training import device as probe
from maskwright.training.device import layer_seconds, matmul_error, peak_matmul_flops

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_PEAK_SHAPES", ((16, 8, 12),))
    monkeypatch.setattr(probe, "_LAYER_SHAPES", ((16, 8, 12),))
    monkeypatch.setattr(probe, "_ATTENTION_SHAPE", (3, 4, 5, 6))


def setting() -> str:
    return str(torch.backends.mkldnn.matmul.fp32_precision)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_multiply_and_an_add_count_as_two(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_seconds", lambda work, device: 0.5 if work().dtype == dtype else 0.0)
    assert peak_matmul_flops(CPU, dtype, seconds=0.0) == 2 * 16 * 8 * 12 / 0.5


def test_the_library_setting_is_restored_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    before = setting()

    def fail(*_: object) -> float:
        assert setting() == "bf16"
        raise RuntimeError("interrupted")

    monkeypatch.setattr(probe, "_seconds", fail)
    with pytest.raises(RuntimeError, match="interrupted"):
        peak_matmul_flops(CPU, library="onednn", seconds=0.0)
    assert setting() == before


def test_the_default_library_is_exact() -> None:
    assert matmul_error("default") < 1e-5


def test_the_matmuls_of_a_layer_are_summed_by_library(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, tuple[int, ...]]] = []

    def took(work: Callable[[], Tensor], device: torch.device) -> float:
        seen.append((setting(), tuple(work().shape)))
        return 1.0 if setting() == "none" else 0.5

    monkeypatch.setattr(probe, "_seconds", took)
    assert layer_seconds(seconds=0.0) == {"default": 4.0, "onednn": 2.0}
    assert {shape for _, shape in seen} == {(16, 12), (16, 8), (12, 8), (3, 4, 6)}
    assert [each for each, _ in seen[:8]] == ["none"] * 4 + ["bf16"] * 4
