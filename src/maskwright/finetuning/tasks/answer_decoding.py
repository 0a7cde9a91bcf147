"""The best answers that the scores of all windows of a text give.

As in Google's BERT (run_squad.py, `write_predictions`): the best beginnings of each window are joined with its best
ends, an answer's score is the sum of both, equal texts count once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.core.types import BoolArray, IntArray
from maskwright.finetuning.features import Features
from maskwright.finetuning.tasks.answer_texts import NO_ANSWER
from maskwright.finetuning.tasks.base import Scores

_WINDOWS_AT_ONCE = 512  # With 20 x 20 pairs each, a few MB are held.


@dataclass(frozen=True, slots=True)
class Found:
    """An answer found.

    Attributes:
        text: A part of the example's text.
        start: Its first character.
        end: One past its last.
        score: Summed scores of its first and last token.
    """

    text: str
    start: int
    end: int
    score: float


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Tokens at which answers may begin and end, in the order of windows. Each of shape (N,).

    Attributes:
        windows: Ascending.
        first: Place of the first token in the flat tokens.
        last: Place of the last one.
        scores: Their summed scores.
    """

    windows: IntArray
    first: IntArray
    last: IntArray
    scores: NDArray[np.float64]


def best_answers(
    scores: Scores, features: Features, texts: Sequence[str], *, begins: BoolArray, n_best: int, max_length: int
) -> list[list[Found]]:
    """List the best answers to each question, the best first, different texts only.

    DEVIATION: run_squad.py looks for the best beginnings and ends among all tokens and then drops those outside of the
    text, so that it may find none. Here they are looked for among the tokens at which an answer may begin or end; and
    where none of the best beginnings goes with one of the best ends, all are tried.

    Args:
        scores: Shape (T, 2), float64: of beginning and of ending at each token.
        features: With offsets.
        texts: One an example.
        begins: Shape (T,), tokens whose beginnings count (see `widest_context`).
        n_best: Beginnings and ends of a window that are tried, and answers at most.
        max_length: Tokens of an answer at most.
    """
    assert features.offsets is not None
    ends = features.offsets[:, 0] != NO_ANSWER
    # What cannot be is worse than anything that can.
    usable = np.where(np.stack([begins & ends, ends], axis=1), scores, -np.inf)
    bounds = np.searchsorted(features.examples, np.arange(len(texts) + 1))
    pairs = _pairs_of_windows(usable, features.cu_seqlens, 0, features.num_units, n_best, max_length)
    pair_bounds = np.searchsorted(pairs.windows, bounds).tolist()
    answers = []
    for example, text in enumerate(texts):
        low, high = pair_bounds[example], pair_bounds[example + 1]
        of_example = pairs
        if low == high:
            begin, end = int(bounds[example]), int(bounds[example + 1])
            every = int(np.diff(features.cu_seqlens[begin : end + 1]).max(initial=0))
            of_example = _pairs_of_windows(usable, features.cu_seqlens, begin, end, every, max_length)
            low, high = 0, len(of_example.scores)
        answers.append(_found(of_example, slice(low, high), features.offsets, text, n_best))
    return answers


def _pairs_of_windows(
    scores: Scores, cu_seqlens: IntArray, begin: int, end: int, n_best: int, max_length: int
) -> _Pairs:
    parts = [
        _pairs(scores, cu_seqlens[first : min(first + _WINDOWS_AT_ONCE, end) + 1], first, n_best, max_length)
        for first in range(begin, end, _WINDOWS_AT_ONCE)
    ]
    nothing = np.zeros(0, dtype=np.int64)
    return _Pairs(
        np.concatenate([nothing, *(part.windows for part in parts)]),
        np.concatenate([nothing, *(part.first for part in parts)]),
        np.concatenate([nothing, *(part.last for part in parts)]),
        np.concatenate([nothing.astype(np.float64), *(part.scores for part in parts)]),
    )


def _pairs(scores: Scores, cu_seqlens: IntArray, first_window: int, n_best: int, max_length: int) -> _Pairs:
    """Join the best beginnings with the best ends of some windows, all at once. W windows, L longest, K of the best."""
    lengths = np.diff(cu_seqlens)
    columns = np.arange(int(lengths.max()))
    inside_WL = columns < lengths[:, None]
    places_WL = np.minimum(cu_seqlens[:-1, None] + columns, cu_seqlens[-1] - 1)
    table_WL2 = np.where(inside_WL[:, :, None], scores[places_WL], -np.inf)
    order_WK2 = np.argsort(-table_WL2, axis=1, kind="stable")[:, :n_best]
    best_WK2 = np.take_along_axis(table_WL2, order_WK2, axis=1)
    begin, end = order_WK2[:, :, None, 0], order_WK2[:, None, :, 1]
    sums_WKK = best_WK2[:, :, None, 0] + best_WK2[:, None, :, 1]
    fits = np.isfinite(sums_WKK) & (begin <= end) & (end < begin + max_length)
    window, of_begin, of_end = np.nonzero(fits)
    return _Pairs(
        windows=first_window + window,
        first=cu_seqlens[window] + order_WK2[window, of_begin, 0],
        last=cu_seqlens[window] + order_WK2[window, of_end, 1],
        scores=sums_WKK[fits],
    )


def _found(pairs: _Pairs, chosen: slice, offsets: NDArray[np.int32], text: str, n_best: int) -> list[Found]:
    best_first = chosen.start + np.argsort(-pairs.scores[chosen], kind="stable")
    starts, ends = offsets[pairs.first[best_first], 0].tolist(), offsets[pairs.last[best_first], 1].tolist()
    found: dict[str, Found] = {}
    for start, end, score in zip(starts, ends, pairs.scores[best_first].tolist(), strict=True):
        answer = text[start:end]
        if answer not in found:
            found[answer] = Found(answer, start, end, score)
            if len(found) == n_best:
                break
    return list(found.values())
