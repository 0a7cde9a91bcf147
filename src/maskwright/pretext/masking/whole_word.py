"""Whole-word masking: all pieces of a word are masked together."""

from typing import Literal

from maskwright.core.randomness import RandomNumbers
from maskwright.core.types import BoolArray, Instances, IntArray, Selection
from maskwright.pretext.masking.base import WordMasking
from maskwright.pretext.masking.sampling import RandomOrder, unit_ends, until_full


class WholeWordMasking(WordMasking):
    """Whole words in random order, until the budget is met (create_pretraining_data.py:342-415).

    With a budget of tokens, a word that would overrun it is skipped, never cut, and the others are still
    tried; a sequence in which every word is longer than the budget has no targets, as in Google's code.

    Attributes:
        budget: What the rate counts and the budget limits: "tokens" (BERT: 15 % of the tokens), or "words"
            (fairseq's option, mask_tokens_dataset.py:113-230: 15 % of the words, however long they are; a
            special token counts as a word). `max_targets` limits tokens and does not go with "words".
    """

    kind: Literal["whole_word"] = "whole_word"

    def choose(
        self,
        instances: Instances,
        maskable: BoolArray,
        budgets: IntArray,
        rng: RandomNumbers,
        token_counts: IntArray | None,
    ) -> Selection:
        """Select words in random order while they fit (see `Masking.choose`)."""
        begins = instances.word_starts
        if self.budget == "tokens":
            return until_full(begins, maskable, instances, budgets, rng)
        starts = RandomOrder.of(begins & maskable, instances, rng).first(budgets)
        return Selection(starts, unit_ends(begins)[starts])
