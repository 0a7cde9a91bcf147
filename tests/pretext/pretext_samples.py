"""Small corpora and batches for the tests of the pretext task."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from maskwright.core.randomness import RandomNumbers
from maskwright.core.types import AnnotatedTokens, BoolArray, Documents, Instances, IntArray, Plan, SpecialTokens
from maskwright.pretext.formats import Format, GatherTokens
from maskwright.pretext.formats.base import assemble, sequence_lengths
from maskwright.pretext.replacement import VocabularyFacts

SPECIAL = SpecialTokens(
    pad=0,
    unk=1,
    cls=2,
    sep=3,
    mask=4,
    vocab_size=1000,
    names=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
)
VOCABULARY = VocabularyFacts(special_tokens=SPECIAL)


def documents_of(lengths: Sequence[Sequence[int]]) -> Documents:
    """Make documents whose sentences have the given numbers of tokens."""
    ends = np.cumsum([length for document in lengths for length in document], dtype=np.int64)
    last = np.cumsum([len(document) for document in lengths], dtype=np.int64)
    return Documents(ends, last - np.array([len(document) for document in lengths], dtype=np.int64), last)


def reader(stream: IntArray) -> GatherTokens:
    """Read ranges of a token stream held in memory, in which every token is a word."""

    def gather(starts: IntArray, ends: IntArray) -> AnnotatedTokens:
        picked = [token for start, end in ranges(starts, ends) for token in range(start, end)]
        return AnnotatedTokens(stream[picked], np.ones(len(picked), dtype=bool))

    return gather


def lay_out(format: Format, documents: Documents, plan: Plan) -> Instances:
    """Lay a plan out over a stream in which token t has the id 100 + t; the format knows the lengths before."""
    take, points = reader(100 + np.arange(int(documents.sentence_ends[-1]))), format.separator_points(documents)
    laid_out = assemble(plan, take, SPECIAL, separator_points=points)
    assert np.array_equal(sequence_lengths(plan, points), laid_out.lengths)
    return laid_out


def rows_of(plan: Plan) -> list[tuple[list[int], list[int], int]]:
    """Return (tokens of the first text, tokens of the second, label) of each row."""
    firsts, seconds = ranges(plan.first_start, plan.first_end), ranges(plan.second_start, plan.second_end)
    rows = zip(firsts, seconds, plan.pair_labels.tolist(), strict=True)
    return [(list(range(*first)), list(range(*second)), label) for first, second, label in rows]


def repeated(words: Sequence[Sequence[int]], count: int = 1) -> Instances:
    """Return the same sentence `count` times, given as words of ids."""
    begins = [True, *(index == 0 for word in words for index in range(len(word))), True]
    ids = [SPECIAL.cls, *(id for word in words for id in word), SPECIAL.sep]
    return Instances(
        ids=np.tile(np.array(ids, dtype=np.int32), count),
        segment_ids=np.zeros(len(ids) * count, dtype=np.int8),
        word_starts=np.tile(begins, count),
        special=np.tile([True, *[False] * (len(ids) - 2), True], count),
        cu_seqlens=np.arange(count + 1) * len(ids),
        pair_labels=np.full(count, -1, dtype=np.int8),
    )


def batch_of(lengths: Sequence[int], seed: int = 0, share_of_word_starts: float = 1.0) -> Instances:
    """Make single-text sequences of the given lengths, specials counted (at least 2), with random ids."""
    rng = np.random.default_rng(seed)
    cu_seqlens = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    total = int(cu_seqlens[-1])
    special = np.zeros(total, dtype=bool)
    special[cu_seqlens[:-1]] = special[cu_seqlens[1:] - 1] = True
    ids = rng.integers(5, SPECIAL.vocab_size, total).astype(np.int32)
    ids[cu_seqlens[:-1]], ids[cu_seqlens[1:] - 1] = SPECIAL.cls, SPECIAL.sep
    word_starts = special | (rng.random(total) < share_of_word_starts)
    word_starts[1:] |= special[:-1]
    return Instances(
        ids=ids,
        segment_ids=np.zeros(total, dtype=np.int8),
        word_starts=word_starts,
        special=special,
        cu_seqlens=cu_seqlens,
        pair_labels=np.full(len(lengths), -1, dtype=np.int8),
    )


def rng_for(instances: Instances, seed: int = 0, mask_sample: int = 0, first_index: int = 0) -> RandomNumbers:
    """Key a batch whose instances are numbered one after another."""
    index = first_index + np.arange(len(instances))
    return RandomNumbers(seed, np.full(len(instances), mask_sample), index)


def one_of(instances: Instances, number: int) -> Instances:
    """Take one sequence out of a batch."""
    low, high = instances.cu_seqlens[number : number + 2]
    return Instances(
        ids=instances.ids[low:high],
        segment_ids=instances.segment_ids[low:high],
        word_starts=instances.word_starts[low:high],
        special=instances.special[low:high],
        cu_seqlens=np.array([0, high - low]),
        pair_labels=instances.pair_labels[number : number + 1],
        span_starts={level: starts[low:high] for level, starts in instances.span_starts.items()},
    )


def with_levels(instances: Instances, seed: int = 0, share_joined: float = 0.3) -> Instances:
    """Join some neighboring words to phrases, and some phrases to entities; special tokens stay by themselves."""
    rng = np.random.default_rng(seed)
    after_special = np.append(True, instances.special[:-1])[: len(instances.ids)]
    levels: dict[str, BoolArray] = {}
    below = instances.word_starts
    for level in ("phrase", "entity"):
        below = below & ((rng.random(len(below)) >= share_joined) | instances.special | after_special)
        levels[level] = below
    return replace(instances, span_starts=levels)


def ranges(starts: IntArray, ends: IntArray) -> list[tuple[int, int]]:
    """Pair two arrays up as a list."""
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def within(observed: float, share: float, count: int, deviations: float = 4.5) -> bool:
    """Whether an observed share of `count` draws is within some standard deviations of the true one."""
    return bool(abs(observed - share) <= deviations * np.sqrt(share * (1 - share) / count))


def looks_uniform(counts: IntArray) -> bool:
    """Whether counts are no further from equal than chance allows (chi-square, wrong once in 30 000)."""
    expected, freedom = counts.sum() / len(counts), len(counts) - 1
    statistic = float(((counts - expected) ** 2 / expected).sum())
    # Wilson and Hilferty 1931: the cube root of chi-square / freedom is nearly normal.
    spread = 2 / (9 * freedom)
    return bool(((statistic / freedom) ** (1 / 3) - (1 - spread)) / np.sqrt(spread) < 4)
