"""The interface of input formats: documents to a plan of instances, and plan rows to sequences."""

from abc import abstractmethod
from typing import ClassVar, Literal

import numpy as np

from maskwright.core.errors import RecipeError
from maskwright.core.spec import Spec
from maskwright.core.types import Documents, Instances, IntArray, Plan, SpecialTokens
from maskwright.pretext.formats.assemble import TakeTokens, assemble, sequence_lengths

__all__ = ["Format", "PairFormat", "TakeTokens"]


class Format(Spec):
    """Turns running text into sequences. Subclasses are frozen values and implement `plan`.

    Attributes:
        kind: The format's name in recipes.
        tells_by_segments: Whether segments say something that nothing else in a sequence does, so that the encoder
            must tell two kinds of them apart.
        sentences_are_lines: Whether a sentence is a line as it was written (a turn of a dialogue): it may hold several
            sentences, and stays one.
    """

    kind: str
    tells_by_segments: ClassVar[bool] = False
    sentences_are_lines: ClassVar[bool] = False

    @property
    def provides(self) -> frozenset[str]:
        """Facts that instances carry, for objectives' `needs`.

        They are "next_sentence_label", "order_label" and "dialogue_label".
        """
        return frozenset()

    @property
    def label_meanings(self) -> tuple[str, str] | None:
        """What the labels 0 and 1 say of a sequence, in words; None where no sequence has one."""
        return None

    @abstractmethod
    def plan(self, documents: Documents, max_length: int, seed: int, refresh: int) -> Plan:
        """Plan one pass over the documents.

        Args:
            documents: The documents, in corpus order. Every sentence has at least one token.
            max_length: Tokens a sequence may have, specials counted.
            seed: The run's seed; random choices are keyed by (seed, "layout", refresh, document).
            refresh: Which redrawing of the layout this is.

        Raises:
            RecipeError: If `max_length` leaves no room for text.
        """

    def separator_points(self, documents: Documents) -> IntArray:
        """Token offsets where an extra separator stands if a text runs across them, for `lay_out`.

        Ascending, shape (K,); none by default. One call serves a whole pass.
        """
        return np.zeros(0, dtype=np.int64)

    def lay_out(
        self, plan: Plan, take: TakeTokens, special_tokens: SpecialTokens, separator_points: IntArray
    ) -> Instances:
        """Turn plan rows into sequences with their special tokens. Vectorised over all rows.

        Args:
            plan: The rows to lay out.
            take: Reads token ranges of the corpus.
            special_tokens: Ids of the classification and separator tokens.
            separator_points: What `separator_points` gave for the planned documents.
        """
        return assemble(plan, take, special_tokens, separator_points=separator_points)

    def lengths(self, plan: Plan, separator_points: IntArray) -> IntArray:
        """Return how many tokens each row's sequence will have, before anything is read. Shape (N,), int64.

        Arguments are those of `lay_out`.
        """
        return sequence_lengths(plan, separator_points=separator_points)

    def _room(self, max_length: int, num_specials: int, needed: int) -> int:
        room = max_length - num_specials
        if room < needed:
            raise RecipeError(
                f"format {self.kind!r} cannot lay out sequences of length {max_length}: "
                f"{num_specials} places go to special tokens",
                allowed=f"a length of at least {num_specials + needed}",
                todo="Raise the max_length of the training phase",
            )
        return room


class PairFormat(Format):
    """A format whose sequences hold two texts (or one, where a text finds no partner).

    Attributes:
        num_separators_between: Separators between the texts: 1 (BERT) or 2 (RoBERTa).
    """

    num_separators_between: Literal[1, 2] = 1

    def pair_room(self, max_length: int) -> int:
        """Tokens left for both texts of a pair; at least 2."""
        return self._room(max_length, 2 + self.num_separators_between, needed=2)

    def lay_out(
        self, plan: Plan, take: TakeTokens, special_tokens: SpecialTokens, separator_points: IntArray
    ) -> Instances:
        """Turn plan rows into sequences with their special tokens (see `Format.lay_out`)."""
        return assemble(
            plan,
            take,
            special_tokens,
            num_separators_between=self.num_separators_between,
            separator_points=separator_points,
        )

    def lengths(self, plan: Plan, separator_points: IntArray) -> IntArray:
        """Return how many tokens each row's sequence will have (see `Format.lengths`)."""
        return sequence_lengths(
            plan, num_separators_between=self.num_separators_between, separator_points=separator_points
        )
