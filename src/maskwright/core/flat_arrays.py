"""Work on flat batches by our own C code (`flat_arrays.c`), and by NumPy where there is none: the same, bit for bit.

T tokens, B sequences, K items.
"""

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskwright.core.native.library import Code
from maskwright.core.own_code import is_allowed
from maskwright.core.types import BoolArray, IntArray, Selection

Bits = NDArray[np.uint64]


def _declare(found: ctypes.CDLL) -> None:
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    found.bits_everywhere.argtypes = (pointer, pointer, number, pointer)
    found.bits_of_tokens.argtypes = (pointer, pointer, pointer, number, pointer)
    found.put_below.argtypes = (*(pointer,) * 4, number, ctypes.c_int32, *(ctypes.c_double,) * 2, ctypes.c_int32)
    found.put_below.argtypes += (pointer, pointer)
    found.put_below.restype = number
    found.widen_runs.argtypes = found.unpack_runs.argtypes = (*(pointer,) * 5, number)
    found.copy_runs.argtypes = (*(pointer,) * 5, number, number)
    found.list_runs.argtypes = (pointer, pointer, number, pointer)
    found.bits_everywhere.restype = found.bits_of_tokens.restype = found.list_runs.restype = None
    found.widen_runs.restype = found.unpack_runs.restype = found.copy_runs.restype = None


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
    check_keys(keys, bounds)
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
    check_keys(keys, bounds)
    if len(tokens) and not (tokens[0] >= 0 and tokens[-1] < bounds[-1] and (tokens[1:] >= tokens[:-1]).all()):
        raise IndexError(f"tokens do not ascend, or reach beyond the {bounds[-1]} that there are")
    bits = np.empty(len(tokens), dtype=np.uint64)
    library.bits_of_tokens(keys.ctypes.data, bounds.ctypes.data, tokens.ctypes.data, len(tokens), bits.ctypes.data)
    return bits


def put_below(
    keys: Bits,
    cu_seqlens: IntArray,
    selection: Selection,
    bounds: tuple[float, float],
    token: int,
    ids: IntArray,
    *,
    by_unit: bool,
) -> IntArray | None:
    """Put a token where selected tokens' random numbers in [0, 1) lie below a bound.

    Args:
        keys: Shape (B,).
        cu_seqlens: Shape (B+1,).
        selection: The tokens that are asked.
        bounds: The bound, and the next one.
        token: What is put there.
        ids: Shape (T,), int32, changed in place.
        by_unit: Whether the number of a unit's first token is that of all its tokens.

    Returns:
        Which selected tokens have numbers from the bound to below the next one, ascending; None, and nothing is
        changed, where there is no code of ours, or ids do not lie side by side to be written.
    """
    if (library := usable(CODE)) is None or not _plain(ids):
        return None
    keys, cu_seqlens = given(keys, np.uint64), given(cu_seqlens, np.int64)
    starts, ends = given(selection.starts, np.int64), given(selection.ends, np.int64)
    check_keys(keys, cu_seqlens)
    if len(ids) != cu_seqlens[-1] or ids.dtype != np.int32:
        raise ValueError(f"{len(ids)} ids of {ids.dtype}, but int32 ones of {cu_seqlens[-1]} tokens are asked for")
    if starts.ndim != 1 or starts.shape != ends.shape:
        raise ValueError(f"units with starts of shape {starts.shape} and ends of {ends.shape}")
    lengths = ends - starts
    if len(starts):
        ascend = lengths.min() >= 0 and (starts[1:] >= ends[:-1]).all()
        if not ascend or starts[0] < 0 or ends[-1] > len(ids):
            raise IndexError(f"units do not ascend, or reach beyond {len(ids)} tokens")
    others = np.empty(int(lengths.sum()), dtype=np.int64)
    arrays = (each.ctypes.data for each in (keys, cu_seqlens, starts, ends))
    found = library.put_below(*arrays, len(starts), by_unit, *bounds, token, ids.ctypes.data, others.ctypes.data)
    return others[:found]


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
        if (library := usable(CODE)) is None or source.dtype != into.dtype or not _copies(source, into):
            into[self._there] = source[self._here]
            return
        self._write(library.copy_runs, source, len(source), into, source.itemsize)

    def copy_ids(self, source: IntArray, into: IntArray) -> None:
        """Copy all runs of ids, uint16 or uint32, shape (S,), into an array of int32, shape (D,), changed in place."""
        if source.dtype == np.uint32:
            self.copy(source.view(np.int32), into)
            return
        if not len(self.starts):
            return
        if (library := usable(CODE)) is None or source.dtype != np.uint16:
            into[self._there] = source[self._here]
            return
        _check_plain(source, into, np.int32)
        self._write(library.widen_runs, source, len(source), into)

    def unpack(self, source: NDArray[np.uint8], into: BoolArray) -> None:
        """Write all runs of bits, eight to a byte and the lowest first, into an array of bool, changed in place.

        Args:
            source: Shape (S / 8,), rounded up; S is counted in bits.
            into: Shape (D,).
        """
        if not len(self.starts):
            return
        if (library := usable(CODE)) is None or source.dtype != np.uint8:
            here = self._here
            into[self._there] = (source[here >> 3] >> (here & 7).astype(np.uint8)) & 1
            return
        _check_plain(source, into, np.bool_)
        self._write(library.unpack_runs, source, 8 * len(source), into)

    def _write(self, function: Callable[..., None], source: IntArray, size: int, into: IntArray, *more: int) -> None:
        """Let one of our functions write all runs of an array that has `size` items into another."""
        (starts, places, lengths), read, written = self._plain_runs
        if read > size or written > len(into):
            raise IndexError(f"a run of items reaches beyond an array of {size if read > size else len(into)}")
        arrays = (source, starts, into, places, lengths)
        function(*(each.ctypes.data for each in arrays), len(starts), *more)

    @functools.cached_property
    def _plain_runs(self) -> tuple[list[IntArray], int, int]:
        """The runs as C code takes them, and how many items the arrays must have: the one read, the one written to."""
        # Copies: what is checked once must stay what it is.
        runs = [np.array(each, dtype=np.int64) for each in (self.starts, self.places, self.lengths)]
        starts, places, lengths = runs
        if not starts.shape == places.shape == lengths.shape == (len(starts),):
            raise ValueError(f"runs with {starts.shape} starts, {places.shape} places and {lengths.shape} lengths")
        return runs, _reach(starts, lengths), _reach(places, lengths)

    @functools.cached_property
    def _here(self) -> IntArray:
        return listed(self.starts, self.lengths)

    @functools.cached_property
    def _there(self) -> IntArray:
        return listed(self.places, self.lengths)


