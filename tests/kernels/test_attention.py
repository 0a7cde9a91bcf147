"""Attention over rows and in C against the formula and against finite differences."""

import itertools
import math

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from maskwright.kernels import ops
from maskwright.kernels import row_attention as rows
from maskwright.kernels.cpu import attention as cpu_attention
from maskwright.kernels.cpu.library import library
from maskwright.kernels.cuda import attention as cuda_attention
from maskwright.kernels.dropout import DropoutKey, DropoutMask
from maskwright.kernels.sequences import Sequences
from maskwright.kernels.setting import use_kernels
from tests.kernels.gradients import assert_same_values
from tests.kernels.padded_attention import padded_attention

HEADS, WIDTH, LONGEST = 3, 12, 6
PACKED, FULL = (2, 6, 3, 1), (6, 6)
MASK = DropoutKey(20170612, torch.device("cpu")).mask(2, 0.4)
assert MASK is not None

lengths = pytest.mark.parametrize("lengths", [PACKED, FULL], ids=["packed", "full rows"])
needs_c = pytest.mark.skipif(isinstance(library("attention"), Exception), reason="needs AVX512 and a C compiler")
masks = pytest.mark.parametrize("mask", [None, MASK], ids=["no dropout", "dropout"])


def inputs_of(lengths: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[Tensor]:
    draws = torch.Generator().manual_seed(3)
    shape = sum(lengths), WIDTH
    return [torch.randn(shape, generator=draws, dtype=torch.float64).to(dtype).requires_grad_() for _ in range(3)]


def sequences_of(lengths: tuple[int, ...], longest: int = LONGEST) -> Sequences:
    return Sequences(torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32), longest)


def by_formula(inputs: list[Tensor], lengths: tuple[int, ...]) -> Tensor:
    """Attention of sequence after sequence and head after head."""
    results, size = [], WIDTH // HEADS
    for begin, end in itertools.pairwise([0, *itertools.accumulate(lengths)]):
        heads = []
        for head in range(HEADS):
            q, k, v = (each[begin:end, head * size : (head + 1) * size] for each in inputs)
            heads.append((q @ k.T / math.sqrt(size)).softmax(-1) @ v)
        results.append(torch.cat(heads, 1))
    return torch.cat(results)


@lengths
@pytest.mark.parametrize("function", [rows.attention, padded_attention], ids=["rows", "padded"])
@pytest.mark.parametrize(("longest", "fused"), [(LONGEST, False), (300, False), (300, True)])
def test_results_and_gradients_are_those_of_the_formula(function, lengths, longest, fused, monkeypatch):
    monkeypatch.setattr(rows, "_LONGEST_FOR_MATMULS", 0 if fused else 256)
    inputs = inputs_of(lengths, torch.float64)
    actual, expected = function(*inputs, sequences_of(lengths, longest), HEADS, None), by_formula(inputs, lengths)
    assert_same_values(actual, expected, inputs, 1e-10)


def test_long_rows_are_computed_without_a_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_LONGEST_ROW_MASK", 5)
    monkeypatch.setattr(Sequences, "row_mask", lambda *_: pytest.fail("a mask of R x R"))
    inputs = inputs_of(PACKED, torch.float64)
    actual, expected = rows.attention(*inputs, sequences_of(PACKED), HEADS, None), by_formula(inputs, PACKED)
    assert_same_values(actual, expected, inputs, 1e-10)


@lengths
@masks
def test_gradients_are_those_of_finite_differences(lengths: tuple[int, ...], mask: DropoutMask | None) -> None:
    inputs = tuple(inputs_of(lengths, torch.float64))
    assert torch.autograd.gradcheck(
        lambda *tensors: rows.attention(*tensors, sequences_of(lengths), HEADS, mask), inputs, fast_mode=True
    )


