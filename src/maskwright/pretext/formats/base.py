"""The interface of input formats: documents to a plan of instances, and plan rows to sequences."""

from abc import abstractmethod

import numpy as np

from maskwright.core.errors import RecipeError
from maskwright.core.spec import Spec
from maskwright.core.types import Documents, Instances, IntArray, Plan, SpecialTokens
from maskwright.pretext.formats.assemble import TakeTokens, assemble, sequence_lengths

__all__ = ["Format", "TakeTokens"]


class Format(Spec):
    """Turns running text into sequences. Subclasses are frozen values and implement `plan`."""

    kind: str

    @property
    def provides(self) -> frozenset[str]:
        """Labels for objectives' `needs`: "next_sentence_label", "order_label"."""
        return frozenset()

    @property
    def label_meanings(self) -> tuple[str, str] | None:
        """The meaning of the labels 0 and 1 in words; None without labels."""
        return None

    @abstractmethod
    def plan(self, documents: Documents, max_length: int, seed: int, mask_sample: int) -> Plan:
        """Plan one epoch of documents, in corpus order, whose sentences have at least one token.

        Args:
            max_length: Maximum tokens per sequence, with special tokens.
            seed: Random choices are keyed by (seed, "layout", mask_sample, document), documents without sentences not
                counted.
            mask_sample: Index of the sample of layouts and masks.

        Raises:
            RecipeError: If `max_length` is too small for text.
        """

    def separator_points(self, documents: Documents) -> IntArray:
        """Return ascending token offsets at which `lay_out` inserts a separator inside a text. Shape (K,)."""
        return np.zeros(0, dtype=np.int64)

    def lay_out(
        self, plan: Plan, take: TakeTokens, special_tokens: SpecialTokens, separator_points: IntArray
    ) -> Instances:
        """Turn plan rows into sequences with special tokens; `take` reads token ranges of the corpus."""
        return assemble(plan, take, special_tokens, separator_points=separator_points)

    def lengths(self, plan: Plan, separator_points: IntArray) -> IntArray:
        """Return the number of tokens of each row's sequence, without reading text. Shape (N,), int64."""
        return sequence_lengths(plan, separator_points)

    def _text_length(self, max_length: int, num_specials: int, needed: int) -> int:
        text_length = max_length - num_specials
        if text_length < needed:
            raise RecipeError(
                f"format {self.kind!r} cannot lay out sequences of length {max_length}: "
                f"{num_specials} positions are special tokens",
                allowed=f"a length of at least {num_specials + needed}",
                todo="Raise the max_length of the training phase",
            )
        return text_length
