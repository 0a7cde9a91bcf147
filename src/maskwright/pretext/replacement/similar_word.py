"""MacBERT's replacement: a similar word instead of a mask token, which no downstream task contains."""

from collections.abc import Mapping
from typing import ClassVar, Literal, NamedTuple, Self

import numpy as np

from maskwright.core.flat_arrays import concatenated_ranges
from maskwright.core.randomness import RandomNumbers
from maskwright.core.similar_words import SimilarWords, SimilarWordsSpec, WordOptions, word_hashes
from maskwright.core.types import BoolArray, Instances, IntArray, Selection
from maskwright.pretext.masking.base import Share
from maskwright.pretext.replacement.base import Replacement, VocabularyFacts, uniform_ids

_TINY = float(np.finfo(np.float64).tiny)


class SimilarWord(Replacement):
    """Each selected word becomes a similar word, a random word, or stays (Cui et al. 2020, section 3.1).

    Each word of an n-gram or a span is decided separately. A run of selected tokens that is only a part of a word is
    treated as a word. The replacement has as many tokens as the word, and the mask token is never used.

    A random word is sampled uniformly from the distinct words of the corpus with that many tokens, as BERT's random
    token is from the vocabulary; where the corpus has none, each token is sampled separately from the vocabulary
    without special tokens. It may equal the original.

    DEVIATION: the paper does not say what happens to a similar word of another length (ymcui/MacBERT issues 12 and
    19 were never answered); here only words of the same number of tokens are similar, since the labels are the
    tokens of the original, one at each position.

    A word without a similar one becomes a random word where it would become a similar one (section 3.1), so that words
    with a similar one are 80/10/10 whatever the table covers. Such random words come on top of the share `random`,
    up to `max_fallback_rate`; beyond, another word is selected instead, as in the original (ymcui/MacBERT issue 9). The
    limit holds on average: in each sequence, words without a similar one are eligible with the same probability.

    Attributes:
        similar, random, keep: Shares of the selected tokens whose words become a similar word, a random word, or stay;
            they sum to 1.
        max_fallback_rate: Maximum share of the selected tokens that become a random word for want of a similar one.
        table: Where similar words come from.
    """

    kind: Literal["similar_word"] = "similar_word"
    changes: ClassVar[tuple[str, ...]] = ("similar", "random")
    similar: Share = 0.8
    random: Share = 0.1
    keep: Share = 0.1
    max_fallback_rate: Share = 0.1
    table: SimilarWordsSpec = SimilarWordsSpec()

    @property
    def similar_words(self) -> SimilarWordsSpec:
        return self.table

    @property
    def without_kept(self) -> Self:
        """Nothing kept, and every word eligible (see `Replacement.without_kept`)."""
        hidden = super().without_kept
        return hidden if hidden is self else hidden.replace(max_fallback_rate=1.0)

    def eligible(self, instances: Instances, rng: RandomNumbers, vocabulary: VocabularyFacts) -> BoolArray:
        """Return the tokens of words that have a similar word, and of some that have none (see `Replacement`)."""
        positions = np.arange(len(instances.ids))
        words = _Words.of(instances, positions, _table(vocabulary), begins=instances.word_starts)
        missing = self._missing(instances, words)
        # Only the share `similar` of the words without a similar one needs a random word in its place.
        without = np.minimum(self.max_fallback_rate / max(self.similar, self.max_fallback_rate, _TINY), missing)
        # Of words without a similar one so many that they are this share of all eligible tokens.
        chances = without * (1 - missing) / np.maximum(missing * (1 - without), _TINY)
        chances = np.where(without == missing, 1.0, chances)
        uniform = rng.uniform_at("replacement eligible", words.sequences, words.offsets)
        eligible: BoolArray = np.repeat(words.has_similar | (uniform < chances[words.sequences]), words.lengths)
        return eligible & ~instances.special

    def replace_tokens(
        self, instances: Instances, selection: Selection, rng: RandomNumbers, vocabulary: VocabularyFacts
    ) -> IntArray:
        table = _table(vocabulary)
        words, similar, random = self._decisions(instances, selection, rng, table)
        random |= similar & ~words.has_similar
        corrupted = instances.ids.astype(np.int32, copy=True)
        any_word = table.of_length(words.lengths)
        # One random number per word: it becomes either a similar word or a random one.
        firsts = np.where(random, any_word.firsts, words.options.firsts)
        counts = np.where(random, any_word.counts, np.where(similar, words.options.counts, 0))
        replaced = np.flatnonzero(counts)
        uniform = rng.uniform_at("replacement word", words.sequences[replaced], words.offsets[replaced])
        lengths = words.lengths[replaced]
        sources = firsts[replaced] + (uniform * counts[replaced]).astype(np.int64) * lengths
        corrupted[concatenated_ranges(words.starts[replaced], lengths)] = table.ids[
            concatenated_ranges(sources, lengths)
        ]
        no_word = np.flatnonzero(random & (any_word.counts == 0))
        positions = concatenated_ranges(words.starts[no_word], words.lengths[no_word])
        special = vocabulary.special_tokens
        never = {special.pad, special.unk, special.cls, special.sep, special.mask}
        uniform = rng.uniform_of("replacement token", instances.cu_seqlens, positions)
        corrupted[positions] = uniform_ids(uniform, special.vocab_size, never)
        return corrupted

    def outcomes(
        self, instances: Instances, selection: Selection, rng: RandomNumbers, vocabulary: VocabularyFacts
    ) -> Mapping[str, int]:
        words, similar, random = self._decisions(instances, selection, rng, _table(vocabulary))
        named = {
            "similar word": similar & words.has_similar,
            "random word": random,
            "random word (no similar word)": similar & ~words.has_similar,
            "kept": ~similar & ~random,
        }
        return {name: int(words.lengths[which].sum()) for name, which in named.items()}

    def _decisions(
        self, instances: Instances, selection: Selection, rng: RandomNumbers, table: SimilarWords
    ) -> tuple["_Words", BoolArray, BoolArray]:
        """Return the K selected words, and which should become a similar and a random word. Shapes (K,)."""
        positions = selection.positions
        begins = instances.word_starts[positions]
        unit_lengths = selection.ends - selection.starts
        # What a unit that begins inside a word contains of it counts as a word.
        begins[(np.cumsum(unit_lengths) - unit_lengths)[unit_lengths > 0]] = True
        words = _Words.of(instances, positions, table, begins)
        uniform = rng.uniform_at("replacement decision", words.sequences, words.offsets)
        similar = uniform < self.similar
        return words, similar, ~similar & (uniform < 1 - self.keep)

    @staticmethod
    def _missing(instances: Instances, words: "_Words") -> IntArray:
        """Return the share of each sequence's ordinary tokens whose words have no similar word. Shape (B,)."""
        ordinary = ~instances.special[words.starts]
        counts = [
            np.bincount(words.sequences, weights=words.lengths * which, minlength=len(instances))
            for which in (ordinary & ~words.has_similar, ordinary)
        ]
        return counts[0] / np.maximum(counts[1], 1)


