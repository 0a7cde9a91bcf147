"""The interface of replacements, the input ids at selected tokens; `corrupt` selects and replaces."""

from abc import abstractmethod
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from pydantic import model_validator

from maskwright.core.randomness import RandomNumbers
from maskwright.core.similar_words import SimilarWords, SimilarWordsSpec
from maskwright.core.spec import Spec
from maskwright.core.types import BoolArray, Examples, Instances, IntArray, Selection, SpecialTokens
from maskwright.pretext.masking.base import Masking, check_shares


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularyFacts:
    """Vocabulary statistics for maskings and replacements.

    Attributes:
        token_counts: Shape (V,), count of each id in the corpus; None if unknown.
        similar_words: The table of similar words; None if not needed.
    """

    special_tokens: SpecialTokens
    token_counts: IntArray | None = None
    similar_words: SimilarWords | None = None


class Replacement(Spec):
    """Replaces selected tokens. Subclasses are frozen values and implement `replace_tokens`.

    Attributes:
        changes: Names of the fields that hold the shares of tokens that change; with that of `keep` they sum to 1.
            Empty if there are no shares: then every selected token changes.
    """

    kind: str
    changes: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="after")
    def _shares_add_up(self) -> Self:
        if self.changes:
            check_shares({name: getattr(self, name) for name in (*self.changes, "keep")})
        return self

    @property
    def similar_words(self) -> SimilarWordsSpec | None:
        """The table to prepare for `VocabularyFacts.similar_words`; None if not needed."""
        return None

    @property
    def shows_masks(self) -> bool:
        """Whether the encoder ever sees the mask token."""
        return False

    @property
    def hides(self) -> bool:
        """Whether selected tokens are ever changed; otherwise all of them can be copied."""
        return not self.changes or any(getattr(self, name) for name in self.changes)

    @property
    def uses_token_counts(self) -> bool:
        """Whether it needs `VocabularyFacts.token_counts`."""
        return False

    @property
    def without_kept(self) -> Self:
        """The same without kept tokens, for held-out text: a model can copy kept tokens without using context."""
        shares = {name: getattr(self, name) for name in self.changes}
        total = sum(shares.values())
        return self.replace(**{name: share / total for name, share in shares.items()}, keep=0.0) if total else self

    def eligible(self, instances: Instances, rng: RandomNumbers, vocabulary: VocabularyFacts) -> BoolArray | None:
        """Return which tokens it can replace, for `Masking.select`. Shape (T,), whole words; None for all."""
        return None

    @abstractmethod
    def replace_tokens(
        self, instances: Instances, selection: Selection, rng: RandomNumbers, vocabulary: VocabularyFacts
    ) -> IntArray:
        """Return the ids that the encoder sees. Shape (T,), int32; only selected positions may differ.

        Purposes of random numbers begin with "replacement".
        """

    def outcomes(
        self, instances: Instances, selection: Selection, rng: RandomNumbers, vocabulary: VocabularyFacts
    ) -> Mapping[str, int]:
        """Return the number of selected tokens by outcome of `replace_tokens`, if the shares alone do not tell."""
        return {}


def corrupt(
    instances: Instances, masking: Masking, replacement: Replacement, rng: RandomNumbers, vocabulary: VocabularyFacts
) -> Examples:
    """Mask part of each of B sequences, deterministically given `rng`, which has a key for each sequence."""
    eligible = replacement.eligible(instances, rng, vocabulary)
    selection = masking.select(instances, rng, vocabulary.token_counts, eligible)
    corrupted = replacement.replace_tokens(instances, selection, rng, vocabulary)
    return Examples(instances=instances, selection=selection, corrupted=corrupted)


def uniform_ids(uniform: IntArray, vocab_size: int, never: Set[int]) -> IntArray:
    """Turn uniform numbers in [0, 1) into ids of the vocabulary except `never`, all equally likely. Shapes (K,)."""
    ids = (uniform * (vocab_size - len(never))).astype(np.int64)
    # Numbered without the gaps: each id moves up by one at every gap that it reaches.
    for gap in sorted(never):
        ids += ids >= gap
    return ids
