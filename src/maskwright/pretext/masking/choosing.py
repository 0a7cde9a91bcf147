"""Calls of `choosing.c`: units chosen within each sequence by plain loops; None where there is no code of ours.

Each has a twin in NumPy, which chooses the same and is what runs where there is none: `RandomOrder.first`,
`units.until_full`, `LevelMasking`, `NgramMasking` with `windows.take_windows`, `SpanMasking`, and `units.UnitEnds`.

T tokens, B sequences, U units.
"""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from maskwright.core.flat_arrays import check_keys, check_sequences, given, usable
from maskwright.core.native.library import Code
from maskwright.core.types import BoolArray, IntArray, Selection

FloatArray = NDArray[np.float64]
Keys = NDArray[np.uint64]
Way = Literal[
    "first_tokens", "units_until_full", "units_by_chance", "windows_in_order", "windows_from_left_to_right", "spans"
]


class _Choice(ctypes.Structure):
    """`Choice` of `choosing.c`."""

    _fields_ = [
        ("cu_seqlens", ctypes.c_void_p),
        ("sequences", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("begins", "maskable", "special", "keys", "budgets")),
        *((name, ctypes.c_void_p) for name in ("length_keys", "place_keys", "bounds")),
        ("num_bounds", ctypes.c_int64),
        *((name, ctypes.c_int32) for name in ("counts_words", "cuts")),
        *((name, ctypes.c_void_p) for name in ("starts", "ends")),
    ]


def _declare(found: ctypes.CDLL) -> None:
    for name in get_args(Way):
        function = getattr(found, name)
        function.argtypes, function.restype = (ctypes.c_void_p,), ctypes.c_int64
    found.order_keys.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
    found.ends_of_units.argtypes = (*(ctypes.c_void_p, ctypes.c_int64) * 2, ctypes.c_void_p)
    found.waiting_numbers.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
    found.weighted_order_keys.argtypes = (*(ctypes.c_void_p,) * 3, ctypes.c_int64, ctypes.c_void_p)
    found.order_keys.restype = found.waiting_numbers.restype = found.weighted_order_keys.restype = None
    found.ends_of_units.restype = None