class _Words(NamedTuple):
    """K words of a batch.

    Attributes:
        starts: Shape (K,), token offsets, ascending.
        lengths: Shape (K,), tokens of each.
        sequences: Shape (K,), the sequence of each.
        offsets: Shape (K,), where each begins in its sequence.
        options: The similar words of each.
        has_similar: Shape (K,).
    """

    starts: IntArray
    lengths: IntArray
    sequences: IntArray
    offsets: IntArray
    options: WordOptions
    has_similar: BoolArray

    @classmethod
    def of(cls, instances: Instances, positions: IntArray, table: SimilarWords, begins: BoolArray) -> "_Words":
        """Look up the words among some tokens, each from one of `begins` (of `positions`) to the next."""
        firsts = np.flatnonzero(begins)
        starts = positions[firsts]
        lengths = np.diff(firsts, append=len(positions))
        sequences = np.searchsorted(instances.cu_seqlens, starts, side="right") - 1
        options = table.similar_to(word_hashes(instances.ids[positions], firsts), lengths)
        return cls(starts, lengths, sequences, starts - instances.cu_seqlens[sequences], options, options.counts > 0)


def _table(vocabulary: VocabularyFacts) -> SimilarWords:
    assert vocabulary.similar_words is not None, "data preparation makes the table that `similar_words` asks for"
    return vocabulary.similar_words
