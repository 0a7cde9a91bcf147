"""Half characters, which no tokenizer takes: what a stray byte becomes here, and what `\\ud83d` alone is in JSON."""

import re

HALF_CHARACTER = re.compile(r"[\ud800-\udfff]")


def told_half_character(text: str) -> str:
    """Say where a text's first half character is; "" if it has none."""
    if text.isascii() or (half := HALF_CHARACTER.search(text)) is None:
        return ""
    return f"half a character at position {half.start() + 1} of the text (broken UTF-8 or a lone surrogate)"
