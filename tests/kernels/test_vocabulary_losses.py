"""Losses over the vocabulary in blocks equal the plain ones, forwards and backwards."""

import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div, linear
from torch.utils._python_dispatch import TorchDispatchMode

from maskwright.kernels.copying import summed_copying_cross_entropy
from maskwright.kernels.divergences import summed_divergence
from maskwright.kernels.vocabulary_losses import LogitParts, loss_in_blocks, max_with_index, summed_cross_entropy
from tests.kernels.gradients import assert_same_gradients
from tests.pretext.differences import assert_gradients_are_those_of_differences

ENTRIES = 37


def parts_of(m: int, e: int, seed: int, dtype: torch.dtype = torch.float64, v: int = ENTRIES) -> LogitParts:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((m, e), (v, e), (v,))
    return LogitParts(*(torch.randn(*each, generator=generator, dtype=dtype).requires_grad_() for each in shapes))


def inputs(m: int, v: int, e: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    labels = torch.randint(v, (m,), generator=torch.Generator().manual_seed(m + v + e))
    return *parts_of(m, e, m + v + e, dtype, v), labels


@pytest.mark.parametrize("block_elements", [1, 37, 37 * 4, 37 * 11, 1 << 25])
def test_blocks_equal_the_plain_computation(block_elements: int) -> None:
    features, weight, bias, labels = inputs(11, 37, 8, torch.float64)
    total, correct, _ = summed_cross_entropy(features, weight, bias, labels, block_elements)
    logits = linear(features, weight, bias)
    expected = cross_entropy(logits, labels, reduction="sum")
    assert torch.allclose(total, expected, rtol=1e-12)
    assert int(correct) == int((logits.argmax(dim=1) == labels).sum())
    assert_same_gradients(total, expected, (features, weight, bias), rtol=1e-10, atol=1e-12)


def test_gradients_are_those_of_finite_differences() -> None:
    features, weight, bias, labels = inputs(5, 7, 3, torch.float64)
    assert_gradients_are_those_of_differences(
        lambda *leaves: summed_cross_entropy(*leaves, labels, block_elements=14)[0], (features, weight, bias)
    )


def test_no_targets_give_a_zero_loss_and_zero_gradients() -> None:
    features, weight, bias, labels = inputs(0, 7, 3, torch.float32)
    total, correct, _ = summed_cross_entropy(features, weight, bias, labels)
    gradients = torch.autograd.grad(total, (features, weight, bias))
    assert total.item() == correct.item() == 0
    assert not any(gradient.any() for gradient in gradients)


def test_a_second_backward_pass_is_refused_and_the_first_one_s_gradients_stay() -> None:
    features, weight, bias, labels = inputs(5, 7, 3, torch.float32)
    total, _, _ = summed_cross_entropy(features, weight, bias, labels)
    gradients = torch.autograd.grad(2 * total, (features, weight, bias), retain_graph=True)
    kept = [gradient.clone() for gradient in gradients]
    with pytest.raises(RuntimeError, match="compute the loss again"):
        torch.autograd.grad(3 * total, (features, weight, bias))
    assert all(torch.equal(one, other) for one, other in zip(gradients, kept, strict=True))


@pytest.mark.parametrize("entries", [1, 5, 127, 128, 129, 300, 1024])
def test_the_first_of_equal_scores_is_the_highest(entries: int) -> None:
    draws = torch.Generator().manual_seed(entries)
    plain = torch.randn(50, entries, generator=draws)
    for scores in (
        plain,
        plain.round(),
        torch.zeros(3, entries),
        plain.bfloat16(),
        plain[:, ::2] if entries > 1 else plain,
    ):
        best, indices = scores.max(dim=1, keepdim=True)
        actual, found_places = max_with_index(scores)
        assert torch.equal(actual, best)
        assert torch.equal(found_places, indices)


def test_without_gradients_the_loss_is_the_same() -> None:
    features, weight, bias, labels = inputs(9, 50, 4, torch.float32)
    with torch.no_grad():
        total, _, _ = summed_cross_entropy(features, weight, bias, labels)
    assert not total.requires_grad
    assert total.item() == summed_cross_entropy(features, weight, bias, labels)[0].item()


def test_autocast_multiplies_in_bfloat16_and_sums_in_float32() -> None:
    features, weight, bias, labels = inputs(64, 100, 16, torch.float32)
    exact = torch.autograd.grad(summed_cross_entropy(features, weight, bias, labels)[0], (features, weight, bias))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        total, _, _ = summed_cross_entropy(features, weight, bias, labels, block_elements=1000)
        logits = linear(features, weight, bias).float()
    assert total.dtype == torch.float32
    assert torch.allclose(total, cross_entropy(logits, labels, reduction="sum"), rtol=1e-5)
    for rough, fine in zip(torch.autograd.grad(total, (features, weight, bias)), exact, strict=True):
        assert rough.dtype == torch.float32
        assert (rough - fine).norm() < 0.02 * fine.norm()


def test_extreme_logits_stay_finite() -> None:
    features = torch.tensor([[1000.0], [-1000.0]], requires_grad=True)
    weight, bias = torch.tensor([[1.0], [-1.0]], requires_grad=True), torch.zeros(2, requires_grad=True)
    total, correct, _ = summed_cross_entropy(features, weight, bias, torch.tensor([0, 0]))
    assert total.item() == 2000
    assert correct.item() == 1
    total.backward()
    assert features.grad.isfinite().all()


def copying_case(dtype: torch.dtype) -> tuple[LogitParts, Tensor, Tensor, Tensor]:
    """Parts, log-odds, inputs and labels of 64 targets; every fourth was replaced, and of these some are restored."""
    parts, labels = parts_of(64, 16, 5, dtype), torch.arange(64) % ENTRIES
    inputs = torch.where(torch.arange(64) % 4 == 0, (labels + 1) % ENTRIES, labels)
    with torch.no_grad():  # Half of the targets have the features of their label.
        parts.features[::8] = 2 * parts.weight[labels[::8]]
        parts.features[1::8] = 2 * parts.weight[labels[1::8]]
    log_odds = torch.linspace(-8, 8, 64, dtype=dtype)[torch.randperm(64, generator=torch.Generator().manual_seed(0))]
    log_odds[:8] = -8
    return parts, log_odds.requires_grad_(), inputs, labels


@pytest.mark.parametrize("block_elements", [1, 7 * ENTRIES, 1 << 20])
def test_copying_in_blocks_equals_the_plain_mixture(block_elements: int) -> None:
    parts, log_odds, inputs, labels = copying_case(torch.float64)
    total, is_right = summed_copying_cross_entropy(parts, log_odds, inputs, labels, block_elements)
    copying = torch.sigmoid(log_odds)[:, None]
    probabilities = ((1 - copying) * linear(*parts).softmax(1)).scatter_add(1, inputs[:, None], copying)
    assert torch.allclose(probabilities.sum(1), torch.ones(64, dtype=torch.float64))
    expected = -probabilities.gather(1, labels[:, None]).log().sum()
    assert total.item() == pytest.approx(expected.item(), rel=1e-12)
    assert torch.equal(is_right, probabilities.argmax(1) == labels)
    for kind in (inputs == labels, inputs != labels):
        assert 0 < int((is_right & kind).sum()) < int(kind.sum())
    assert_same_gradients(total, expected, (*parts, log_odds), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("odds", [-1e4, 1e4])
def test_copying_with_extreme_odds_is_finite(odds: float) -> None:
    """Without copying it is cross entropy; where all is copied, only replaced tokens have a loss."""
    parts, log_odds, inputs, labels = copying_case(torch.float32)
    with torch.no_grad():
        log_odds.fill_(odds)
    total, _ = summed_copying_cross_entropy(parts, log_odds, inputs, labels)
    plain = cross_entropy(linear(*parts), labels, reduction="none")
    expected = plain.sum() if odds < 0 else (plain + odds)[inputs != labels].sum()
    assert total.item() == pytest.approx(expected.item(), rel=1e-5)
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(total, (*parts, log_odds)))


def test_gradients_of_likely_copies_are_exact_in_fp32() -> None:
    parts, log_odds, inputs, labels = copying_case(torch.float64)
    with torch.no_grad():
        log_odds.copy_(torch.linspace(8, 20, 64))
    small = LogitParts(*(part.detach().float() for part in parts))
    rough = log_odds.detach().float().requires_grad_()
    for dtype_parts, odds in ((parts, log_odds), (small, rough)):
        summed_copying_cross_entropy(dtype_parts, odds, inputs, labels)[0].backward()
    kept = inputs == labels
    assert ((rough.grad - log_odds.grad).abs() < 1e-4 * torch.sigmoid(-log_odds))[kept].all()
    assert torch.allclose(rough.grad[~kept].double(), log_odds.grad[~kept], rtol=1e-6)


@pytest.mark.parametrize("temperature", [1.0, 2.0, 7.5])
@pytest.mark.parametrize("block_elements", [1, 2 * ENTRIES * 4, 1 << 20])
def test_divergence_in_blocks_equals_plain_torch_forwards_and_backwards(block_elements, temperature):
    student, teacher = parts_of(11, 8, 1), parts_of(11, 5, 2)  # A teacher may be of another width.
    total, agreed = summed_divergence(student, teacher, temperature, block_elements)
    scores, wanted = linear(*student), linear(*teacher).detach()
    expected = temperature**2 * kl_div(
        (scores / temperature).log_softmax(-1), (wanted / temperature).softmax(-1), reduction="batchmean"
    )
    assert total.item() / 11 == pytest.approx(expected.item(), abs=1e-12)
    assert int(agreed) == int((scores.argmax(1) == wanted.argmax(1)).sum())
    assert_same_gradients(total / 11, expected, student, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("loss", "tolerance"), [("copying", 0.02), ("divergence", 0.05)])
def test_copying_and_divergence_under_autocast_are_summed_in_float32(loss: str, tolerance: float) -> None:
    parts, log_odds, inputs, labels = copying_case(torch.float32)
    teacher = parts_of(64, 16, 9, torch.float32)

    def total_and_gradients(block_elements: int) -> tuple[Tensor, ...]:
        if loss == "copying":
            total, _ = summed_copying_cross_entropy(parts, log_odds, inputs, labels, block_elements)
        else:
            total, _ = summed_divergence(parts, teacher, 2.0, block_elements)
        return total, *torch.autograd.grad(total, [*parts, *[log_odds] * (loss == "copying")])

    exact = total_and_gradients(1 << 20)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = total_and_gradients(1000)
    assert rough[0].item() == pytest.approx(exact[0].item(), rel=0.02)
    for one, other in zip(rough, exact, strict=True):
        assert one.dtype == torch.float32
        assert (one - other).norm() < tolerance * other.norm()


def test_divergence_of_extreme_logits_is_finite() -> None:
    student, teacher = (
        LogitParts(features, torch.tensor([[1.0], [-1.0]], requires_grad=True), torch.zeros(2))
        for features in (torch.tensor([[1000.0]], requires_grad=True), torch.tensor([[-1000.0]]))
    )
    total, agreed = summed_divergence(student, teacher, 2.0)
    assert total.item() == pytest.approx(4 * 1000)
    assert int(agreed) == 0
    assert torch.autograd.grad(total, student.features)[0].isfinite().all()


def test_of_a_block_nothing_but_the_sum_is_there_when_the_next_one_begins() -> None:
    parts, matmuls, left = LogitParts(torch.randn(8, 4), torch.randn(5, 4), torch.zeros(5)), _Matmuls(), list[int]()

    def block_loss(block: slice, parts: LogitParts) -> tuple[Tensor, Tensor, Tensor]:
        left.append(matmuls.alive())
        return torch.zeros(()), torch.zeros((), dtype=torch.int64), parts.features @ parts.weight.T

    with matmuls:
        loss_in_blocks(parts, 2, block_loss, with_gradients=True)
    assert left == [0, 1, 1, 1]


class _Matmuls(TorchDispatchMode):
    """Counts the results of matmuls that are still in use."""

    def __init__(self) -> None:
        super().__init__()
        self._made = list[weakref.ref[Tensor]]()

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operation(*args, **kwargs or {})
        if operation is torch.ops.aten.mm.default:
            self._made.append(weakref.ref(result))
        return result

    def alive(self) -> int:
        return sum(each() is not None for each in self._made)
