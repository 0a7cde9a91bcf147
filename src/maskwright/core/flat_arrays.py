"""Work on flat batches by our own C code (`flat_arrays.c`), and by NumPy where there is none: the same, bit for bit.

T tokens, B sequences, K items.
"""

import ctypes
import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskwright.core.native.library import Code
from maskwright.core.own_code import is_allowed
from maskwright.core.types import BoolArray, IntArray

Bits = NDArray[np.uint64]


def _declare(found: ctypes.CDLL) -> None:
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    found.bits_everywhere.argtypes = (pointer, pointer, number, pointer)
    found.bits_of_tokens.argtypes = (pointer, pointer, pointer, number, pointer)
    found.copy_runs.argtypes = (pointer, pointer, pointer, pointer, pointer, number, number)
    found.list_runs.argtypes = (pointer, pointer, number, pointer)
    found.widen_runs.argtypes = (pointer, number, pointer, pointer, pointer, pointer, number)
    found.unpack_runs.argtypes = (pointer, pointer, pointer, pointer, pointer, number)
    found.bits_everywhere.restype = found.bits_of_tokens.restype = None
    found.widen_runs.restype = found.unpack_runs.restype = found.copy_runs.restype = found.list_runs.restype = None


# One thread, whatever PyTorch has: batches are made while it computes on all of them. And no special instructions.
CODE = Code(Path(__file__).with_name("flat_arrays.c"), {}, _declare)


def usable(code: Code) -> ctypes.CDLL | None:
    """Return a C file's functions if they may be used and are there (see `own_code`); else NumPy does their work."""
    return code.library() if is_allowed() else None


def bits_everywhere(keys: Bits, cu_seqlens: IntArray) -> Bits | None:
    """Return each token's number in its sequence's stream of random bits; None where there is no code of ours.

    Args:
        keys: Shape (B,).
        cu_seqlens: Shape (B+1,), where each sequence's tokens begin, and T.

    Returns:
        Shape (T,).
    """
    if (library := usable(CODE)) is None:
        return None
    keys, bounds = given(keys, np.uint64), given(cu_seqlens, np.int64)
    _check_keys(keys, bounds)
    bits = np.empty(bounds[-1], dtype=np.uint64)
    library.bits_everywhere(keys.ctypes.data, bounds.ctypes.data, len(keys), bits.ctypes.data)
    return bits


def bits_of_tokens(keys: Bits, cu_seqlens: IntArray, tokens: IntArray) -> Bits | None:
    """Return what `bits_everywhere` has at some tokens; None where there is no code of ours.

    Args:
        keys: Shape (B,).
        cu_seqlens: Shape (B+1,).
        tokens: Shape (K,), ascending.

    Returns:
        Shape (K,).
    """
    if (library := usable(CODE)) is None:
        return None
    keys, bounds, tokens = given(keys, np.uint64), given(cu_seqlens, np.int64), given(tokens, np.int64)
    _check_keys(keys, bounds)
    if len(tokens) and not (tokens[0] >= 0 and tokens[-1] < bounds[-1] and (tokens[1:] >= tokens[:-1]).all()):
        raise IndexError(f"tokens do not ascend, or reach beyond the {bounds[-1]} that there are")
    bits = np.empty(len(tokens), dtype=np.uint64)
    library.bits_of_tokens(keys.ctypes.data, bounds.ctypes.data, tokens.ctypes.data, len(tokens), bits.ctypes.data)
    return bits


