"""Examples as token sequences: `[CLS] A [SEP]`, `[CLS] A [SEP] B [SEP]`, with their targets, and batches of them.

Sequences equal those of transformers' tokenizers: one separator between the texts of a pair (Devlin et al. 2019, figure
2) or two, `<s> A </s></s> B </s>` (Liu et al. 2019), as the tokenizer's own files say.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskwright.core.batching import by_length
from maskwright.core.errors import DataError
from maskwright.core.flat_arrays import concatenated_ranges
from maskwright.core.randomness import Permutation, integer_key
from maskwright.core.ranges import Ranges, ranges_of
from maskwright.core.tensors import PackedBatch
from maskwright.core.types import AnnotatedTokens, BoolArray, IntArray, Plan
from maskwright.data.tokenizers.stream_encoder import StreamEncoder
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.model.config import EncoderConfig
from maskwright.pretext.formats.base import assemble
from maskwright.training.steps.batches import StepBatch
from maskwright.training.steps.sampler import Cursor, SourcePosition
from maskwright.training.steps.transfer import move


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of texts as sequences.

    `max_length` includes special tokens; `segments`: text B of a pair is segment 1; `windows`: texts that are too long
    are read in windows instead of truncated (prediction of `tasks.texts`).
    """

    tokenizer: Tokenizer
    max_length: int
    segments: bool
    windows: bool = False

    @classmethod
    def of(cls, config: EncoderConfig, tokenizer: Tokenizer, max_length: int) -> Self:
        """Return the layout of a model: text B is segment 1 if the encoder has segments and transformers uses them.

        The latter depends on the tokenizer: RoBERTa's byte-level one gives both texts segment 0.
        """
        backend = tokenizer.backend
        uses_segments = backend.post_processor is None or 1 in backend.encode("a", "a").type_ids
        return cls(tokenizer, max_length, config.type_vocab_size > 1 and uses_segments)

    @property
    def separators(self) -> int:
        """Number of separators between the texts of a pair: 1 (BERT) or 2 (RoBERTa)."""
        specials = self.tokenizer.backend.num_special_tokens_to_add(True)
        if specials:
            return int(specials) - 2
        # A tokenizer without a post-processor: use the layout of its kind's family.
        return 2 if self.tokenizer.kind == "byte_bpe" else 1

    def text_tokens(self, *, pair: bool) -> int:
        """Return how many tokens of text fit into a sequence; DataError if there is none for each text."""
        specials, needed = (2 + self.separators, 2) if pair else (2, 1)
        if self.max_length - specials < needed:
            raise DataError(
                f"sequences of {self.max_length} tokens are too short: {specials} are special tokens",
                allowed=f"a length of at least {specials + needed}",
                hint="Raise max_length.",
            )
        return self.max_length - specials


def encode_distinct(texts: Iterable[str], tokenizer: Tokenizer) -> tuple[IntArray, Ranges]:
    """Tokenize texts, each distinct one once; return flat token ids, and the range of each text."""
    numbers: dict[str, int] = {}
    of_text = np.array([numbers.setdefault(text, len(numbers)) for text in texts], dtype=np.int64)
    stream = StreamEncoder(tokenizer).encode(list(numbers))
    return stream.ids, ranges_of(stream.lengths).pick(of_text)


