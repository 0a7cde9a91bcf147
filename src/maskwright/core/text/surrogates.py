"""Lone surrogates, which tokenizers refuse: bytes that are not UTF-8 become one, and `\\ud83d` alone in JSON is one."""

import re

SURROGATE = re.compile(r"[\ud800-\udfff]")


def surrogate_problem(text: str) -> str:
    """Return where a text's first lone surrogate is, as a message; "" if it has none."""
    if text.isascii() or (match := SURROGATE.search(text)) is None:
        return ""
    return f"lone surrogate at position {match.start() + 1} of the text (broken UTF-8)"
