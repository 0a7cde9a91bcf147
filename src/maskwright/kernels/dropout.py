"""Dropout whose masks are a function of a key, not of a generator's state (Srivastava et al. 2014).

The mask of a value is a hash of (the micro-batch's key, the number of the call within the forward pass, the value's
position). So a resumed run and a recomputed forward pass drop the same values, on any number of ranks that cuts steps
into the same micro-batches. Devices agree except in attention, where positions depend on the implementation. The hash
consists of plain integer tensor operations, a fraction of the cost of PyTorch's sequential Bernoulli generator.
"""

import math
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_STEPS = 1 << 16
_TABLE_COLUMNS = 512
# The constants of SplitMix64 and of its finalizer, as the signed integers that tensors hold.
_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_MIX_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX_2 = 0x94D049BB133111EB - (1 << 64)
_POSITIVE = (1 << 63) - 1


class DropoutKey:
    """Key of all dropout masks of one forward pass.

    Args:
        key: In [0, 2**63), or a scalar int64 tensor on the device (in CUDA graphs); None disables dropout.
        device: Device of the values.
        num_calls: Dropout calls of the pass. The random numbers of calls of one size are made together, since a call
            takes some twenty small operations.
    """

    def __init__(self, key: int | Tensor | None, device: torch.device, num_calls: int = 0) -> None:
        self.number = key if isinstance(key, int) else None
        self._key = torch.full((), key, dtype=torch.int64, device=device) if isinstance(key, int) else key
        self._num_calls = num_calls
        self._tables: dict[int, Tensor] = {}

    def mask(self, call: int, rate: float) -> "DropoutMask | None":
        """Return the mask of a call; None where nothing is dropped.

        Args:
            call: Number of the call within the forward pass: different calls have independent masks.
            rate: Share dropped, in [0, 1), rounded to a multiple of 2**-16 below 1.
        """
        threshold = min(round(rate * _STEPS), _STEPS - 1)
        return None if self._key is None or not threshold else DropoutMask(self, call, threshold)

    def table(self, call: int, num_rows: int) -> Tensor:
        """Return the column numbers, then the row numbers of a call's table. Shape (512 + num_rows,), int64."""
        assert self._key is not None
        if call >= self._num_calls:
            return _numbers(self._key, range(call, call + 1), num_rows)[0]
        if num_rows not in self._tables:
            self._tables[num_rows] = _numbers(self._key, range(self._num_calls), num_rows)
        return self._tables[num_rows][call]


@dataclass(frozen=True, slots=True)
class DropoutMask:
    """The mask of one call: a table of 64-bit random numbers, one for four values.

    Each row and each column of the table has a well-mixed odd number (SplitMix64 over a counter: Steele, Lea and Flood
    2014); an entry is the product of its row's and its column's, mixed once more so that its high and low bits meet.
    That is four passes over the table instead of twelve; the tests check rows, columns, lanes and rectangles.

    Attributes:
        key: The key of the forward pass.
        call: Number of the call.
        threshold: Share dropped, in units of 2**-16.
    """

    key: DropoutKey
    call: int
    threshold: int

    @property
    def rate(self) -> float:
        """The share dropped."""
        return self.threshold / _STEPS

    @property
    def scale(self) -> float:
        """Factor of the values that are kept: 1 / (1 - rate)."""
        return _STEPS / (_STEPS - self.threshold)

    @property
    def least(self) -> int:
        """The smallest bits that are kept, of [-2**15, 2**15)."""
        return self.threshold - _STEPS // 2

    @property
    def seed(self) -> int:
        """Seed for kernels that generate their own masks; only for keys that are known on the host."""
        assert self.key.number is not None, "a CUDA graph would replay one mask"
        return (self.key.number + (self.call + 1) * _GOLDEN) % (1 << 63)

    def numbers(self, num_values: int) -> tuple[Tensor, Tensor]:
        """Return the numbers of the table's rows (num_values / 2048, rounded up) and columns (512,), int64."""
        table = self.key.table(self.call, -(-num_values // (4 * _TABLE_COLUMNS)))
        return table[_TABLE_COLUMNS:], table[:_TABLE_COLUMNS]

    def bits(self, shape: tuple[int, ...]) -> Tensor:
        """Return 16 uniform random bits per position, as integers in [-2**15, 2**15)."""
        rows, columns = self.numbers(math.prod(shape))
        random_numbers = rows[:, None] * columns
        random_numbers ^= random_numbers >> 32
        random_numbers *= _MIX_1
        return random_numbers.view(torch.int16).view(-1)[: math.prod(shape)].view(shape)

    def kept(self, bits: Tensor, dtype: torch.dtype) -> Tensor:
        """Return 1 where a value is kept, else 0, as floating point: multiplying by bool is several times slower."""
        return torch.ge(bits, self.least, out=torch.empty(bits.shape, dtype=dtype, device=bits.device))

    def factors(self, shape: tuple[int, ...]) -> Tensor:
        """Return the factors of the values: 0 or 1 / (1 - rate), fp32."""
        return self.kept(self.bits(shape), torch.float32).mul_(self.scale)


def dropout(values: Tensor, mask: DropoutMask | None) -> Tensor:
    """Zero some values and scale the others so that the expectation stays; each result is rounded once."""
    if mask is None:
        return values
    wide = values.float() if values.itemsize < torch.float32.itemsize else values
    return (wide * mask.factors(values.shape)).to(values.dtype)


def dropout_add(values: Tensor, residual: Tensor, mask: DropoutMask | None) -> Tensor:
    """Return `residual + dropout(values)` without writing the dropped values to memory first."""
    if mask is None:
        return residual + values
    return cast(Tensor, _DropoutAdd.apply(values, residual, mask))  # type: ignore[no-untyped-call]


class _DropoutAdd(torch.autograd.Function):
    """Saves the 16-bit random numbers, half the size of a mask in fp32; computing them again takes longer."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, residual: Tensor, mask: DropoutMask) -> Tensor:
        bits = mask.bits(values.shape)
        ctx.save_for_backward(bits)
        ctx.mask, ctx.dtype = mask, values.dtype
        return torch.addcmul(residual, mask.kept(bits, residual.dtype), values.to(residual.dtype), value=mask.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        (bits,), (grad,) = ctx.saved_tensors, grads
        factors = ctx.mask.kept(bits, grad.dtype).mul_(ctx.mask.scale)
        return factors.mul_(grad).to(ctx.dtype), grad, None


def _numbers(key: Tensor, calls: range, num_rows: int) -> Tensor:
    # The columns' numbers, then the rows', so that a value's bits do not depend on how many values follow.
    device = key.device
    steps = torch.arange(calls.start + 1, calls.stop + 1, device=device).mul_(_GOLDEN).bitwise_and_(_POSITIVE)
    streams = _mix_(steps + key)
    counter = torch.arange(_TABLE_COLUMNS + num_rows, device=device).mul_(_GOLDEN)
    return _mix_(counter + streams[:, None]).bitwise_or_(1)


def _mix_(z: Tensor) -> Tensor:
    # Tensors have no unsigned shift. In the first two steps the copied sign only maps a number and its complement to
    # the same value, and no two counters of a stream are complements; in the last it would fix the top bit at 0.
    z ^= z >> 30
    z *= _MIX_1
    z ^= z >> 27
    z *= _MIX_2
    z ^= (z >> 31) & ((1 << 33) - 1)
    return z
