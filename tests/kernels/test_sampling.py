"""Tokens drawn from predicted distributions: one uniform number each, the distribution of the softmax."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from maskwright.kernels.vocabulary_losses import summed_cross_entropy
from tests.kernels.gradients import assert_same_gradients


def drawn(logits: Tensor, numbers: Tensor, block_elements: int = 1 << 25) -> Tensor:
    """Draw from given logits: features are one-hot rows that pick them out."""
    rows = torch.eye(len(logits), dtype=logits.dtype)
    labels = torch.zeros(len(logits), dtype=torch.int64)
    scores = summed_cross_entropy(
        rows, logits.T.contiguous(), torch.zeros(logits.shape[1]), labels, block_elements, sampling=numbers
    )
    assert scores.sampled is not None
    return scores.sampled


@settings(max_examples=100)
@given(
    st.lists(st.lists(st.floats(-8, 8, width=32), min_size=7, max_size=7), min_size=1, max_size=9),
    st.integers(0, 99),
    st.integers(1, 40),
)
def test_drawn_tokens_are_where_the_summed_probabilities_pass_the_number(rows, seed, block_elements):
    logits = torch.tensor(rows)
    numbers = torch.rand(len(rows), generator=torch.Generator().manual_seed(seed))
    actual = drawn(logits, numbers, block_elements)
    for row, number, token in zip(rows, numbers.tolist(), actual.tolist(), strict=True):
        shares = np.exp(np.array(row) - max(row))
        shares /= shares.sum()
        # Token by token, in exact arithmetic but for rounding at the borders.
        before, until = shares[:token].sum(), shares[: token + 1].sum()
        assert before - 1e-6 <= number <= until + 1e-6


def test_drawn_tokens_follow_the_softmax() -> None:
    count, size = 200_000, 20
    generator = torch.Generator().manual_seed(0)
    logits = 1.5 * torch.randn(size, generator=generator)
    features, labels = torch.ones(count, 1), torch.zeros(count, dtype=torch.int64)
    numbers = torch.rand(count, generator=generator)
    scores = summed_cross_entropy(features, logits[:, None], torch.zeros(size), labels, sampling=numbers)
    assert scores.sampled is not None
    counts = torch.bincount(scores.sampled, minlength=size).numpy()
    expected = count * torch.softmax(logits.double(), dim=0).numpy()  # temperature 1
    statistic, freedom = float(((counts - expected) ** 2 / expected).sum()), size - 1
    # Wilson and Hilferty 1931: the cube root of chi-square / freedom is nearly normal; wrong once in 30,000.
    spread = 2 / (9 * freedom)
    assert ((statistic / freedom) ** (1 / 3) - (1 - spread)) / np.sqrt(spread) < 4


def test_tokens_without_probability_are_never_drawn_not_even_at_the_ends() -> None:
    logits = torch.tensor([[-1e4, 0.0, -1e4, 0.0, -1e4]]).expand(4, 5).contiguous()
    # float32 rounds numbers just below 1 up to it.
    assert drawn(logits, torch.tensor([0.0, 0.49, 0.51, 1.0])).tolist() == [1, 1, 3, 3]


@pytest.mark.parametrize("block_elements", [1, 60, 1 << 25])
def test_drawing_does_not_move_loss_or_gradients(block_elements: int) -> None:
    torch.manual_seed(0)
    leaves = [torch.randn(*shape).requires_grad_() for shape in ((9, 4), (30, 4), (30,))]
    labels = torch.randint(30, (9,))
    plain = summed_cross_entropy(*leaves, labels, block_elements)
    with_drawing = summed_cross_entropy(*leaves, labels, block_elements, sampling=torch.rand(9))
    assert plain.sampled is None
    assert plain.total.item() == with_drawing.total.item()
    assert_same_gradients(with_drawing.total, plain.total, leaves, rtol=0, atol=0)


@pytest.mark.parametrize("block_elements", [300 * 40, 1 << 25])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_under_autocast_tokens_are_drawn_by_logits_in_fp32(dtype: torch.dtype, block_elements: int) -> None:
    """Of features in either precision: a head's last layer may leave bf16."""
    generator = torch.Generator().manual_seed(0)
    features, weight, bias = (torch.randn(*shape, generator=generator) for shape in ((2000, 32), (300, 32), (300,)))
    features = features.to(dtype)
    numbers, labels = torch.rand(2000, generator=generator), torch.zeros(2000, dtype=torch.int64)
    wanted = summed_cross_entropy(features.float(), weight, bias, labels, block_elements, sampling=numbers)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = summed_cross_entropy(features, weight, bias, labels, block_elements, sampling=numbers)
        without = summed_cross_entropy(features, weight, bias, labels, block_elements)
    assert actual.sampled.tolist() == wanted.sampled.tolist()
    assert actual.total.item() == without.total.item() != wanted.total.item()  # The loss is that of bf16 products.
