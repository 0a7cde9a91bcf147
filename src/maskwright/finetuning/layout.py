"""Texts as token sequences: one or two ranges of a token stream each, special tokens put in, all sequences at once.

`[CLS] A [SEP]`, and for a pair `[CLS] A [SEP] B [SEP]` (Devlin et al. 2019, figure 2) or `<s> A </s></s> B </s>` (Liu
et al. 2019), whichever the tokenizer's own files say: the sequences are those of transformers' tokenizers.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.core.errors import DataError
from maskwright.core.types import BoolArray, IntArray
from maskwright.data.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Ranges:
    """Half-open ranges of a token stream.

    Attributes:
        starts: Shape (B,), int64.
        ends: Shape (B,), int64.
    """

    starts: IntArray
    ends: IntArray

    @property
    def lengths(self) -> IntArray:
        """Shape (B,)."""
        return self.ends - self.starts

    @property
    def tokens(self) -> NDArray[np.int64]:
        """All tokens of all ranges, one range after the other. Shape (sum of lengths,)."""
        lengths = self.lengths
        before = np.cumsum(lengths) - lengths
        tokens: NDArray[np.int64] = np.repeat(self.starts - before, lengths) + np.arange(int(lengths.sum()))
        return tokens

    def first(self, lengths: IntArray) -> "Ranges":
        """Return the ranges cut to at most these lengths, their ends lost. `lengths` has the shape (B,) or ()."""
        return Ranges(self.starts, np.minimum(self.ends, self.starts + lengths))

    def pick(self, index: IntArray) -> "Ranges":
        """Return the given ranges, in the given order (indices or a boolean mask)."""
        return Ranges(self.starts[index], self.ends[index])


@dataclass(frozen=True, slots=True)
class Sequences:
    """Laid-out sequences, flat.

    Attributes:
        ids: Shape (T,), int32, special tokens in place.
        segment_ids: Shape (T,), int8: 1 in B and its separator if segments were asked for, else 0.
        cu_seqlens: Shape (B+1,), int64.
        first_starts: Shape (B,), int64, place of A's first token (where it would be, if A is empty).
        second_starts: Shape (B,), int64, the same of B; meaningless for single texts.
    """

    ids: IntArray
    segment_ids: IntArray
    cu_seqlens: IntArray
    first_starts: IntArray
    second_starts: IntArray


def ranges_of(lengths: IntArray) -> Ranges:
    """Return the ranges of texts of these lengths that lie one after the other."""
    ends = np.cumsum(lengths, dtype=np.int64)
    return Ranges(ends - lengths, ends)


def separators_between(tokenizer: Tokenizer) -> int:
    """Return how many separators stand between the texts of a pair: 1 (BERT) or 2 (RoBERTa)."""
    specials = tokenizer.backend.num_special_tokens_to_add(True)
    if specials:
        return int(specials) - 2
    # A tokenizer file without a layout: that of the family its kind is known from.
    return 2 if tokenizer.kind == "byte_bpe" else 1


def room(tokenizer: Tokenizer, max_length: int, *, pair: bool, needed: int = 1) -> int:
    """Return how many tokens of text fit into a sequence.

    Args:
        tokenizer: Knows the layout.
        max_length: Tokens of a sequence, special ones counted.
        pair: Whether it holds two texts.
        needed: Tokens that must fit.

    Raises:
        DataError: If they do not.
    """
    specials = 2 + (separators_between(tokenizer) if pair else 0)
    if max_length - specials < needed:
        raise DataError(
            f"sequences of {max_length} tokens leave no room for text: {specials} are special tokens",
            allowed=f"a length of at least {specials + needed}",
            todo="Raise max_length.",
        )
    return max_length - specials


def cut_pairs(first: IntArray, second: IntArray, room: int) -> tuple[IntArray, IntArray]:
    """Say how many tokens of each text stay: the last token of the longer text goes until both fit.

    Of texts of equal length the second loses a token (google-research/bert, run_classifier.py, `_truncate_seq_pair`).
    transformers' "longest_first" differs by one token where both texts lose some and the room is odd: there the text
    that was longer keeps one more.

    Args:
        first: Shape (B,), tokens of each first text.
        second: Shape (B,), tokens of each second text.
        room: Tokens that both may have together.

    Returns:
        What stays of the first (B,) and of the second text (B,).
    """
    surplus = np.maximum(first + second - room, 0)
    # The longer text shrinks to the other's length; from then on they take turns, the second first.
    levelled = np.minimum(np.abs(first - second), surplus)
    turns = surplus - levelled
    first_longer = first > second
    return (
        first - np.where(first_longer, levelled, 0) - turns // 2,
        second - np.where(first_longer, 0, levelled) - (turns + 1) // 2,
    )


def lay_out(
    ids: IntArray, first: Ranges, second: Ranges | None, tokenizer: Tokenizer, *, segments: bool, pairs: BoolArray
) -> Sequences:
    """Put texts and special tokens into their places.

    Args:
        ids: The token stream that the ranges are of.
        first: A of each sequence.
        second: B of each sequence, any empty range where there is none; None if there is no pair at all.
        tokenizer: Knows the special tokens and the layout of pairs.
        segments: Whether B is segment 1.
        pairs: Shape (B,), which sequences are pairs; the B of a pair may be empty and keeps its separators.
    """
    special = tokenizer.special_tokens
    between = separators_between(tokenizer)
    first_lengths = first.lengths
    second_lengths = np.zeros_like(first_lengths) if second is None else second.lengths * pairs
    lengths = 2 + first_lengths + second_lengths + between * pairs
    cu_seqlens = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    first_starts = cu_seqlens[:-1] + 1
    second_starts = first_starts + first_lengths + between
    laid = np.full(int(cu_seqlens[-1]), special.sep, dtype=np.int32)
    laid[cu_seqlens[:-1]] = special.cls
    laid[Ranges(first_starts, first_starts + first_lengths).tokens] = ids[first.tokens]
    segment_ids = np.zeros(len(laid), dtype=np.int8)
    if second is not None:
        taken, places = second.pick(pairs), Ranges(second_starts, second_starts + second_lengths).pick(pairs)
        laid[places.tokens] = ids[taken.tokens]
        if segments:
            segment_ids[Ranges(places.starts, places.ends + 1).tokens] = 1
    return Sequences(laid, segment_ids, cu_seqlens, first_starts, second_starts)
