"""Corrupted sequences token by token: what stood there, what the encoder sees, which unit it is of."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from maskwright.core.types import Examples
from maskwright.data.tokenizers.tokenizer import Tokenizer

Change = Literal["masked", "replaced", "kept"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownToken:
    """One token of a sequence.

    Attributes:
        seen: What the encoder sees, readably (without the leading space of byte-level tokens).
        original: What stood there before.
        seen_id, original_id: Their ids.
        segment: 0 or 1.
        begins_word: Whether a word begins here.
        special: Whether the layout put it in.
        unit: Number of the selected unit it belongs to, counted in its sequence from 0; None if not selected.
        change: What became of a selected token: "masked", "replaced" by another token, or "kept"; else None.
    """

    seen: str
    original: str
    seen_id: int
    original_id: int
    segment: int
    begins_word: bool
    special: bool
    unit: int | None
    change: Change | None

    def continues_unit(self, previous: "ShownToken") -> bool:
        """Whether the token before it is of the same selected unit."""
        return self.unit is not None and self.unit == previous.unit

    @property
    def says_that_it_continues(self) -> bool:
        """Whether it can be read off the token itself that it goes on with a word (WordPiece's "##")."""
        return self.seen.startswith("##")


@dataclass(frozen=True, slots=True)
class ShownSequence:
    """One sequence.

    Attributes:
        tokens: In order.
        pair_label: 0 or 1, which the format gives a meaning (`Format.label_meanings`); -1 = no label.
    """

    tokens: tuple[ShownToken, ...]
    pair_label: int

    def count(self, change: Change) -> int:
        """How many selected tokens were changed in this way."""
        return sum(token.change == change for token in self.tokens)

    @property
    def num_selected(self) -> int:
        """How many tokens were selected."""
        return sum(token.change is not None for token in self.tokens)


def shown_sequences(examples: Examples, tokenizer: Tokenizer) -> Iterator[ShownSequence]:
    """Yield a batch's sequences with their tokens as text."""
    instances, selection = examples.instances, examples.selection
    units = np.full(len(instances.ids), -1, dtype=np.int64)
    units[selection.positions] = selection.units
    for number, (start, end) in enumerate(zip(instances.cu_seqlens[:-1], instances.cu_seqlens[1:], strict=True)):
        inside = units[start:end]
        first_unit = int(inside[inside >= 0].min()) if (inside >= 0).any() else 0
        tokens = tuple(
            _token(examples, tokenizer, position, int(units[position]), first_unit)
            for position in range(int(start), int(end))
        )
        yield ShownSequence(tokens, int(instances.pair_labels[number]))


def _token(examples: Examples, tokenizer: Tokenizer, position: int, unit: int, first_unit: int) -> ShownToken:
    instances = examples.instances
    original, seen = int(instances.ids[position]), int(examples.corrupted[position])
    return ShownToken(
        seen=_readable(tokenizer, seen),
        original=_readable(tokenizer, original),
        seen_id=seen,
        original_id=original,
        segment=int(instances.segment_ids[position]),
        begins_word=bool(instances.word_starts[position]),
        special=bool(instances.special[position]),
        unit=unit - first_unit if unit >= 0 else None,
        change=_change(original, seen, tokenizer.special_tokens.mask) if unit >= 0 else None,
    )


def _readable(tokenizer: Tokenizer, id: int) -> str:
    text = tokenizer.token_text(id)
    stripped = text.strip()
    # A token of white space alone would vanish; its escaped form does not.
    return stripped or (repr(text)[1:-1] if text.strip(" ") else "␣" * len(text))


def _change(original: int, seen: int, mask: int) -> Change:
    if seen == mask:
        return "masked"
    return "kept" if seen == original else "replaced"
