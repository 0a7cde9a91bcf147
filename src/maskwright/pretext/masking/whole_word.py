"""Whole-word masking: a word is hidden with all its pieces or not at all."""

from typing import Literal

import numpy as np

from maskwright.core.randomness import Draws
from maskwright.core.types import BoolArray, Instances, IntArray, Selection
from maskwright.pretext.masking.units import random_order, ranks, until_full, words
from maskwright.pretext.masking.words import WordMasking


class WholeWordMasking(WordMasking):
    """Whole words in random order, until the budget is met (create_pretraining_data.py:342-415).

    With a budget of tokens, a word that would overrun it is skipped, never cut, and the others are still
    tried; a sequence in which every word is longer than the budget gives up none, as in Google's code.

    Attributes:
        budget: What the rate counts and the budget limits: "tokens" (BERT: 15 % of the tokens), or "words"
            (fairseq's option, mask_tokens_dataset.py:113-230: 15 % of the words, however long they are; a
            special token counts as a word). `max_targets` limits tokens and does not go with "words".
    """

    kind: Literal["whole_word"] = "whole_word"

    def choose(self, instances: Instances, maskable: BoolArray, budgets: IntArray, draws: Draws) -> Selection:
        """Take words in random order while they fit (see `Masking.choose`)."""
        starts, ends = words(instances, maskable)
        if self.budget == "tokens":
            return until_full(starts, ends, instances, budgets, draws)
        order = random_order(starts, instances, draws, "masking order")
        sequences = instances.sequence_ids[starts]
        taken = ranks(sequences) < budgets[sequences]
        end_of_word = np.zeros(len(instances.ids), dtype=np.int64)
        end_of_word[starts] = ends
        chosen = np.sort(order[taken])
        return Selection(chosen, end_of_word[chosen])
