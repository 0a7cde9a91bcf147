"""NumPy values passed between packages: frozen dataclasses of flat arrays.

T tokens, B sequences (instances), S sentences, D documents, U units, M targets, N planned instances.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from maskwright.core.flat_arrays import concatenated_ranges

IntArray = NDArray[Any]
BoolArray = NDArray[np.bool_]

FamilyName: TypeAlias = str
"""A family of Hugging Face classes by its `model_type`: a key of `FAMILIES`."""

MatmulPrecision = Literal["fp32", "bf16", "int8"]
"""Precision of the inputs of matrix multiplications; sums are fp32 or int32."""
HeadKind = Literal["sequence", "token", "span", "choice"]
"""Outputs of a head for labeled examples: sequences (class ...ForSequenceClassification), tokens
(...ForTokenClassification), start and end of an answer (...ForQuestionAnswering), options (...ForMultipleChoice).
What a new one needs: docs/architecture.md, "How do I add a task?"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecialTokens:
    """The ids and names of the special tokens.

    Attributes:
        pad, unk, cls, sep, mask: Token ids.
        vocab_size: Number of entries, i.e. ids are 0..vocab_size-1.
        names: (pad, unk, cls, sep, mask) as text, e.g. ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]").
    """

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int
    vocab_size: int
    names: tuple[str, str, str, str, str]


@dataclass(frozen=True, slots=True)
class Documents:
    """The sentences of each document and the tokens of each sentence, as ranges of one token stream.

    Sentence s holds tokens [sentence_ends[s-1], sentence_ends[s]) (from 0 for s = 0); a document is the
    sentences [first[d], last[d]). A subset (held-out, one source) shares `sentence_ends`.

    Attributes:
        sentence_ends: Shape (S,), int64, ascending; may be a memory map.
        first: Shape (D,), index of each document's first sentence.
        last: Shape (D,), one past each document's last sentence.
    """

    sentence_ends: IntArray
    first: IntArray
    last: IntArray

    def __len__(self) -> int:
        return len(self.first)

    def pick(self, documents: IntArray) -> "Documents":
        """Return the given documents, in the given order (indices or a boolean mask, shape (D,))."""
        return Documents(self.sentence_ends, self.first[documents], self.last[documents])

    def bounds(self, sentence: IntArray) -> IntArray:
        """Return the token offset where each sentence begins; `bounds(last)` is where a document ends."""
        sentence = np.asarray(sentence)
        if not sentence.size:
            return np.zeros(sentence.shape, dtype=np.int64)
        return np.where(sentence == 0, 0, self.sentence_ends[np.maximum(sentence - 1, 0)])

    @property
    def num_tokens(self) -> int:
        return int((self.bounds(self.last) - self.bounds(self.first)).sum())


class AnnotatedTokens(NamedTuple):
    """Ranges of a token stream, concatenated.

    Attributes:
        ids: Shape (T,), int32.
        word_starts: Shape (T,), True where a token begins a word.
        span_starts: For each span kind that the text carries ("phrase", "entity"), shape (T,), True
            where a token begins a span of that kind; outside phrases and entities a word is the unit.
    """

    ids: IntArray
    word_starts: BoolArray
    span_starts: Mapping[str, BoolArray] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The tokens of each instance of one epoch: one row per instance.

    A row has a first text [first_start, first_end) and, for pairs, a second text [second_start, second_end)
    (both 0 for single texts), as offsets into the corpus's token stream.

    Attributes:
        first_start, first_end, second_start, second_end: Shape (N,), int64.
        pair_labels: Shape (N,), int8: 0 = in order / really next, 1 = swapped / random, -1 = no pair.
    """

    first_start: IntArray
    first_end: IntArray
    second_start: IntArray
    second_end: IntArray
    pair_labels: IntArray

    def __len__(self) -> int:
        return len(self.first_start)

    def rows(self, index: IntArray) -> "Plan":
        """Return the given rows, in the given order."""
        return Plan(**{column.name: getattr(self, column.name)[index] for column in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Instances:
    """A packed batch of sequences with special tokens, not masked yet.

    Attributes:
        ids: Shape (T,), int32, token ids.
        segment_ids: Shape (T,), int8, 0 or 1.
        word_starts: Shape (T,), True where a token begins a word. Special tokens are words of their own.
        special: Shape (T,), True at special tokens that the input format added ([CLS], [SEP]).
        cu_seqlens: Shape (B+1,), int64, token offset of each sequence, first 0, last T.
        pair_labels: Shape (B,), int8, as in `Plan`.
        span_starts: As in `AnnotatedTokens`; special tokens are units of their own.
    """

    ids: IntArray
    segment_ids: IntArray
    word_starts: BoolArray
    special: BoolArray
    cu_seqlens: IntArray
    pair_labels: IntArray
    span_starts: Mapping[str, BoolArray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.cu_seqlens) - 1

    @property
    def lengths(self) -> IntArray:
        """Tokens of each sequence, special tokens included. Shape (B,)."""
        return np.diff(self.cu_seqlens)

    @property
    def sequence_ids(self) -> IntArray:
        """The sequence of each token. Shape (T,)."""
        return np.repeat(np.arange(len(self)), self.lengths)


@dataclass(frozen=True, slots=True)
class Selection:
    """The units selected for prediction: half-open token ranges, ascending, without overlap.

    Attributes:
        starts: Shape (U,), int64, flat token offsets.
        ends: Shape (U,), int64, one past each unit's last token.
    """

    starts: IntArray
    ends: IntArray

    @property
    def positions(self) -> IntArray:
        """All selected token offsets, ascending. Shape (M,)."""
        return concatenated_ranges(self.starts, self.ends - self.starts)

    def merge_adjacent(self) -> "Selection":
        apart = self.starts[1:] != self.ends[:-1]
        some = np.ones(min(1, len(self.starts)), dtype=bool)
        return Selection(self.starts[np.concatenate([some, apart])], self.ends[np.concatenate([apart, some])])

    @property
    def units(self) -> IntArray:
        """The unit of each selected token, aligned with `positions`. Shape (M,)."""
        return np.repeat(np.arange(len(self.starts)), self.ends - self.starts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """Instances of the original text, the selected units, and the ids after replacement: shape (T,), int32."""

    instances: Instances
    selection: Selection
    corrupted: IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """The targets of one objective in a packed batch.

    Attributes:
        positions: Shape (M,), int64: token offsets (token objectives) or sequence numbers (pair objectives).
        labels: Shape (M,), int64.
        extra: Further values, aligned with the targets (e.g. the position within a span).
        anchors: Further token offsets, aligned with the targets, each in the same sequence as its target (e.g. the
            boundaries of a span).
    """

    positions: IntArray
    labels: IntArray
    extra: dict[str, IntArray] = field(default_factory=dict)
    anchors: dict[str, IntArray] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """The number of predictions: the loss's denominator."""
        return len(self.labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadShape:
    """The dimensions of an encoder that its heads depend on.

    Attributes:
        hidden_size: H, width of the hidden states.
        embedding_size: E, width of the word embeddings that the output layer is tied to.
        vocab_size: V, rows of the word embeddings.
        hidden_activation: A name for `kernels.activations.activation`.
        layer_norm_eps: Epsilon of the head's LayerNorm.
        norm_bias, dense_bias: Whether LayerNorm and dense layer of the masked-token head have biases.
    """

    hidden_size: int
    embedding_size: int
    vocab_size: int
    hidden_activation: str
    layer_norm_eps: float
    norm_bias: bool = True
    dense_bias: bool = True
