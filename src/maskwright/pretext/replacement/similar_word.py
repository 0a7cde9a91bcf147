"""MacBERT's replacement: a similar word instead of a mask token, which no downstream task ever shows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from pydantic import model_validator

from maskwright.core.randomness import Draws
from maskwright.core.similar_words import SimilarWords, SimilarWordsSpec, WordOptions, word_hashes
from maskwright.core.types import BoolArray, Instances, IntArray, Selection
from maskwright.pretext.replacement.base import Replacement, VocabularyFacts
from maskwright.pretext.replacement.random_ids import uniform_ids
from maskwright.pretext.shares import Share, check_shares


class SimilarWord(Replacement):
    """Each selected word becomes a similar word, a random word, or stays (Cui et al. 2020, section 3.1).

    Words are those of the text, whatever the units are: each word of an n-gram or a span is decided by itself. A
    run of selected tokens that is only a part of a word is treated as if it were a word. What stands in has as
    many tokens as the word it replaces, so nothing moves, and the mask token is never put in.

    A random word is drawn uniformly from the corpus's distinct words of that many tokens, as BERT's random token
    is from the entries of the vocabulary; where the corpus has none, each token is drawn by itself from the
    vocabulary without its special tokens. It may happen to equal the original.

    DEVIATION: the paper does not say what becomes of a similar word of another length (MacBERT issues 12 and 19
    were never answered); here only words of the same number of tokens are similar, since the labels are the
    tokens of the original, one at each place.

    DEVIATION: where a word should become similar and has no similar word, a random word stands in, as long as such
    words are no more than `max_stand_ins` of the selected tokens. Beyond that the authors skip the word and select
    another (issue 9). Selecting is the masking's business, so here the word stays as it is and is still predicted.
    The limit holds for each sequence on average: of the words without a similar one each gets a random one with the
    same probability. A limit in whole tokens would leave nothing to short sequences and little to long words.

    Attributes:
        similar: Share of words replaced by a similar word.
        random: Share replaced by a random word.
        keep: Share left as it is; the three shares add up to 1.
        max_stand_ins: Most of each sequence's selected tokens, as a share, that random words stand in for where there
            is no similar word, on average (issue 9).
        table: Where similar words come from.
    """

    kind: Literal["similar_word"] = "similar_word"
    similar: Share = 0.8
    random: Share = 0.1
    keep: Share = 0.1
    max_stand_ins: Share = 0.1
    table: SimilarWordsSpec = SimilarWordsSpec()

    @model_validator(mode="after")
    def _shares_add_up(self) -> "SimilarWord":
        check_shares({"similar": self.similar, "random": self.random, "keep": self.keep})
        return self

    @property
    def similar_words(self) -> SimilarWordsSpec:
        """The table it draws from (see `Replacement.similar_words`)."""
        return self.table

    @property
    def hides(self) -> bool:
        """Whether anything is not kept (see `Replacement.hides`)."""
        return self.similar + self.random > 0

    @property
    def hiding_all(self) -> Self:
        """Similar and random words grown to 1, random ones wherever there is no similar one (see `Replacement`)."""
        changed = self.similar + self.random
        if not changed:
            return self
        return self.replace(similar=self.similar / changed, random=self.random / changed, keep=0.0, max_stand_ins=1.0)

    def replace_tokens(
        self, instances: Instances, selection: Selection, draws: Draws, vocabulary: VocabularyFacts
    ) -> IntArray:
        """Return the ids that the encoder sees (see `Replacement.replace_tokens`)."""
        table, words = _table(vocabulary), _selected_words(instances, selection)
        fates = self._fates(words, table, draws)
        corrupted = instances.ids.astype(np.int32, copy=True)
        wants_any = fates.random | fates.stood_in
        any_word = table.of_length(words.lengths)
        # One draw for all: a word is either replaced by a similar one or by a random one.
        options = WordOptions(
            np.where(wants_any, any_word.firsts, fates.options.firsts),
            np.where(wants_any, any_word.counts, np.where(fates.similar, fates.options.counts, 0)),
        )
        replaced = np.flatnonzero(options.counts)
        drawn = draws.uniform_at("replacement word", words.sequences[replaced], words.offsets[replaced])
        lengths = words.lengths[replaced]
        sources = options.firsts[replaced] + (drawn * options.counts[replaced]).astype(np.int64) * lengths
        corrupted[_runs(words.starts[replaced], lengths)] = table.ids[_runs(sources, lengths)]
        wordless = np.flatnonzero(wants_any & (any_word.counts == 0))
        places = _runs(words.starts[wordless], words.lengths[wordless])
        special = vocabulary.special_tokens
        never = {special.pad, special.unk, special.cls, special.sep, special.mask}
        corrupted[places] = uniform_ids(_token_draws(instances, places, draws), special.vocab_size, never)
        return corrupted

    def outcomes(
        self, instances: Instances, selection: Selection, draws: Draws, vocabulary: VocabularyFacts
    ) -> Mapping[str, int]:
        """Return how many selected tokens became what (see `Replacement.outcomes`)."""
        words = _selected_words(instances, selection)
        fates = self._fates(words, _table(vocabulary), draws)
        named = {
            "similar word": fates.similar,
            "random word": fates.random,
            "random word for want of a similar one": fates.stood_in,
            "kept": fates.kept,
            "kept for want of a similar word": fates.spared,
        }
        return {name: int(words.lengths[which].sum()) for name, which in named.items()}

    def _fates(self, words: "_Words", table: SimilarWords, draws: Draws) -> "_Fates":
        decision = draws.uniform_at("replacement decision", words.sequences, words.offsets)
        options = table.similar_to(words.hashes, words.lengths)
        wants_similar = decision < self.similar
        wants_random = ~wants_similar & (decision < self.similar + self.random)
        similar = wants_similar & (options.counts > 0)
        stood_in = self._stand_ins(words, wants_similar & ~similar, draws)
        return _Fates(
            options=options,
            similar=similar,
            random=wants_random,
            stood_in=stood_in,
            spared=wants_similar & ~similar & ~stood_in,
            kept=~wants_similar & ~wants_random,
        )

    def _stand_ins(self, words: "_Words", wanting: BoolArray, draws: Draws) -> BoolArray:
        """Choose which of the words that want a similar one and have none get a random one. Shape (K,)."""
        missing = np.bincount(words.sequences, weights=words.lengths * wanting, minlength=len(words.selected))
        chances = self.max_stand_ins * words.selected / np.maximum(missing, 1)
        stood_in = np.zeros(len(wanting), dtype=bool)
        asked = np.flatnonzero(wanting)
        sequences = words.sequences[asked]
        drawn = draws.uniform_at("replacement stand-in", sequences, words.offsets[asked])
        stood_in[asked] = drawn < chances[sequences]
        return stood_in


@dataclass(frozen=True, slots=True)
class _Words:
    """The K words of a selection in a batch of B sequences.

    Attributes:
        starts: Shape (K,), flat token offsets, ascending.
        lengths: Shape (K,), tokens of each word.
        sequences: Shape (K,), the sequence of each word.
        offsets: Shape (K,), where each word begins in its sequence.
        hashes: Shape (K,).
        selected: Shape (B,), selected tokens of each sequence.
    """

    starts: IntArray
    lengths: IntArray
    sequences: IntArray
    offsets: IntArray
    hashes: IntArray
    selected: IntArray


@dataclass(frozen=True, slots=True)
class _Fates:
    """What becomes of each selected word. Shapes (K,); exactly one of the five marks is set.

    Attributes:
        options: The similar words of each.
        similar, random, kept: As the shares say.
        stood_in: Should be similar, has no similar word, gets a random one.
        spared: Should be similar, has no similar word, stays as it is.
    """

    options: WordOptions
    similar: BoolArray
    random: BoolArray
    stood_in: BoolArray
    spared: BoolArray
    kept: BoolArray


def _table(vocabulary: VocabularyFacts) -> SimilarWords:
    if vocabulary.similar_words is None:
        raise ValueError("replacement 'similar_word' needs a table in VocabularyFacts.similar_words")
    return vocabulary.similar_words


def _selected_words(instances: Instances, selection: Selection) -> _Words:
    positions = selection.positions
    begins_word = instances.word_starts[positions]
    unit_lengths = selection.ends - selection.starts
    # A unit that begins inside a word: what it holds of that word counts as one.
    begins_word[(np.cumsum(unit_lengths) - unit_lengths)[unit_lengths > 0]] = True
    begins = np.flatnonzero(begins_word)
    starts = positions[begins]
    sequences = np.searchsorted(instances.cu_seqlens, starts, side="right") - 1
    lengths = np.diff(begins, append=len(positions))
    return _Words(
        starts=starts,
        lengths=lengths,
        sequences=sequences,
        offsets=starts - instances.cu_seqlens[sequences],
        hashes=word_hashes(instances.ids[positions], begins),
        selected=np.bincount(sequences, weights=lengths, minlength=len(instances)).astype(np.int64),
    )


def _runs(starts: IntArray, lengths: IntArray) -> IntArray:
    """Return all offsets of some runs, one run after another."""
    return Selection(starts, starts + lengths).positions


def _token_draws(instances: Instances, places: IntArray, draws: Draws) -> IntArray:
    sequences = np.searchsorted(instances.cu_seqlens, places, side="right") - 1
    return draws.uniform_at("replacement token", sequences, places - instances.cu_seqlens[sequences])