def cut_pairs(first: IntArray, second: IntArray, most: IntArray) -> tuple[IntArray, IntArray]:
    """Return the truncated lengths of both texts (B,), (B,): the longer text loses its last token until both fit.

    Of texts of equal length the second loses a token (google-research/bert, run_classifier.py, `_truncate_seq_pair`).
    transformers' "longest_first" differs by one token if both are truncated and `most` is odd: there the longer text
    keeps one more.

    Lengths have shape (B,), that of a single text's second is 0; `most`, (B,) or (), is the maximum of both together.
    """
    surplus = np.maximum(first + second - most, 0)
    # First the longer text shrinks to the other's length; then both lose tokens in turn, the second first.
    evened = np.minimum(np.abs(first - second), surplus)
    turns = surplus - evened
    first_longer = first > second
    return (
        first - np.where(first_longer, evened, 0) - turns // 2,
        second - np.where(first_longer, 0, evened) - (turns + 1) // 2,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """Sequences of many examples, flat, with targets.

    A *unit* is one training or scoring item: one sequence; for multiple choice the sequences of all options of a
    question, which stay together. A long context or text may give several units (windows) of one example.

    ids: (T,), special tokens in place.  segment_ids: (T,), 1 in B and its separator if the encoder uses segments, else
    0.
    cu_seqlens: (B+1,), where sequences begin and end.
    units: (B,), unit of each sequence, ascending from 0 without gaps.  examples: (U,), example of each unit, ascending.
    positions: (M,), ascending, tokens at which a tag is predicted; None for other tasks.
    words: (M,), ascending, the words that they tag, numbered through all examples; None for other tasks.
    labels: Targets or None. int64 (U,) a class or an option; float32 (U,) a number; float32 (U, C) of 0 and 1,
        multi-label; int64 (M,) tags; int64 (U, 2) first and last token of the answer within the sequence.
    offsets: (T, 2), characters [start, end) of the context that each token covers, -1 for tokens outside of it; None
        for tasks without answers.
    widest: (T,), whether no other window gives a token of the context more context; None in training, and for tasks
        without answers.
    truncated: (K,), ascending, the truncated examples.
    """

    ids: IntArray
    segment_ids: IntArray
    cu_seqlens: IntArray
    units: IntArray
    examples: IntArray
    positions: IntArray | None = None
    words: IntArray | None = None
    labels: NDArray | None = None  # type: ignore[type-arg]
    offsets: NDArray | None = None  # type: ignore[type-arg]
    widest: BoolArray | None = None
    truncated: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def num_units(self) -> int:
        """U."""
        return len(self.examples)

    def by_sequence(self, values: IntArray) -> list[IntArray]:
        """Split values of all tokens (T,) into those of each sequence."""
        return [values[start:end] for start, end in itertools.pairwise(self.cu_seqlens)]


def lay_out(
    ids: IntArray, first: Ranges, second: Ranges | None, layout: Layout, pairs: BoolArray | None = None
) -> Features:
    """Lay out sequences with special tokens, one unit of one example each.

    `first` and `second` are text A and B of each sequence as ranges of `ids`; B is None if there are no pairs, and is
    ignored where `pairs`, shape (B,), is false.
    """
    nothing = np.zeros(len(first.starts), dtype=np.int64)
    pairs = np.full(len(nothing), second is not None) if pairs is None else pairs
    laid = assemble(
        Plan(
            first_start=first.starts,
            first_end=first.ends,
            second_start=nothing if second is None else np.where(pairs, second.starts, 0),
            second_end=nothing if second is None else np.where(pairs, second.ends, 0),
            pair_labels=nothing,
        ),
        lambda starts, ends: AnnotatedTokens(
            ids[concatenated_ranges(starts, ends - starts)], np.ones(int((ends - starts).sum()), dtype=np.bool_)
        ),
        layout.tokenizer.special_tokens,
        num_separators_between=layout.separators,
        is_pair=pairs,
    )
    return Features(
        ids=laid.ids,
        segment_ids=laid.segment_ids if layout.segments else np.zeros_like(laid.segment_ids),
        cu_seqlens=laid.cu_seqlens,
        units=np.arange(len(pairs), dtype=np.int64),
        examples=np.arange(len(pairs), dtype=np.int64),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureBatch:
    """Some units of `Features`, packed for the encoder; sequences are ordered by unit and option.

    `unit_numbers`, (U',), NumPy: indices of these units in the features, ascending. `units`, (B,): unit of each
    sequence, from 0 within this batch. `positions`, (M',), and `labels` as in `Features`, on the device.
    """

    batch: PackedBatch
    unit_numbers: IntArray
    units: Tensor
    positions: Tensor | None
    labels: Tensor | None


class Units(NamedTuple):
    """The units of a step, shape (U',), and the epochs when they have been used, as a fraction."""

    numbers: NDArray[np.int64]
    epochs: float


class ShuffledUnits:
    """The order of units in training: each epoch is a keyed shuffle, split into steps; the last one may be smaller.

    The position in a cursor is (epoch, units of it that were used).
    """

    def __init__(self, num_units: int, seed: int) -> None:
        self.num_units, self.seed = num_units, seed
        self._order = (-1, np.arange(num_units))

    def start(self) -> Cursor:
        return Cursor(0, (SourcePosition(),))

    def next_epoch(self, cursor: Cursor) -> Cursor:
        return Cursor(cursor.num_read, (SourcePosition(cursor.positions[0].epoch + 1, 0),), cursor.epochs)

    def read(self, cursor: Cursor, count: int) -> tuple[Units, Cursor]:
        """Return the next units, at most `count`, and the cursor behind them."""
        (current,) = cursor.positions
        if self._order[0] != current.epoch:
            # A whole epoch at once: shuffling 67,000 units takes only 8 times as long as 32.
            shuffle = Permutation(self.num_units, integer_key(self.seed, "fine-tuning order", current.epoch))
            self._order = (current.epoch, shuffle(np.arange(self.num_units)))
        numbers = self._order[1][current.position : current.position + count]
        used = current.position + len(numbers)
        after = SourcePosition(current.epoch + 1, 0) if used == self.num_units else SourcePosition(current.epoch, used)
        epochs = current.epoch + used / self.num_units
        return Units(numbers, epochs), Cursor(cursor.num_read + len(numbers), (after,), epochs)


class FeatureCollator:
    """Makes batches of at most `tokens` tokens; a longer unit is a batch of its own.

    `kind` is the kind of task, the name of its loss; `seed` keys dropout. The number of batches is a multiple of
    `ranks`, where that is possible.
    """

    def __init__(
        self,
        features: Features,
        *,
        tokens: int,
        device: torch.device,
        kind: str = "task",
        seed: int = 0,
        ranks: int = 1,
    ) -> None:
        self.features, self.kind, self.seed, self.ranks = features, kind, seed, ranks
        self._tokens, self._device = tokens, device
        self._lengths = np.diff(features.cu_seqlens)
        # Sequences are grouped by unit, positions by sequence: both are ranges.
        bounds = np.searchsorted(features.units, np.arange(features.num_units + 1))
        self._sequences = Ranges(bounds[:-1], bounds[1:])
        self._unit_tokens = np.diff(features.cu_seqlens[bounds])
        self._longest = np.maximum.reduceat(self._lengths, bounds[:-1]) if features.num_units else self._lengths
        self._positions: Ranges | None = None
        if features.positions is not None:
            bounds = np.searchsorted(features.positions, features.cu_seqlens)
            self._positions = Ranges(bounds[:-1], bounds[1:])

    def groups(self, units: IntArray) -> list[NDArray[np.int64]]:
        """Cut units (U',) into batches (`core.batching.by_length`)."""
        cut = by_length(self._unit_tokens[units], self._tokens, longest=self._longest[units], multiple=self.ranks)
        return [np.sort(units[group]) for group in cut]

    def batch(self, units: IntArray, *, dropout_key: int | None = None) -> FeatureBatch:
        """Make one batch of units (U',), at least one, ascending; without `dropout_key` there is no dropout."""
        features = self.features
        of_units = self._sequences.pick(units)
        sequences = of_units.tokens
        lengths = self._lengths[sequences]
        cu_seqlens = np.append(0, np.cumsum(lengths))
        first_tokens = features.cu_seqlens[sequences]
        tokens = concatenated_ranges(first_tokens, lengths)
        positions, labeled = None, units
        if self._positions is not None:
            assert features.positions is not None
            of_sequences = self._positions.pick(sequences)
            labeled = of_sequences.tokens
            positions = features.positions[labeled] + np.repeat(cu_seqlens[:-1] - first_tokens, of_sequences.lengths)

        batch = FeatureBatch(
            batch=PackedBatch.of(features.ids[tokens], features.segment_ids[tokens], lengths, dropout_key=dropout_key),
            unit_numbers=np.asarray(units, dtype=np.int64),
            units=torch.from_numpy(np.repeat(np.arange(len(units)), of_units.lengths)),
            positions=None if positions is None else torch.from_numpy(positions),
            labels=None if features.labels is None else torch.from_numpy(features.labels[labeled]),
        )
        # A copy of each tensor would wait until the GPU has finished the step before.
        return move(batch, self._device)

    def collate(self, rows: Units, step: int, share: slice = slice(None)) -> StepBatch:
        """Make the micro-batches of one optimizer step, with dropout keyed by (seed, step, micro-batch).

        A share without units gets a micro-batch without labels: all ranks must have gradients.
        """
        micro_batches = tuple(
            self.batch(group, dropout_key=integer_key(self.seed, "dropout", step, number))
            for number, group in list(enumerate(self.groups(rows.numbers)))[share]
        ) or (replace(self.batch(rows.numbers[:1]), labels=None),)
        lengths = self._lengths[self._sequences.pick(rows.numbers).tokens]
        return StepBatch(
            micro_batches=micro_batches,
            counts={self.kind: sum(len(each.labels) for each in micro_batches if each.labels is not None)},
            num_tokens=int(lengths.sum()),
            num_sequences=len(lengths),
            squared_lengths=int((lengths**2).sum()),
            key=f"seed {self.seed}, epoch {rows.epochs:.4g}",
        )
