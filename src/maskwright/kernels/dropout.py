"""Dropout whose masks are a function of a key, not of a generator's state (Srivastava et al. 2014).

The mask of a value is a hash of (the micro-batch's key, the number of the dropout site in the model, the value's
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

from maskwright.core.randomness import SPLITMIX_MULTIPLIERS, SPLITMIX_STEP

_RANDOM_VALUES = 1 << 16
_TABLE_COLUMNS = 512
# As the signed integers that tensors hold.
_STEP = SPLITMIX_STEP - (1 << 64)
_MIX_1, _MIX_2 = (multiplier - (1 << 64) for multiplier in SPLITMIX_MULTIPLIERS)
_POSITIVE = (1 << 63) - 1


class DropoutKey:
    """Key of all dropout masks of one forward pass.

    Args:
        key: In [0, 2**63), or a scalar int64 tensor on the device (in CUDA graphs); None disables dropout.
        device: Device of the values.
        num_sites: Sites whose random numbers are generated together where their tables are of one size, since a table
            takes some twenty small operations. Others are generated one by one.
    """

    def __init__(self, key: int | Tensor | None, device: torch.device, num_sites: int = 0) -> None:
        self.number = key if isinstance(key, int) else None
        self._key = torch.full((), key, dtype=torch.int64, device=device) if isinstance(key, int) else key
        self._num_sites = num_sites
        self._tables: dict[int, Tensor] = {}

    def mask(self, site: int, rate: float) -> "DropoutMask | None":
        """Return the mask of a site, independent of other sites'; None where nothing is dropped.

        The rate, in [0, 1), is rounded to a multiple of 2**-16 below 1.
        """
        threshold = min(round(rate * _RANDOM_VALUES), _RANDOM_VALUES - 1)
        return None if self._key is None or not threshold else DropoutMask(self, site, threshold)

    def table(self, site: int, num_rows: int) -> Tensor:
        """Return the column numbers, then the row numbers of a site's table. Shape (512 + num_rows,), int64."""
        assert self._key is not None
        if site >= self._num_sites:
            return _tables(self._key, range(site, site + 1), num_rows)[0]
        if num_rows not in self._tables:
            self._tables[num_rows] = _tables(self._key, range(self._num_sites), num_rows)
        return self._tables[num_rows][site]


@dataclass(frozen=True, slots=True)
class DropoutMask:
    """The mask of one site: a table of 64-bit random numbers, one for four values.

    Each row and each column of the table has a well-mixed odd number (SplitMix64 over a counter: Steele, Lea and Flood
    2014); an entry is the product of its row's and its column's, mixed once more so that its high and low bits meet.
    That is four passes over the table instead of twelve; the tests check rows, columns, lanes and rectangles.
    `threshold` is the share dropped, in units of 2**-16.
    """

    key: DropoutKey
    site: int
    threshold: int

    @property
    def rate(self) -> float:
        return self.threshold / _RANDOM_VALUES

    @property
    def scale(self) -> float:
        """Factor of the values that are kept: 1 / (1 - rate)."""
        return _RANDOM_VALUES / (_RANDOM_VALUES - self.threshold)

    @property
    def keep_threshold(self) -> int:
        """The smallest random bits that are kept, of [-2**15, 2**15)."""
        return self.threshold - _RANDOM_VALUES // 2

    @property
    def seed(self) -> int:
        """Seed for kernels that generate their own masks; only for keys that are known on the host."""
        assert self.key.number is not None, "a CUDA graph would replay one mask"
        return (self.key.number + (self.site + 1) * _STEP) % (1 << 63)

    def random_table(self, num_values: int) -> tuple[Tensor, Tensor]:
        """Return the numbers of the table's rows (num_values / 2048, rounded up) and columns (512,), int64."""
        table = self.key.table(self.site, -(-num_values // (4 * _TABLE_COLUMNS)))
        return table[_TABLE_COLUMNS:], table[:_TABLE_COLUMNS]

    def random_bits(self, shape: tuple[int, ...]) -> Tensor:
        """Return 16 uniform random bits per position, as integers in [-2**15, 2**15)."""
        rows, columns = self.random_table(math.prod(shape))
        numbers = rows[:, None] * columns
        numbers ^= numbers >> 32
        numbers *= _MIX_1
        return numbers.view(torch.int16).view(-1)[: math.prod(shape)].view(shape)

    def kept(self, random_bits: Tensor, dtype: torch.dtype) -> Tensor:
        """Return 1 where a value is kept, else 0, as floating point: multiplying by bool is several times slower."""
        result = torch.empty(random_bits.shape, dtype=dtype, device=random_bits.device)
        return torch.ge(random_bits, self.keep_threshold, out=result)

    def factors(self, shape: tuple[int, ...]) -> Tensor:
        """Return the factors of the values: 0 or 1 / (1 - rate), fp32."""
        return self.kept(self.random_bits(shape), torch.float32).mul_(self.scale)


def kernel_arguments(mask: DropoutMask | None, num_values: int) -> tuple[Tensor | None, Tensor | None, int, float]:
    """Return a mask's random table, `keep_threshold` and `scale` for kernels; without a mask None, None, 0 and 1."""
    if mask is None:
        return None, None, 0, 1.0
    return *mask.random_table(num_values), mask.keep_threshold, mask.scale


def dropout(values: Tensor, mask: DropoutMask | None) -> Tensor:
    """Zero some values and scale the others so that the expectation stays; each result is rounded once. Any shape."""
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
        random_bits = mask.random_bits(values.shape)
        ctx.save_for_backward(random_bits)
        ctx.mask, ctx.dtype = mask, values.dtype
        kept = mask.kept(random_bits, residual.dtype)
        return torch.addcmul(residual, kept, values.to(residual.dtype), value=mask.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        (random_bits,), (grad,) = ctx.saved_tensors, grads
        factors = ctx.mask.kept(random_bits, grad.dtype).mul_(ctx.mask.scale)
        return factors.mul_(grad).to(ctx.dtype), grad, None


def _tables(key: Tensor, sites: range, num_rows: int) -> Tensor:
    # The columns' numbers, then the rows', so that a value's bits do not depend on how many values follow.
    device = key.device
    steps = torch.arange(sites.start + 1, sites.stop + 1, device=device).mul_(_STEP).bitwise_and_(_POSITIVE)
    streams = _mix_(steps + key)
    counter = torch.arange(_TABLE_COLUMNS + num_rows, device=device).mul_(_STEP)
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
