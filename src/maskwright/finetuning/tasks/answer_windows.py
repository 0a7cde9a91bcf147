"""Questions with their texts as sequences: a long text gives several, its windows, each beside the whole question.

The manner is that of Google's BERT (run_squad.py, `convert_examples_to_features`): windows are as long as the sequence
allows, each begins `doc_stride` tokens after the one before, the last ends with the text. (What transformers calls
`stride` is the overlap of windows instead.)
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.core.types import BoolArray, IntArray
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.finetuning.features import Features
from maskwright.finetuning.layout import Ranges, separators_between


@dataclass(frozen=True, slots=True)
class Windows:
    """Parts of texts, of all examples in order.

    Attributes:
        examples: Shape (W,), the example of each window, ascending.
        tokens: The tokens of each, as ranges of the texts' stream.
    """

    examples: IntArray
    tokens: Ranges


def cut_windows(texts: Ranges, rooms: IntArray, doc_stride: int) -> Windows:
    """Cut each example's text into windows, one at least.

    Args:
        texts: The tokens of each example's text; may be empty.
        rooms: Shape (examples,), tokens that a window may have, at least 1.
        doc_stride: Tokens from one window's beginning to the next's; no more than a window has.
    """
    steps = np.minimum(rooms, doc_stride)
    counts = 1 + -(-np.maximum(texts.lengths - rooms, 0) // steps)
    examples = np.repeat(np.arange(len(counts)), counts)
    numbers = np.arange(len(examples)) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = texts.starts[examples] + numbers * steps[examples]
    return Windows(examples, Ranges(starts, np.minimum(starts + rooms[examples], texts.ends[examples])))


def text_places(features: Features, tokenizer: Tokenizer) -> Ranges:
    """Return where in the flat tokens each sequence's window lies: after the question's separators, before the last."""
    first_tokens = features.cu_seqlens[:-1]
    # No text gives a separator's id: what is written "[SEP]" there is encoded as text.
    separators = np.flatnonzero(features.ids == tokenizer.special_tokens.sep)
    question_ends = separators[np.searchsorted(separators, first_tokens)]
    return Ranges(question_ends + separators_between(tokenizer), features.cu_seqlens[1:] - 1)


def widest_context(features: Features, tokenizer: Tokenizer, doc_stride: int) -> BoolArray:
    """Tell which tokens of texts stand in no other window with more text on both sides. Shape (T,).

    A token's context is the smaller of the numbers of tokens to its left and right, and a hundredth of the window's
    length; of equal windows the first counts (run_squad.py, `_check_is_max_context`).
    """
    places = text_places(features, tokenizer)
    widest = np.zeros(len(features.ids), dtype=np.bool_)
    widest[places.tokens] = True
    # Only texts of several windows are looked at closer: in SQuAD at length 384 that is one in a hundred.
    _, which, counts = np.unique(features.examples, return_inverse=True, return_counts=True)
    chosen = np.flatnonzero(counts[which] > 1)
    places, examples = places.pick(chosen), features.examples[chosen]
    lengths = places.lengths
    first_windows = np.searchsorted(examples, examples)
    # All windows of an example but the last are as long as can be.
    steps = np.minimum(lengths[first_windows], doc_stride)
    starts = (np.arange(len(chosen)) - first_windows) * steps
    window = np.repeat(np.arange(len(chosen)), lengths)
    position = places.tokens - np.repeat(places.starts - starts, lengths)

    def context(windows: IntArray) -> NDArray[np.float64]:
        left, right = position - starts[windows], starts[windows] + lengths[windows] - 1 - position
        return np.where((left >= 0) & (right >= 0), np.minimum(left, right) + 0.01 * lengths[windows], -np.inf)

    own = context(window)
    best = np.ones(len(window), dtype=np.bool_)
    for distance in range(1, len(chosen)):
        overlap = False
        for other, is_wider in ((window - distance, np.greater_equal), (window + distance, np.greater)):
            inside = np.clip(other, 0, len(chosen) - 1)
            same = (inside == other) & (examples[inside] == examples[window])
            theirs = np.where(same, context(inside), -np.inf)
            best &= ~is_wider(theirs, own)
            overlap |= bool(np.isfinite(theirs).any())
        if not overlap:
            break
    widest[places.tokens] = best
    return widest