# One thread, and no special instructions: see `flat_arrays`.
CODE = Code(Path(__file__).with_name("choosing.c"), {}, _declare)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What units are chosen from, and how. What a way does not read may be left out.

    Attributes:
        cu_seqlens: Shape (B+1,), as in `Instances`.
        budgets: Shape (B,), what each sequence gives up at most.
        keys: Shape (T,), sort keys of tokens as in `RandomOrder`.
        begins: Shape (T,), True where a unit or word begins.
        maskable: Shape (T,), True where a token may be chosen.
        special: Shape (T,).
        length_keys, place_keys: Shapes (B,), keys of the random numbers for lengths and places.
        bounds: Ascending; a number in [0, 1) that reaches n of them stands for a length of n + 1 words. For
            "units_by_chance" the share of units to choose.
        counts_words: Whether budgets count words instead of tokens.
        cuts: Whether a unit is cut where the budget ends.
    """

    cu_seqlens: IntArray
    budgets: IntArray | None = None
    keys: Keys | None = None
    begins: BoolArray | None = None
    maskable: BoolArray | None = None
    special: BoolArray | None = None
    length_keys: Keys | None = None
    place_keys: Keys | None = None
    bounds: FloatArray | None = None
    counts_words: bool = False
    cuts: bool = False

    def starts(self, way: Way) -> IntArray | None:
        """Return where the chosen units of one token are, by a way that chooses such. Shape (U,), int64, ascending."""
        found = self._chosen(way)
        return None if found is None else found[0]

    def selection(self, way: Way) -> Selection | None:
        """Return the units that are chosen in a way (a function of `choosing.c`)."""
        found = self._chosen(way)
        return None if found is None else Selection(*found)

    def _chosen(self, way: Way) -> tuple[IntArray, IntArray] | None:
        if (library := usable(CODE)) is None:
            return None
        if missing := [name for name in _READ[way] if getattr(self, name) is None]:
            raise ValueError(f"{way} reads {', '.join(missing)}")
        cu_seqlens = given(self.cu_seqlens, np.int64)
        check_sequences(cu_seqlens)
        size, number = int(cu_seqlens[-1]), len(cu_seqlens) - 1
        kept = {
            "cu_seqlens": cu_seqlens,
            **{
                name: _shaped(given(each, dtype), many)
                for many, types in ((size, _BY_TOKEN), (number, _BY_SEQUENCE))
                for name, dtype in types.items()
                if (each := getattr(self, name)) is not None
            },
        }
        if self.bounds is not None:
            kept["bounds"] = given(self.bounds, np.float64)
        # No sequence gives up more units than it has tokens, nor, where budgets are read, than its own.
        lengths = np.diff(cu_seqlens)
        most = int((np.clip(kept["budgets"], 0, lengths) if "budgets" in _READ[way] else lengths).sum()) + 1
        starts, ends = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64)
        call = _Choice(
            sequences=number,
            num_bounds=0 if self.bounds is None else len(self.bounds),
            counts_words=self.counts_words,
            cuts=self.cuts,
            starts=starts.ctypes.data,
            ends=ends.ctypes.data,
            **{name: each.ctypes.data for name, each in kept.items()},
        )
        count = getattr(library, way)(ctypes.addressof(call))
        if count < 0:
            raise MemoryError("no memory for a sequence's words")
        return starts[:count], ends[:count]


_READ: Mapping[Way, tuple[str, ...]] = {
    "first_tokens": ("budgets", "keys"),
    "units_until_full": ("budgets", "keys", "begins"),
    "units_by_chance": ("begins", "maskable", "place_keys", "bounds"),
    "windows_in_order": ("budgets", "keys", "begins", "maskable", "special", "length_keys", "bounds"),
    "windows_from_left_to_right": ("budgets", "keys", "begins", "maskable", "special", "length_keys", "bounds"),
    "spans": ("budgets", "begins", "maskable", "length_keys", "place_keys", "bounds"),
}
"""What each way reads besides sequences."""
_BY_TOKEN = {"keys": np.uint64, "begins": np.bool_, "maskable": np.bool_, "special": np.bool_}
_BY_SEQUENCE = {"budgets": np.int64, "length_keys": np.uint64, "place_keys": np.uint64}


def _shaped(values: IntArray, size: int) -> IntArray:
    if len(values) != size:
        raise ValueError(f"{len(values)} values for {size} tokens or sequences")
    return np.ascontiguousarray(values)


def order_keys(keys: Keys, cu_seqlens: IntArray, wanted: BoolArray) -> Keys | None:
    """Return the sort key of each token in a random order in which all wanted tokens are alike (`RandomOrder.of`).

    Args:
        keys: Shape (B,), keys of the random numbers.
        cu_seqlens: Shape (B+1,).
        wanted: Shape (T,), True at the tokens to order.

    Returns:
        Shape (T,); None where there is no code of ours.
    """
    if (library := usable(CODE)) is None:
        return None
    keys, cu_seqlens, wanted = given(keys, np.uint64), given(cu_seqlens, np.int64), given(wanted, np.bool_)
    check_keys(keys, cu_seqlens)
    order = np.empty(len(_shaped(wanted, int(cu_seqlens[-1]))), dtype=np.uint64)
    library.order_keys(keys.ctypes.data, cu_seqlens.ctypes.data, len(keys), wanted.ctypes.data, order.ctypes.data)
    return order


def weighted_order_keys(
    keys: Keys, cu_seqlens: IntArray, wanted: BoolArray, weights: FloatArray, ids: IntArray
) -> Keys | None:
    """Return the sort key of each token in a random order by weights (`RandomOrder.of`).

    Args:
        keys: Shape (B,), keys of the random numbers.
        cu_seqlens: Shape (B+1,).
        wanted: Shape (T,), True at the tokens to order.
        weights: Shape (V,), the weight of each id.
        ids: Shape (T,).

    Returns:
        Shape (T,); None where there is no code of ours.
    """
    if (library := usable(CODE)) is None:
        return None
    keys, cu_seqlens, wanted = given(keys, np.uint64), given(cu_seqlens, np.int64), given(wanted, np.bool_)
    weights, ids = given(weights, np.float64), given(ids, np.int32)
    check_keys(keys, cu_seqlens)
    size = int(cu_seqlens[-1])
    # Negative ids are large ones here.
    if len(_shaped(ids, size)) and ids.view(np.uint32).max() >= len(weights):
        raise IndexError(f"an id has no weight: there are {len(weights)}")
    numbers = np.empty(len(_shaped(wanted, size)), dtype=np.float64)
    library.waiting_numbers(keys.ctypes.data, cu_seqlens.ctypes.data, len(keys), numbers.ctypes.data)
    # By NumPy with and without our code: other logarithms round otherwise.
    np.log1p(numbers, out=numbers)
    arrays = (each.ctypes.data for each in (numbers, weights, ids))
    library.weighted_order_keys(*arrays, size, wanted.ctypes.data)
    return numbers.view(np.uint64)


def ends_of_units(begins: BoolArray, starts: IntArray) -> IntArray | None:
    """Return one past the last token of the units that begin at some tokens.

    Args:
        begins: Shape (T,), True where a unit begins.
        starts: Shape (U,), tokens at which one does.

    Returns:
        Shape (U,), int64; None where there is no code of ours.
    """
    if (library := usable(CODE)) is None:
        return None
    starts, begins = given(starts, np.int64), given(begins, np.bool_)
    ends = np.empty_like(starts)
    library.ends_of_units(begins.ctypes.data, len(begins), starts.ctypes.data, len(starts), ends.ctypes.data)
    return ends
