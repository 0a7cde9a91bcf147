"""BERT's replacement: mostly the mask token, sometimes a random token, sometimes the token itself."""

from typing import ClassVar, Literal

import numpy as np

from maskwright.core.errors import RecipeError
from maskwright.core.randomness import RandomNumbers
from maskwright.core.types import Instances, IntArray, Selection
from maskwright.pretext.masking.base import Share
from maskwright.pretext.replacement.base import Replacement, VocabularyFacts, uniform_ids


class MaskRandomKeep(Replacement):
    """Mask, replace at random, or keep: 80/10/10 in BERT (Devlin et al. 2019, section 3.1).

    A random token may equal the original.

    Attributes:
        mask, random, keep: Shares replaced by the mask token or by a random token, or kept; they sum to 1.
        per: One decision for each "token" (BERT, also within a whole word) or for each "unit" (fairseq's whole words);
            random tokens are sampled separately in both.
        random_from: What random tokens are sampled from. Uniformly: the whole "vocabulary" with all special tokens
            (BERT), or the "ordinary" part without the padding, unknown, classification and separator tokens (fairseq,
            with the mask token). By frequency: the "corpus" (SpanBERT: masking.py:242-303 samples tokens of the
            training text), so without special tokens.
    """

    kind: Literal["mask_random_keep"] = "mask_random_keep"
    changes: ClassVar[tuple[str, ...]] = ("mask", "random")
    mask: Share = 0.8
    random: Share = 0.1
    keep: Share = 0.1
    per: Literal["token", "unit"] = "token"
    random_from: Literal["vocabulary", "ordinary", "corpus"] = "vocabulary"

    @property
    def shows_masks(self) -> bool:
        return self.mask > 0

    @property
    def uses_token_counts(self) -> bool:
        return self.random_from == "corpus" and self.random > 0

    def replace_tokens(
        self, instances: Instances, selection: Selection, rng: RandomNumbers, vocabulary: VocabularyFacts
    ) -> IntArray:
        corrupted = instances.ids.astype(np.int32, copy=True)
        positions = selection.positions
        decided = selection.starts if self.per == "unit" else positions
        decision = rng.uniform_of("replacement decision", instances.cu_seqlens, decided)
        if self.per == "unit":
            decision = decision[selection.units]
        corrupted[positions[decision < self.mask]] = vocabulary.special_tokens.mask
        at_random = positions[(decision >= self.mask) & (decision < self.mask + self.random)]
        uniform = rng.uniform_of("replacement token", instances.cu_seqlens, at_random)
        corrupted[at_random] = self._random_ids(uniform, vocabulary)
        return corrupted

    def _random_ids(self, uniform: IntArray, vocabulary: VocabularyFacts) -> IntArray:
        """Turn uniform numbers (K,) into ids (K,)."""
        if self.random_from == "corpus":
            counts = vocabulary.token_counts
            if counts is None or not counts.any():
                raise RecipeError(
                    "replacement.random_from is 'corpus', but the token counts of the corpus are unknown here",
                    hint="Set replacement.random_from=vocabulary.",
                )
            running = np.cumsum(counts, dtype=np.int64)
            # Positions in the corpus are integers below its length, so an id that it lacks is never hit.
            return np.searchsorted(running, (uniform * int(running[-1])).astype(np.int64), side="right")
        special = vocabulary.special_tokens
        never = {special.pad, special.unk, special.cls, special.sep} if self.random_from == "ordinary" else set[int]()
        return uniform_ids(uniform, special.vocab_size, never)
