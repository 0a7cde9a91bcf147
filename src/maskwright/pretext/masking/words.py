"""What maskings of whole words share: a budget that counts tokens or words."""

from typing import Literal, Self

from pydantic import model_validator

from maskwright.core.types import Instances, IntArray
from maskwright.pretext.masking.base import Masking


class WordMasking(Masking):
    """A masking whose units are runs of whole words.

    Attributes:
        budget: What the rate counts and the budget limits: "tokens", or "words" however long they are (a special token
            counts as a word). `max_targets` limits tokens and does not go with "words".
    """

    budget: Literal["tokens", "words"] = "tokens"

    @model_validator(mode="after")
    def _caps_what_it_counts(self) -> Self:
        if self.budget == "words" and self.max_targets is not None:
            raise ValueError(
                f"max_targets {self.max_targets} limits tokens, but budget 'words' counts words; "
                "set max_targets to null or budget to 'tokens'"
            )
        return self

    @property
    def provides(self) -> frozenset[str]:
        """Units are runs of neighbouring tokens."""
        return frozenset({"contiguous_units"})

    def sizes(self, instances: Instances) -> IntArray:
        """Tokens or words of each sequence (see `Masking.sizes`)."""
        if self.budget == "words":
            return self._count(instances, instances.word_starts)
        return super().sizes(instances)
