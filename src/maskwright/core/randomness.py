"""Keyed randomness: every random choice is a pure function of (seed, purpose, epoch, index).

No generator has state, so a run that is resumed, repeated, or moved to another number of workers or ranks gets the
same numbers. The idea is fairseq's and Megatron's (a mask is a function of seed, epoch and index); the mixing function
is the SplitMix64 finalizer (Steele, Lea and Flood 2014).
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

SPLITMIX_STEP = 0x9E3779B97F4A7C15
"""SplitMix64's increment: 2**64 divided by the golden ratio, made odd."""
SPLITMIX_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
"""The two multipliers of its finalizer."""
_STEP = np.uint64(SPLITMIX_STEP)
_MIX_1, _MIX_2 = map(np.uint64, SPLITMIX_MULTIPLIERS)
_BLOCK = 1 << 16
# Four rounds are the textbook minimum, but visibly uneven below about 20 items; eight are not.
_FEISTEL_ROUNDS = 8

Ints = NDArray[Any]


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scramble 64-bit integers so that neighboring inputs give unrelated outputs (SplitMix64 finalizer)."""
    return _mix_in_place(values.astype(np.uint64, copy=True))


def _mix_in_place(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    shifted = np.empty_like(z)
    z ^= np.right_shift(z, np.uint64(30), out=shifted)
    z *= _MIX_1
    z ^= np.right_shift(z, np.uint64(27), out=shifted)
    z *= _MIX_2
    z ^= np.right_shift(z, np.uint64(31), out=shifted)
    return z


def hash_64(content: bytes | memoryview) -> int:
    """Return the first 64 bits of a BLAKE2b hash."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def keys(seed: int, purpose: str, epoch: Ints | int, index: Ints | int) -> NDArray[np.uint64]:
    """Return one 64-bit key per (epoch, index), broadcast against each other.

    Args:
        purpose: E.g. "masking". Different purposes are independent.
        epoch: Epoch, or epoch modulo the number of static copies. Shape (B,) or scalar.
        index: Instance, document or step number. Shape (B,) or scalar.
    """
    root = np.uint64(hash_64(f"{seed}\x1f{purpose}".encode()))
    with np.errstate(over="ignore"):
        level = mix(root + (np.atleast_1d(np.asarray(epoch)).astype(np.uint64) + np.uint64(1)) * _STEP)
        return mix(level + (np.atleast_1d(np.asarray(index)).astype(np.uint64) + np.uint64(1)) * _STEP)


def bits(key: NDArray[np.uint64], counter: Ints | int) -> NDArray[np.uint64]:
    """Return the `counter`-th 64-bit number of each key's stream (broadcast)."""
    with np.errstate(over="ignore"):
        return mix(key + (np.asarray(counter).astype(np.uint64) + np.uint64(1)) * _STEP)


def uniform(key: NDArray[np.uint64], counter: Ints | int) -> NDArray[np.float64]:
    """Return the `counter`-th uniform number in [0, 1) of each key's stream (broadcast), 53 bits fine."""
    return as_uniform(bits(key, counter))


