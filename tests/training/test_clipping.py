"""Gradients clipped, and non-finite updates skipped, by numbers on the device; torch's kernel does so on a CPU too."""

import math

import pytest
import torch
from torch import Tensor, nn

from maskwright.recipes.optimization import AdamW, Lamb
from maskwright.training.optimizer import Clipping, Optimizer, clipping_scale

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("norm", "most", "divisor"), [(0.5, 1.0, 1.0), (1.0, 1.0, 1.0), (4.0, 1.0, 4.0), (3.0, 0.5, 6.0), (3.0, 0.0, 1.0)]
)
def test_gradients_are_scaled_down_to_the_largest_norm(norm: float, most: float, divisor: float) -> None:
    clipping = Clipping.of(torch.tensor(norm), torch.tensor(2.0, dtype=torch.float64), most)
    assert float(clipping.grad_scale) == pytest.approx(divisor, rel=1e-5)
    assert clipping_scale(norm, most) == pytest.approx(1 / divisor, rel=1e-5)
    assert float(clipping.found_inf) == 0
    # As torch's kernels read them.
    assert [(each.dtype, each.shape) for each in (clipping.grad_scale, clipping.found_inf)] == [(torch.float32, ())] * 2


@pytest.mark.parametrize("most", [0.0, 1.0])
@pytest.mark.parametrize(("norm", "loss"), [(INF, 1.0), (NAN, 1.0), (1.0, NAN), (1.0, -INF), (NAN, INF)])
def test_non_finite_values_are_found(norm: float, loss: float, most: float) -> None:
    assert float(Clipping.of(torch.tensor(norm), torch.tensor(loss), most).found_inf) == 1


def parameters() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(*shape, generator=generator)) for shape in ((5, 3), (4,))]


def optimizer_of(of: list[nn.Parameter], constants: AdamW | Lamb) -> Optimizer:
    return Optimizer([(str(number), each) for number, each in enumerate(of)], constants)


def give_gradients(of: list[nn.Parameter], seed: int, size: float) -> Tensor:
    """Set random gradients; return their norm."""
    generator = torch.Generator().manual_seed(seed)
    for each in of:
        each.grad = torch.randn(each.shape, generator=generator) * size
    return torch.nn.utils.get_total_norm([each.grad for each in of if each.grad is not None])


@pytest.mark.parametrize("bias_correction", [False, True])
def test_an_update_clipped_on_the_device_equals_one_clipped_by_the_host(bias_correction: bool) -> None:
    constants, loss = AdamW(bias_correction=bias_correction, weight_decay=0.1), torch.tensor(1.0)
    on_device, by_host = parameters(), parameters()
    first, second = optimizer_of(on_device, constants), optimizer_of(by_host, constants)
    # Too large, small enough, and not clipped at all.
    for number, (size, most) in enumerate(((3.0, 1.0), (0.01, 1.0), (2.0, 0.0), (7.0, 0.5)), start=1):
        norm = give_gradients(on_device, number, size)
        first.step(0.01, Clipping.of(norm, loss, most))
        give_gradients(by_host, number, size)
        second.step(0.01, gradient_scale=clipping_scale(float(norm), most))
    for one, other in zip(on_device, by_host, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)
    for name, moment in first.state().items():
        torch.testing.assert_close(moment, second.state()[name], rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize(("norm", "loss"), [(INF, 1.0), (1.0, NAN)])
def test_a_skipped_update_changes_neither_weights_nor_moments(norm: float, loss: float) -> None:
    both = parameters()
    optimizer = optimizer_of(both, AdamW())
    give_gradients(both, 0, 1.0)
    optimizer.step(0.01)

    def state() -> list[Tensor]:
        return [each.detach().clone() for each in (*both, *optimizer.state().values())]

    before = state()
    give_gradients(both, 1, norm)
    optimizer.step(0.01, Clipping.of(torch.tensor(norm), torch.tensor(loss), 1.0))
    assert all(torch.equal(one, other) for one, other in zip(before, state(), strict=True))
    assert all(each.grad is None for each in both)
    # The next step is not skipped.
    give_gradients(both, 2, 1.0)
    optimizer.step(0.01)
    assert not any(torch.equal(one, other) for one, other in zip(before, state(), strict=True))


def test_only_adamw_clips_on_the_device() -> None:
    assert optimizer_of(parameters(), AdamW()).accepts_clipping
    assert not optimizer_of(parameters(), Lamb()).accepts_clipping
