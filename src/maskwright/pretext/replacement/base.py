"""The door of the replacement room: what the encoder sees where tokens were selected."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from maskwright.core.randomness import Draws
from maskwright.core.spec import Spec
from maskwright.core.types import Instances, IntArray, Selection, SpecialTokens


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularyFacts:
    """What replacements may ask about the vocabulary.

    Attributes:
        special_tokens: Ids of the special tokens, and the number of entries.
        token_counts: Shape (V,), how often each id stands in the corpus; None where it is not known.
    """

    special_tokens: SpecialTokens
    token_counts: IntArray | None = None


class Replacement(Spec):
    """By what. Members are frozen values; `replace_tokens` is the one method they write.

    Attributes:
        kind: The member's name in recipes.
        needs: What `VocabularyFacts` must hold besides the special tokens ("token_counts", "similar_words").
    """

    kind: str
    needs: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def replace_tokens(
        self, instances: Instances, selection: Selection, draws: Draws, vocabulary: VocabularyFacts
    ) -> IntArray:
        """Return the ids that the encoder sees. Shape (T,), int32; only selected positions may differ.

        Args:
            instances: The flat batch.
            selection: The units to corrupt.
            draws: The keyed random numbers; use purposes that begin with "replacement".
            vocabulary: Special ids, vocabulary size, corpus counts.
        """