@pytest.mark.parametrize("fused", [False, True], ids=["matmuls", "fused"])
@pytest.mark.parametrize("blocks", [False, True], ids=["rows", "blocks"])
@pytest.mark.parametrize("lengths", [PACKED, FULL, (11, 3, 7, 1)], ids=str)
@pytest.mark.parametrize("window", [1, 2])
def test_windows_limit_the_distance(lengths, window, blocks, fused, monkeypatch):
    monkeypatch.setattr(rows, "_LONGEST_FOR_MATMULS", 0 if fused else 256)
    monkeypatch.setattr(rows, "_BLOCK", 2)
    monkeypatch.setattr(rows, "_BLOCKS_FROM", 0 if blocks else 100)
    inputs, sequences = inputs_of(lengths, torch.float64), sequences_of(lengths, max(lengths))
    actual = ops.attention(*inputs, sequences, num_heads=HEADS, window=window)
    expected = padded_attention(*inputs, sequences, HEADS, None, window)
    assert_same_values(actual, expected, inputs, 1e-10)


@pytest.mark.parametrize("blocks", [False, True], ids=["rows", "blocks"])
def test_gradients_within_windows_are_those_of_finite_differences(blocks, monkeypatch):
    monkeypatch.setattr(rows, "_BLOCK", 2)
    monkeypatch.setattr(rows, "_BLOCKS_FROM", 0 if blocks else 100)
    inputs = tuple(inputs_of(PACKED, torch.float64))
    assert torch.autograd.gradcheck(
        lambda *tensors: rows.attention(*tensors, sequences_of(PACKED), HEADS, MASK, 1), inputs, fast_mode=True
    )


def test_memory_within_windows_is_linear() -> None:
    def largest(length: int) -> int:
        saved: list[Tensor] = []
        with saved_tensors_hooks(lambda tensor: saved.append(tensor) or tensor, lambda tensor: tensor):
            ops.attention(*inputs_of((length,)), sequences_of((length,), length), num_heads=HEADS, window=8)
        return max(each.nbytes for each in saved)

    assert largest(2048) <= 4.5 * largest(512)


@needs_c
@pytest.mark.parametrize(
    ("lengths", "longest"),
    [((17, 40, 1, 64, 8), 64), ((33, 33), 64), ((), 64), ((65, 130, 200, 3), 256), ((512,), 512)],
    ids=str,
)
@pytest.mark.parametrize("head_size", [16, 48, 64])
@masks
def test_c_attention_drops_and_computes_what_rows_do(lengths, longest, head_size, mask, monkeypatch):
    monkeypatch.setattr(rows, "_LONGEST_FOR_MATMULS", 512)
    shape, draws = (sum(lengths), HEADS * head_size), torch.Generator().manual_seed(1)
    # Views of one tensor, as from the fused projection.
    projected = torch.randn(shape[0], 3 * shape[1], generator=draws).requires_grad_()
    grad, computed = torch.randn(shape, generator=draws), []
    for function in (cpu_attention.attention, rows.attention):
        context = function(*projected.split(shape[1], 1), sequences_of(lengths, longest), HEADS, mask)
        computed.append((context, *torch.autograd.grad(context, projected, grad)))
    torch.testing.assert_close(*computed, atol=2e-5, rtol=2e-5)


@needs_c
def test_c_attention_computes_heads_in_whole_registers_in_fp32() -> None:
    assert cpu_attention.is_supported(torch.zeros(3, 64), 2)
    assert not cpu_attention.is_supported(torch.zeros(3, 64), 8)
    assert not cpu_attention.is_supported(torch.zeros(3, 64, dtype=torch.float64), 2)
    with torch.autocast("cpu", torch.bfloat16):
        assert not cpu_attention.is_supported(torch.zeros(3, 64), 2)


def test_graphs_contain_long_attention_only_without_dropout() -> None:
    capturable = cuda_attention.is_capturable
    assert capturable(128, 64, 0.1)
    assert not capturable(512, 64, 0.1)
    assert capturable(1024, 64, 0.0)
    assert not capturable(1024, 256, 0.0)


