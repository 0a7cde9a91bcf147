"""Gradients clipped and unsound steps refused by numbers on a device, as a GPU does; its kernel is on a CPU too."""

import math

import pytest
import torch
from torch import Tensor, nn

from maskwright.recipes.optimization import AdamW, Lamb
from maskwright.training.adamw import AdamWRule, Clipping
from maskwright.training.optimizer import Optimizer

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("norm", "most", "divisor"), [(0.5, 1.0, 1.0), (1.0, 1.0, 1.0), (4.0, 1.0, 4.0), (3.0, 0.5, 6.0), (3.0, 0.0, 1.0)]
)
def test_gradients_are_divided_by_what_they_are_too_large(norm: float, most: float, divisor: float) -> None:
    clipping = Clipping.of(torch.tensor(norm), torch.tensor(2.0, dtype=torch.float64), most)
    assert float(clipping.divisor) == pytest.approx(divisor, rel=1e-5)
    assert float(clipping.refused) == 0
    # As torch's kernels read them.
    assert [(each.dtype, each.shape) for each in (clipping.divisor, clipping.refused)] == [(torch.float32, ())] * 2


@pytest.mark.parametrize("most", [0.0, 1.0])
@pytest.mark.parametrize(("norm", "loss"), [(INF, 1.0), (NAN, 1.0), (1.0, NAN), (1.0, -INF), (NAN, INF)])
def test_what_is_no_number_is_refused(norm: float, loss: float, most: float) -> None:
    assert float(Clipping.of(torch.tensor(norm), torch.tensor(loss), most).refused) == 1


def parameters() -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    draws = torch.Generator().manual_seed(0)
    matrices, vectors = ([nn.Parameter(torch.randn(*shape, generator=draws))] for shape in ((5, 3), (4,)))
    return matrices, vectors


def give_gradients(of: list[nn.Parameter], seed: int, size: float) -> Tensor:
    """Put random gradients in place; return their norm."""
    draws = torch.Generator().manual_seed(seed)
    for each in of:
        each.grad = torch.randn(each.shape, generator=draws) * size
    return torch.nn.utils.get_total_norm([each.grad for each in of if each.grad is not None])


@pytest.mark.parametrize("bias_correction", [False, True])
def test_an_update_clipped_by_the_kernel_is_the_one_clipped_by_hand(bias_correction: bool) -> None:
    constants, loss = AdamW(bias_correction=bias_correction, weight_decay=0.1), torch.tensor(1.0)
    by_kernel, by_hand = parameters(), parameters()
    rules = [AdamWRule(*each, constants) for each in (by_kernel, by_hand)]
    # Too large, small enough, and not clipped at all.
    for number, (size, most) in enumerate(((3.0, 1.0), (0.01, 1.0), (2.0, 0.0), (7.0, 0.5)), start=1):
        norm = give_gradients([*by_kernel[0], *by_kernel[1]], number, size)
        rules[0].step(0.01, number, Clipping.of(norm, loss, most))
        give_gradients([*by_hand[0], *by_hand[1]], number, size)
        for each in (*by_hand[0], *by_hand[1]):
            assert each.grad is not None
            if most and float(norm) > most:
                each.grad *= most / (float(norm) + 1e-6)
        rules[1].step(0.01, number)
    for one, other in zip((*by_kernel[0], *by_kernel[1]), (*by_hand[0], *by_hand[1]), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)
        for moment in ("exp_avg", "exp_avg_sq"):
            found, expected = rules[0].moments(one)[moment], rules[1].moments(other)[moment]
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize(("norm", "loss"), [(INF, 1.0), (1.0, NAN)])
def test_a_refused_update_touches_neither_weights_nor_moments(norm: float, loss: float) -> None:
    decayed, plain = parameters()
    both = [*decayed, *plain]
    rule = AdamWRule(decayed, plain, AdamW())
    give_gradients(both, 0, 1.0)
    rule.step(0.01, 1)

    def state() -> list[Tensor]:
        return [each.detach().clone() for each in both] + [m.clone() for p in both for m in rule.moments(p).values()]

    before = state()
    give_gradients(both, 1, norm)
    rule.step(0.01, 2, Clipping.of(torch.tensor(norm), torch.tensor(loss), 1.0))
    assert all(torch.equal(one, other) for one, other in zip(before, state(), strict=True))
    # Nor is what was told for one step told for the next.
    give_gradients(both, 2, 1.0)
    rule.step(0.01, 2)
    assert not any(torch.equal(one, other) for one, other in zip(before, state(), strict=True))


def test_only_adamw_takes_what_clips_as_numbers() -> None:
    decayed, plain = parameters()
    named = [(str(number), each) for number, each in enumerate((*decayed, *plain))]
    assert Optimizer(named, AdamW()).refuses_itself
    assert not Optimizer(named, Lamb()).refuses_itself


def test_an_optimizer_hands_on_what_clips_and_drops_gradients() -> None:
    decayed, plain = parameters()
    both = [*decayed, *plain]
    optimizer = Optimizer([(str(number), each) for number, each in enumerate(both)], AdamW())
    before = [each.detach().clone() for each in both]
    give_gradients(both, 0, 1.0)
    optimizer.step(0.01, clipping=Clipping.of(torch.tensor(NAN), torch.tensor(1.0), 1.0))
    assert all(torch.equal(one, other) for one, other in zip(before, both, strict=True))
    assert all(each.grad is None for each in both)
