"""Dropout whose masks are a function of a key, not of a generator's state (Srivastava et al. 2014).

The mask of a value is a hash of (the micro-batch's key, the number of the call within the forward pass, the
value's position). So a resumed run, a run on another number of ranks and a recomputed forward pass drop the
same values, on every device. The hash is made of plain integer tensor operations, which use all cores of a
CPU, run on every device and cost a fraction of PyTorch's own sequential Bernoulli generator.
"""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

_STEPS = 1 << 16
_COLUMNS = 512
# The constants of SplitMix64 and of its finaliser, as the signed integers that tensors hold.
_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_MIX_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX_2 = 0x94D049BB133111EB - (1 << 64)
_POSITIVE = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class DropoutKey:
    """The key of one micro-batch's masks.

    Attributes:
        number: The key, in [0, 2**63).
        tensor: The same as a scalar int64 tensor on the device of the values.
        table: The numbers of the first calls, made at once (`with_table`); None makes each call's when it comes.
    """

    number: int
    tensor: Tensor
    table: Tensor | None = None

    @classmethod
    def on(cls, device: torch.device, number: int) -> "DropoutKey":
        """Make a key for values on a device."""
        return cls(number, torch.full((), number, dtype=torch.int64, device=device))

    def with_table(self, calls: int, most_values: int) -> "DropoutKey":
        """Return the key with the numbers of many calls beside it: small operations have their price.

        Args:
            calls: How many, the first ones of the forward pass.
            most_values: Values in the largest.
        """
        return replace(self, table=_numbers(self.tensor, range(calls), -(-most_values // (4 * _COLUMNS))))


def dropout(values: Tensor, rate: float, key: DropoutKey | None, call: int) -> Tensor:
    """Set a share of the values to 0 and scale the others so that the expectation stays.

    Args:
        values: Any shape, floating point.
        rate: Share dropped, in [0, 1), rounded to a multiple of 2**-16.
        key: The micro-batch's key; None drops nothing.
        call: Number of this call within the forward pass: different calls have independent masks.

    Returns:
        A tensor like `values`; `values` itself where nothing is dropped.
    """
    threshold = round(rate * _STEPS)
    if key is None or threshold == 0:
        return values
    dropped: Tensor = _Dropout.apply(  # type: ignore[no-untyped-call]
        values, random_bits(values.shape, key, call), threshold
    )
    return dropped


def dropout_add(values: Tensor, residual: Tensor, rate: float, key: DropoutKey | None, call: int) -> Tensor:
    """Return `residual + dropout(values)` without writing the dropped values to memory first.

    Args:
        values: Any shape, floating point.
        residual: The same shape.
        rate: As in `dropout`.
        key: As in `dropout`.
        call: As in `dropout`.
    """
    threshold = round(rate * _STEPS)
    if key is None or threshold == 0:
        return residual + values
    added: Tensor = _DropoutAdd.apply(  # type: ignore[no-untyped-call]
        values, residual, random_bits(values.shape, key, call), threshold
    )
    return added


@dataclass(frozen=True, slots=True)
class RandomWords:
    """What random bits are made of: a table of 64-bit words, four positions a word.

    Each row and each column of the table has a well mixed odd number (SplitMix64 over a counter: Steele, Lea and Flood
    2014); a word is the product of its row's and its column's, scrambled once more so that its high and low bits meet.
    That is four passes over the words instead of twelve; the tests look at rows, columns, lanes and rectangles of the
    table.

    Attributes:
        rows: The numbers of rows, int64.
        columns: The numbers of columns. Shape (512,), int64.
    """

    rows: Tensor
    columns: Tensor

    @classmethod
    def of(cls, shape: torch.Size, key: DropoutKey, call: int) -> "RandomWords":
        """Return the words for values of a shape (see `random_bits`)."""
        num_rows = -(-math.prod(shape) // (4 * _COLUMNS))
        if key.table is None:
            (numbers,) = _numbers(key.tensor, range(call, call + 1), num_rows)
        else:
            numbers = key.table[call]
            assert len(numbers) >= _COLUMNS + num_rows, "a table has room for the values of every call"
        return cls(numbers[_COLUMNS : _COLUMNS + num_rows], numbers[:_COLUMNS])

    @staticmethod
    def limits(rate: float) -> tuple[int, float]:
        """Return the least bits, as integers, that are not dropped at a rate, and what is kept is scaled by."""
        threshold = round(rate * _STEPS)
        return _least(threshold), _scale(threshold)


def random_bits(shape: torch.Size, key: DropoutKey, call: int) -> Tensor:
    """Return 16 uniform random bits per position, as integers in [-2**15, 2**15).

    Args:
        shape: Shape of the result.
        key: The micro-batch's key; the result is on its device.
        call: Number of the call within the forward pass.
    """
    table = RandomWords.of(shape, key, call)
    words = table.rows[:, None] * table.columns
    words ^= words >> 32
    words *= _MIX_1
    return words.view(torch.int16).view(-1)[: math.prod(shape)].view(shape)


def dropout_factors(shape: torch.Size, rate: float, key: DropoutKey, call: int) -> Tensor:
    """Return what `dropout` multiplies the values by: 0 or 1 / (1 - rate). Shape as given, float32."""
    threshold = round(rate * _STEPS)
    return _kept(random_bits(shape, key, call), threshold, torch.float32).mul_(_scale(threshold))


def sign_dropped_(values: Tensor, rate: float, key: DropoutKey, call: int) -> float:
    """Give a minus sign, in place, to the values that `dropout` drops, and return what the others are scaled by.

    So numbers that are never negative say themselves which of them are dropped: `kept_of_signed` gives the
    dropped form, their absolute values the whole one, and no mask is stored beside them.

    Args:
        values: Any shape, contiguous, floating point, none below 0.
        rate: As in `dropout`.
        key: As in `dropout`.
        call: As in `dropout`.
    """
    threshold = round(rate * _STEPS)
    if threshold:
        numbers = _as_integers(values)
        signs = torch.empty_like(numbers)
        torch.lt(random_bits(values.shape, key, call), _least(threshold), out=signs)
        numbers |= signs.bitwise_left_shift_(8 * values.itemsize - 1)
    return _scale(threshold)


def kept_of_signed(values: Tensor) -> Tensor:
    """Return values with 0 in place of those that bear a sign (see `sign_dropped_`).

    So does what is no number, if it bears one; the gradients then are none either, and a step is refused by these.
    """
    # Whatever bears a sign is a negative integer; in half precision integers are compared in a quarter of the time.
    return _as_integers(values).clamp_min(0).view(values.dtype)


@contextlib.contextmanager
def seeded_kernels(key: DropoutKey | None, call: int) -> Iterator[None]:
    """Let kernels that draw their own masks draw them by the key; the generator is put back after."""
    if key is None:
        yield
        return
    seed = (key.number + (call + 1) * _GOLDEN) % (1 << 63)
    device = key.tensor.device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else [], enabled=True):
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        else:
            torch.default_generator.manual_seed(seed)
        yield


def _numbers(key: Tensor, calls: range, num_rows: int) -> Tensor:
    # Of each call the columns' numbers, then the rows': so a value's bits do not hang on how many come after it.
    device = key.device
    steps = torch.arange(calls.start + 1, calls.stop + 1, device=device).mul_(_GOLDEN).bitwise_and_(_POSITIVE)
    streams = _mix_(steps + key)
    counter = torch.arange(_COLUMNS + num_rows, device=device).mul_(_GOLDEN)
    return _mix_(counter + streams[:, None]).bitwise_or_(1)


def _mix_(z: Tensor) -> Tensor:
    # Tensors have no unsigned shift. In the first two steps the copied sign only makes a number and its
    # complement meet, which no two counters of one stream are; in the last it would hold the top bit at 0.
    z ^= z >> 30
    z *= _MIX_1
    z ^= z >> 27
    z *= _MIX_2
    z ^= (z >> 31) & ((1 << 33) - 1)
    return z


def _kept(bits: Tensor, threshold: int, dtype: torch.dtype) -> Tensor:
    # 1 where a value is kept, else 0, written as floating point at once: multiplying by it is several times
    # faster than by a boolean mask.
    kept = torch.empty(bits.shape, dtype=dtype, device=bits.device)
    return torch.ge(bits, _least(threshold), out=kept)


def _as_integers(values: Tensor) -> Tensor:
    # The same memory: the sign is the highest bit of either.
    return values.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[values.itemsize])


def _dropped(values: Tensor, bits: Tensor, threshold: int) -> Tensor:
    kept = _kept(bits, threshold, values.dtype)
    return torch.addcmul(kept.new_zeros(()), kept, values, value=_scale(threshold), out=kept)


def _least(threshold: int) -> int:
    # Bits are signed; those below are dropped.
    return threshold - _STEPS // 2


def _scale(threshold: int) -> float:
    return _STEPS / (_STEPS - threshold)


class _Dropout(torch.autograd.Function):
    """Dropout that keeps two bytes per value for the backward pass, whatever the precision."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, bits: Tensor, threshold: int) -> Tensor:
        ctx.save_for_backward(bits)
        ctx.threshold = threshold
        return _dropped(values, bits, threshold)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (bits,) = ctx.saved_tensors
        (gradient,) = gradients
        return _dropped(gradient, bits, ctx.threshold), None, None


class _DropoutAdd(torch.autograd.Function):
    """The same, added to a residual."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, residual: Tensor, bits: Tensor, threshold: int) -> Tensor:
        ctx.save_for_backward(bits)
        ctx.threshold = threshold
        ctx.dtype = values.dtype
        kept = _kept(bits, threshold, residual.dtype)
        return torch.addcmul(residual, kept, values.to(residual.dtype), value=_scale(threshold))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (bits,) = ctx.saved_tensors
        (gradient,) = gradients
        return _dropped(gradient, bits, ctx.threshold).to(ctx.dtype), gradient, None, None
