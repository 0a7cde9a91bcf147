"""From plan rows to sequences: special tokens put in, segments numbered, word starts mended at the seams."""

from collections.abc import Callable

import numpy as np

from maskwright.core.types import BoolArray, Instances, IntArray, Plan, SpecialTokens, TakenTokens

TakeTokens = Callable[[IntArray, IntArray], TakenTokens]
"""(starts (K,), ends (K,)) -> those ranges of the token stream, concatenated."""


def assemble(
    plan: Plan,
    take: TakeTokens,
    special_tokens: SpecialTokens,
    *,
    num_separators_between: int = 1,
    separator_points: IntArray | None = None,
) -> Instances:
    """Lay out rows as `[CLS] A [SEP]`, or `[CLS] A [SEP] B [SEP]` for pairs, all rows at once.

    Segment 0 reaches up to and including the separators after A; B and its separator are segment 1. Every
    token after a special token begins a word.

    DEVIATION: where truncation leaves B beginning with a word's later piece, Google's code
    (create_pretraining_data.py:342-415) glues that piece to A's last word and masks both together. Here no
    word reaches across a separator: such a piece is a word of its own, as it already was at the start of A.

    Args:
        plan: N rows of token ranges.
        take: Reads token ranges of the corpus.
        special_tokens: Ids of the classification and separator tokens.
        num_separators_between: Separators between A and B: 1 (BERT) or 2 (RoBERTa).
        separator_points: Ascending token offsets; one more separator stands at each that lies strictly inside
            a text. None or empty for none.
    """
    num_rows = len(plan)
    # Texts are numbered A0 B0 A1 B1 ...; single rows have an empty B.
    starts = np.stack([plan.first_start, plan.second_start], axis=1).ravel()
    ends = np.stack([plan.first_end, plan.second_end], axis=1).ravel()
    lengths = ends - starts
    is_pair = lengths[1::2] > 0
    point_texts, point_offsets = _points_inside(starts, ends, separator_points)
    inserted = np.bincount(point_texts, minlength=2 * num_rows)

    first_width = lengths[0::2] + inserted[0::2]
    second_width = lengths[1::2] + inserted[1::2]
    between = np.where(is_pair, num_separators_between + 1, 1)  # all separators that close texts
    cu_seqlens = np.concatenate([[0], np.cumsum(1 + first_width + second_width + between)]).astype(np.int64)
    total = int(cu_seqlens[-1])

    # How many special tokens stand before each taken token: a running sum of those put in at each place.
    text_offsets = np.cumsum(lengths) - lengths
    before_text = np.empty(2 * num_rows, dtype=np.int64)
    before_text[0::2] = 2  # the previous row's last separator and this row's classification token
    before_text[0:1] = 1
    before_text[1::2] = np.where(is_pair, num_separators_between, 0)
    num_taken = int(lengths.sum())
    specials_before = np.zeros(num_taken + 1, dtype=np.int64)
    np.add.at(specials_before, text_offsets, before_text)
    np.add.at(specials_before, text_offsets[point_texts] + point_offsets, 1)
    places = np.arange(num_taken) + np.cumsum(specials_before)[:-1]

    taken = take(starts, ends)
    ids = np.full(total, special_tokens.sep, dtype=np.int32)
    ids[cu_seqlens[:-1]] = special_tokens.cls
    ids[places] = taken.ids
    special = np.ones(total, dtype=bool)
    special[places] = False

    def with_specials(unit_starts: BoolArray) -> BoolArray:
        starts = np.ones(total, dtype=bool)
        starts[places] = unit_starts
        starts[1:] |= special[:-1]
        return starts

    second_begins = cu_seqlens[:-1] + 1 + first_width + num_separators_between
    second_begins = np.where(is_pair, second_begins, cu_seqlens[1:])
    segment_ids = np.arange(total) >= np.repeat(second_begins, np.diff(cu_seqlens))
    return Instances(
        ids=ids,
        segment_ids=segment_ids.astype(np.int8),
        word_starts=with_specials(taken.word_starts),
        special=special,
        cu_seqlens=cu_seqlens,
        pair_labels=plan.pair_labels,
        level_starts={level: with_specials(starts) for level, starts in taken.level_starts.items()},
    )


def _points_inside(starts: IntArray, ends: IntArray, points: IntArray | None) -> tuple[IntArray, IntArray]:
    """Find the points strictly inside each range: (which range (P,), offset from its start (P,))."""
    if points is None or not len(points):
        nothing = np.zeros(0, dtype=np.int64)
        return nothing, nothing
    low = np.searchsorted(points, starts, side="right")
    counts = np.maximum(np.searchsorted(points, ends, side="left") - low, 0)
    texts = np.repeat(np.arange(len(starts)), counts)
    within = np.arange(len(texts)) - np.repeat(np.cumsum(counts) - counts, counts)
    return texts, points[low[texts] + within] - starts[texts]