@dataclass(frozen=True)
class Runs:
    """Runs of items that lie at some places in one array and belong at others in another.

    Attributes:
        starts: Shape (K,), where each run begins.
        places: Shape (K,), where it is to begin. Runs do not meet there.
        lengths: Shape (K,), items in each.
    """

    starts: IntArray
    places: IntArray
    lengths: IntArray

    def copy(self, source: IntArray, into: IntArray) -> None:
        """Copy all runs from one array to another of the same type, which is changed in place. Shapes (S,), (D,)."""
        if not len(self.starts):
            return
        if (library := usable(CODE)) is None or not _plain(source, into):
            into[self._there] = source[self._here]
            return
        starts, places, lengths = self._checked(len(source), len(into))
        library.copy_runs(
            source.ctypes.data,
            starts.ctypes.data,
            into.ctypes.data,
            places.ctypes.data,
            lengths.ctypes.data,
            len(starts),
            source.itemsize,
        )

    def copy_ids(self, source: IntArray, into: IntArray) -> None:
        """Copy all runs of ids, uint16 or uint32, shape (S,), into an array of int32, shape (D,), changed in place."""
        if not len(self.starts):
            return
        if (library := usable(CODE)) is None or source.dtype not in (np.uint16, np.uint32):
            into[self._there] = source[self._here]
            return
        _check_plain(source, into, np.int32)
        starts, places, lengths = self._checked(len(source), len(into))
        library.widen_runs(
            source.ctypes.data,
            source.itemsize,
            starts.ctypes.data,
            into.ctypes.data,
            places.ctypes.data,
            lengths.ctypes.data,
            len(starts),
        )

    def unpack(self, source: NDArray[np.uint8], into: BoolArray) -> None:
        """Write all runs of bits, eight to a byte and the lowest first, into an array of bool, changed in place.

        Args:
            source: Shape (S / 8,), rounded up; S is counted in bits.
            into: Shape (D,).
        """
        if not len(self.starts):
            return
        if (library := usable(CODE)) is None or source.dtype != np.uint8 or into.dtype != np.bool_:
            here = self._here
            into[self._there] = (source[here >> 3] >> (here & 7).astype(np.uint8)) & 1
            return
        _check_plain(source, into, np.bool_)
        starts, places, lengths = self._checked(8 * len(source), len(into))
        library.unpack_runs(
            source.ctypes.data,
            starts.ctypes.data,
            into.ctypes.data,
            places.ctypes.data,
            lengths.ctypes.data,
            len(starts),
        )

    def _checked(self, size: int, room: int) -> list[IntArray]:
        starts, places, lengths = (given(each, np.int64) for each in (self.starts, self.places, self.lengths))
        if not starts.shape == places.shape == lengths.shape == (len(starts),):
            raise ValueError(f"runs with {starts.shape} starts, {places.shape} places and {lengths.shape} lengths")
        _check_runs(starts, lengths, size)
        _check_runs(places, lengths, room)
        return [starts, places, lengths]

    @functools.cached_property
    def _here(self) -> IntArray:
        return listed(self.starts, self.lengths)

    @functools.cached_property
    def _there(self) -> IntArray:
        return listed(self.places, self.lengths)


def _plain(source: IntArray, into: IntArray) -> bool:
    is_plain = source.ndim == into.ndim == 1 and source.flags.c_contiguous and into.flags.c_contiguous
    return is_plain and into.flags.writeable and source.dtype == into.dtype


def _check_plain(source: IntArray, into: IntArray, dtype: type[np.generic]) -> None:
    lie = (source.ndim == into.ndim == 1, source.flags.c_contiguous, into.flags.c_contiguous, into.flags.writeable)
    if into.dtype != dtype or not all(lie):
        raise ValueError(f"arrays are not plain rows of numbers, or what is written to is no {np.dtype(dtype)} array")


def _check_keys(keys: Bits, bounds: IntArray) -> None:
    if len(keys) != len(bounds) - 1:
        raise ValueError(f"{len(keys)} keys for {len(bounds) - 1} sequences")


def _check_runs(starts: IntArray, lengths: IntArray, size: int) -> None:
    if starts.min() < 0 or lengths.min() < 0 or (starts + lengths).max() > size:
        raise IndexError(f"a run of items reaches beyond an array of {size}")


def listed(starts: IntArray, lengths: IntArray) -> IntArray:
    """List `lengths[k]` numbers from `starts[k]` on, for every k in turn. Shape (their sum,), int64.

    Args:
        starts: Shape (K,).
        lengths: Shape (K,), at least 0.
    """
    if (library := usable(CODE)) is not None:
        starts, lengths = given(starts, np.int64), given(lengths, np.int64)
        if len(starts) != len(lengths) or (len(lengths) and lengths.min() < 0):
            raise ValueError(f"{len(starts)} starts and {len(lengths)} lengths, or one below 0")
        found = np.empty(int(lengths.sum()), dtype=np.int64)
        library.list_runs(starts.ctypes.data, lengths.ctypes.data, len(starts), found.ctypes.data)
        return found
    before = np.cumsum(lengths) - lengths
    numbers: IntArray = np.repeat(starts - before, lengths)
    numbers += np.arange(len(numbers))
    return numbers


def given(values: IntArray, dtype: type[np.generic]) -> IntArray:
    """Return values as C code takes them: of one type, one behind the other (themselves if they are so)."""
    return np.ascontiguousarray(values, dtype=dtype)