def as_uniform(numbers: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Turn 64-bit numbers into numbers in [0, 1), 53 bits fine."""
    return (numbers >> np.uint64(11)).astype(np.float64) * (1.0 / (1 << 53))


def integer_key(seed: int, purpose: str, epoch: int = 0, index: int = 0) -> int:
    """Return one key as a Python int below 2**63 (for `torch.Generator.manual_seed`)."""
    return int(keys(seed, purpose, epoch, index)[0] >> np.uint64(1))


def generator(seed: int, purpose: str, epoch: int = 0, index: int = 0) -> np.random.Generator:
    """Return a keyed numpy generator for one sequential procedure.

    Construction costs about 65 microseconds: use `RandomNumbers` for whole batches, `generators` for many in a row.
    """
    return np.random.Generator(np.random.Philox(key=integer_key(seed, purpose, epoch, index)))


def generators(seed: int, purpose: str, epoch: int, count: int) -> Iterator[np.random.Generator]:
    """Yield what `generator` returns for the indices 0..count-1, at a fortieth of its cost.

    It is one object that gets the next key each time: finish with it before advancing.
    """
    source = np.random.Philox(key=0)
    fresh: Any = source.state
    shared = np.random.Generator(source)
    for begin in range(0, count, _BLOCK):
        index = np.arange(begin, min(begin + _BLOCK, count))
        for key in (keys(seed, purpose, epoch, index) >> np.uint64(1)).tolist():
            fresh["state"]["key"][0] = key
            source.state = fresh
            yield shared


@dataclass(frozen=True, slots=True)
class RandomNumbers:
    """The random numbers of a packed batch of instances, each keyed by its own (epoch, index).

    An instance gets the same numbers in any batch.

    Attributes:
        epoch: Shape (B,). Epoch, or epoch modulo the number of static copies.
        index: Shape (B,). The instance's number within its plan.
    """

    seed: int
    epoch: Ints
    index: Ints

    def keys(self, purpose: str) -> NDArray[np.uint64]:
        """Return the key of each instance's stream of numbers. Shape (B,)."""
        return keys(self.seed, purpose, self.epoch, self.index)

    def per_instance(self, purpose: str) -> NDArray[np.float64]:
        """Return one uniform number in [0, 1) per instance. Shape (B,)."""
        return uniform(self.keys(purpose), 0)

    def bits_everywhere(self, purpose: str, cu_seqlens: Ints) -> NDArray[np.uint64]:
        """Return one 64-bit integer for every token. Shape (T,).

        Args:
            cu_seqlens: Shape (B+1,), the first token of each instance, and T.
        """
        key = self.keys(purpose)
        # Counters run through the whole batch; each instance's key is reduced by its offset to compensate.
        counted = np.arange(1, cu_seqlens[-1] + 1, dtype=np.uint64)
        counted *= _STEP
        counted += np.repeat(key - cu_seqlens[:-1].astype(np.uint64) * _STEP, np.diff(cu_seqlens))
        return _mix_in_place(counted)

    def uniform_of(self, purpose: str, cu_seqlens: Ints, tokens: Ints) -> NDArray[np.float64]:
        """Return one uniform number in [0, 1) for each of some tokens, given by offsets in the batch. Shapes (K,)."""
        sequences = np.repeat(np.arange(len(cu_seqlens) - 1), np.diff(cu_seqlens))[tokens]
        return self.uniform_at(purpose, sequences, tokens - cu_seqlens[sequences])

    def uniform_at(self, purpose: str, sequences: Ints, offsets: Ints) -> NDArray[np.float64]:
        """Return one uniform number in [0, 1) for each of some tokens. Shape (K,).

        Args:
            sequences: Shape (K,), the instance of each token.
            offsets: Shape (K,), each token's position in its instance.
        """
        return uniform(self.keys(purpose)[sequences], offsets)


@dataclass(frozen=True, slots=True)
class Permutation:
    """A keyed shuffle of 0..size-1 that needs no memory: an eight-round Feistel network with cycle walking.

    `Permutation(n, key)(positions)` returns the items at those positions; any slice is available at any time, so a
    resumed run continues at once and ranks take slices of the same order.
    """

    size: int
    key: int

    def __call__(self, positions: Ints) -> NDArray[np.int64]:
        """Map positions in [0, size) to items in [0, size). Shape is kept."""
        half = max(1, (max(self.size - 1, 1).bit_length() + 1) // 2)
        shift, low = np.uint64(half), np.uint64((1 << half) - 1)
        flat = np.asarray(positions).astype(np.uint64).ravel()
        out = flat.copy()
        pending = np.arange(flat.size)
        while pending.size:
            values = out[pending]
            left, right = values >> shift, values & low
            for round_number in range(_FEISTEL_ROUNDS):
                # Each round swaps the halves and scrambles one of them with a keyed hash: a bijection.
                rounds = keys(self.key, "permutation", round_number, right)
                left, right = right, left ^ (rounds & low)
            out[pending] = (left << shift) | right
            pending = pending[out[pending] >= np.uint64(self.size)]
        return out.astype(np.int64).reshape(np.shape(positions))
