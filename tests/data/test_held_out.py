"""Held-out documents: chosen by their texts alone."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from maskwright.data.held_out import document_key, held_out

TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), min_size=1, max_size=60)


def chosen(texts: list[str], limit: int) -> list[bool]:
    keys = np.array([document_key(text) for text in texts], dtype=np.uint64)
    return held_out(keys, np.array([1 + len(text) for text in texts]), limit).tolist()


@given(TEXTS, st.integers(0, 100))
def test_held_out_documents_fit_and_do_not_depend_on_their_order(texts: list[str], limit: int) -> None:
    mask = chosen(texts, limit)
    assert sum(1 + len(text) for text, held in zip(texts, mask, strict=True) if held) <= limit
    held = {text for text, is_held in zip(texts, mask, strict=True) if is_held}
    assert held.isdisjoint(text for text, is_held in zip(texts, mask, strict=True) if not is_held)
    assert chosen(texts[::-1], limit) == mask[::-1]
    if not all(mask):
        # Every other text is larger than what is left.
        left = limit - sum(1 + len(text) for text, is_held in zip(texts, mask, strict=True) if is_held)
        kept = [text for text, is_held in zip(texts, mask, strict=True) if not is_held]
        assert all(kept.count(text) * (1 + len(text)) > left for text in kept)


def test_keys_are_those_of_earlier_versions() -> None:
    assert document_key("A text.") == 16861637715978218002