def _plain(into: IntArray) -> bool:
    """Say whether C code may write to an array: one row of numbers, one behind the other."""
    return into.ndim == 1 and into.flags.c_contiguous and into.flags.writeable


def _copies(source: IntArray, into: IntArray) -> bool:
    """Say whether C code may copy from one array to another: nor may they share memory, or hold objects of Python."""
    lies = source.ndim == 1 and source.flags.c_contiguous and not source.dtype.hasobject
    return lies and _plain(into) and not np.may_share_memory(source, into)


def _check_plain(source: IntArray, into: IntArray, dtype: type[np.generic]) -> None:
    if into.dtype != dtype or not _copies(source, into):
        raise ValueError(f"arrays are not plain rows of numbers, or what is written to is no {np.dtype(dtype)} array")


def check_keys(keys: Bits, cu_seqlens: IntArray) -> None:
    """Refuse keys that are not one of each sequence, shapes (B,) and (B+1,), and what `check_sequences` refuses."""
    if len(keys) != len(cu_seqlens) - 1:
        raise ValueError(f"{len(keys)} keys for {len(cu_seqlens) - 1} sequences")
    check_sequences(cu_seqlens)


def check_sequences(cu_seqlens: IntArray) -> None:
    """Refuse bounds of sequences, shape (B+1,), along which C code would leave its arrays.

    Raises:
        ValueError: If sequences do not follow one another from 0 on.
    """
    if not len(cu_seqlens) or cu_seqlens[0] != 0 or (cu_seqlens[1:] < cu_seqlens[:-1]).any():
        raise ValueError("sequences do not follow one another from 0 on")


def _reach(starts: IntArray, lengths: IntArray) -> int:
    """Return one past the last item of one or more runs."""
    ends = starts + lengths
    if starts.min() < 0 or lengths.min() < 0 or (ends < starts).any():
        raise IndexError("a run of items begins before its array, or has no length that can be")
    return int(ends.max())


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
