"""Probes: what they compare is right, and what they set is put back. No speed is asserted."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from maskwright.training import probe
from maskwright.training.probe import probe_bandwidth, probe_layers, probe_matmul


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "SHAPES", ((16, 8, 12),))
    monkeypatch.setattr(probe, "_COPIED", 1 << 12)


def setting() -> str:
    return str(torch.backends.mkldnn.matmul.fp32_precision)


def test_every_kind_has_a_rate_and_an_honest_error() -> None:
    rates = probe_matmul(seconds=0.0)
    assert {"fp32", "bf16"} <= rates.keys() <= {"fp32", "fp32_onednn", "bf16"}
    assert all(rate.flops > 0 for rate in rates.values())
    assert rates["fp32"].error < 1e-5
    assert 1e-4 < rates["bf16"].error < 2e-2  # eight bits of mantissa: it must not have been computed in fp32


def test_the_library_setting_is_put_back() -> None:
    before = setting()
    probe_matmul(seconds=0.0)
    assert setting() == before


def test_the_library_setting_is_put_back_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    before = setting()

    def fail(*_: object) -> float:
        raise RuntimeError("interrupted")

    monkeypatch.setattr(probe, "_seconds", fail)
    with pytest.raises(RuntimeError, match="interrupted"):
        probe_matmul(seconds=0.0)
    assert setting() == before


def test_rates_count_a_multiply_and_an_add_as_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_seconds", lambda work, device: work() is None or 0.5)
    rates = probe_matmul(seconds=0.0)
    assert {rate.flops for rate in rates.values()} == {2 * 16 * 8 * 12 / 0.5}


def test_bandwidth_counts_what_is_read_and_what_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_seconds", lambda work, device: 2.0)
    assert probe_bandwidth(seconds=0.0) == 2 * (1 << 12) / 2.0


def test_a_layers_products_are_summed_by_library(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, tuple[int, ...]]] = []

    def took(work: Callable[[], Tensor], device: torch.device) -> float:
        seen.append((setting(), tuple(work().shape)))
        return 1.0 if setting() == "none" else 0.5

    monkeypatch.setattr(probe, "_LAYERS", ((16, 8, 12),))
    monkeypatch.setattr(probe, "_HEADS", (3, 4, 5, 6))
    monkeypatch.setattr(probe, "_seconds", took)
    assert probe_layers(seconds=0.0) == {"fp32": 4.0, "fp32_onednn": 2.0}
    assert {shape for _, shape in seen} == {(16, 12), (16, 8), (12, 8), (3, 4, 6)}
    assert [each for each, _ in seen[:8]] == ["none"] * 4 + ["bf16"] * 4
