"""The interface of replacements: the input ids at selected tokens."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from maskwright.core.randomness import RandomNumbers
from maskwright.core.similar_words import SimilarWords, SimilarWordsSpec
from maskwright.core.spec import Spec
from maskwright.core.types import BoolArray, Instances, IntArray, Selection, SpecialTokens


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularyFacts:
    """Vocabulary statistics for maskings and replacements.

    Attributes:
        special_tokens: Ids of the special tokens, and the number of entries.
        token_counts: Shape (V,), how often each id stands in the corpus; None where it is not known.
        similar_words: Which words may stand in for which; None where nobody asked for them.
    """

    special_tokens: SpecialTokens
    token_counts: IntArray | None = None
    similar_words: SimilarWords | None = None


class Replacement(Spec):
    """Replaces selected tokens. Subclasses are frozen values and implement `replace_tokens`.

    Attributes:
        kind: The replacement's name in recipes.
    """

    kind: str

    @property
    def similar_words(self) -> SimilarWordsSpec | None:
        """The table to prepare for `VocabularyFacts.similar_words`; None where none is asked for."""
        return None

    @property
    def shows_masks(self) -> bool:
        """Whether the encoder ever sees the mask token."""
        return False

    @property
    def hides(self) -> bool:
        """Whether selected tokens ever become others; where they do not, all of them stand there to be copied."""
        return True

    @property
    def uses_token_counts(self) -> bool:
        """Whether it asks for `VocabularyFacts.token_counts`."""
        return False

    @property
    def hiding_all(self) -> Self:
        """The same without keeping any selected token as it is: what held-out text is measured with.

        A kept token stands there to be copied, so a model that uses no context at all gets every kept one right.
        """
        return self

    def eligible(self, instances: Instances, rng: RandomNumbers, vocabulary: VocabularyFacts) -> BoolArray | None:
        """Return which tokens it can replace, for `Masking.select`. Shape (T,), whole words; None for all."""
        return None

    @abstractmethod
    def replace_tokens(
        self, instances: Instances, selection: Selection, rng: RandomNumbers, vocabulary: VocabularyFacts
    ) -> IntArray:
        """Return the ids that the encoder sees. Shape (T,), int32; only selected positions may differ.

        Args:
            instances: The flat batch.
            selection: The units to corrupt.
            rng: The keyed random numbers; use purposes that begin with "replacement".
            vocabulary: Special ids, vocabulary size, corpus counts.
        """

    def outcomes(
        self, instances: Instances, selection: Selection, rng: RandomNumbers, vocabulary: VocabularyFacts
    ) -> Mapping[str, int]:
        """Return how many selected tokens became what, in words, where the shares alone do not tell; else nothing.

        Arguments are those of `replace_tokens`, and what is counted is what it does with them.
        """
        return {}