def test_probabilities_are_dropped_at_the_rate_and_scaled() -> None:
    # With equal scores and the identity as values, the results are the probabilities times their factors.
    size, longest, assumed = 32, 32, 0.4
    zeros, identity = torch.zeros(longest, size), torch.eye(longest)
    mask = DropoutKey(5, torch.device("cpu")).mask(1, assumed)
    factors = rows.attention(zeros, zeros, identity, sequences_of((longest,), longest), 1, mask) * longest
    assert factors.unique().tolist() == pytest.approx([0.0, mask.scale])
    share = float((factors == 0).double().mean())
    assert abs(share - assumed) < 4 * math.sqrt(assumed * (1 - assumed) / factors.numel())


def test_rows_are_as_long_as_the_longest_sequence() -> None:
    assert (sequences_of(PACKED, 300).rows.length, sequences_of(PACKED, 300).rows.num_rows) == (6, 2)
    assert sequences_of(FULL, 300).row_mask() is None
    with pytest.raises(ValueError, match="1 to 6 tokens do not fit rows of 5"):
        _ = sequences_of(PACKED, 5).rows


@lengths
@masks
def test_one_block_of_probabilities_is_saved_beside_the_inputs(lengths, mask):
    saved: list[Tensor] = []
    with saved_tensors_hooks(lambda tensor: saved.append(tensor) or tensor, lambda tensor: tensor):
        rows.attention(*inputs_of(lengths), sequences_of(lengths), HEADS, mask)
    assert sorted(each.nbytes for each in saved) == sorted([4 * 2 * HEADS * LONGEST**2, *[4 * 12 * WIDTH] * 3])


@masks
def test_autocast_computes_in_half_precision_and_keeps_gradients_in_fp32(mask: DropoutMask | None) -> None:
    inputs, halves = inputs_of(PACKED), inputs_of(PACKED, torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        actual = rows.attention(*inputs, sequences_of(PACKED), HEADS, mask)
    expected = rows.attention(*halves, sequences_of(PACKED), HEADS, mask)
    assert actual.dtype == torch.bfloat16
    assert torch.equal(actual, expected)
    grad = torch.randn_like(expected)
    for one, other in zip(
        torch.autograd.grad(actual, inputs, grad), torch.autograd.grad(expected, halves, grad), strict=True
    ):
        assert one.dtype == torch.float32
        assert torch.equal(one, other.float())


def test_large_scores_and_no_tokens_are_computed_and_nan_stays_in_its_sequence() -> None:
    inputs = [each.detach() for each in inputs_of(PACKED)]
    scaled = [each * 1e4 for each in inputs]
    assert rows.attention(*scaled, sequences_of(PACKED), HEADS, MASK).isfinite().all()
    empty = [each[:0] for each in inputs]
    assert rows.attention(*empty, sequences_of(()), HEADS, None).shape == (0, WIDTH)
    inputs[1][3] = torch.nan
    actual = rows.attention(*inputs, sequences_of(PACKED), HEADS, None)
    assert actual[2:8].isnan().all()
    assert actual[[0, 1, 8, 9, 10, 11]].isfinite().all()


@pytest.mark.parametrize("enabled", [True, False])
def test_without_kernels_no_sequence_is_padded_to_the_longest(enabled: bool) -> None:
    saved: list[Tensor] = []
    lengths, longest = (40,) * 50 + (500,), 512
    with (
        use_kernels(enabled),
        saved_tensors_hooks(lambda tensor: saved.append(tensor) or tensor, lambda tensor: tensor),
    ):
        ops.attention(*inputs_of(lengths), sequences_of(lengths, longest), num_heads=HEADS, dropout=MASK)
    padded = len(lengths) * HEADS * longest**2 * 4
    assert sum(each.nbytes for each in saved) < padded / 8


@pytest.mark.parametrize(
    ("head_size", "dtype", "expected"),
    [
        (64, torch.bfloat16, True),
        (24, torch.bfloat16, True),
        (12, torch.bfloat16, False),
        (256, torch.bfloat16, False),
        (64, torch.float32, False),
    ],
)
def test_gpu_kernels_support_bf16_and_the_head_sizes_of_flash_attention(monkeypatch, head_size, dtype, expected):
    monkeypatch.setattr(cuda_attention, "has_kernels", lambda device: True)
    assert cuda_attention.is_supported(torch.zeros(3, 2 * head_size, dtype=dtype), 2) == expected
