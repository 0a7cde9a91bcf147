"""Tokenizers that make much text of little: the parts of a tokenizer.json in a row can multiply it a million times."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tokenizers

from maskwright.core.errors import DataError
from maskwright.data.tokenizers.backends import library_errors, state_of

MAX_GROWTH = 128
"""Times that the parts may lengthen a text. The largest of tokenizers in use is 64, by this estimate."""
MAX_TOKENS_PER_CHARACTER = 8
"""Bytes of a character and a space before it are 5."""
_TEXT = "The quick brown fox, 12 dogs (lazy) & a caf\u00e9: \u4e2d\u6587 \U0001f600!\n" * 4
_OF_CHARACTER_MAP = 16


def refuse_growth(backend: tokenizers.Tokenizer, folder: Path) -> None:
    """Raise DataError if a tokenizer multiplies text, by an upper bound of its parts and on an example."""
    encoding = [state_of(part) for part in (backend.normalizer, backend.pre_tokenizer, backend.post_processor)]
    growth = max(math.prod(map(_growth, _parts(state))) for state in (encoding, state_of(backend.decoder)))
    if growth <= MAX_GROWTH:
        with library_errors():
            num_tokens = len(backend.encode(_TEXT, add_special_tokens=False).ids)
        if num_tokens <= MAX_TOKENS_PER_CHARACTER * len(_TEXT):
            return
        problem = f"makes {num_tokens:,} tokens of {len(_TEXT):,} characters"
        allowed = f"up to {MAX_TOKENS_PER_CHARACTER} tokens per character"
    else:
        problem, allowed = f"can make a text {growth:.3g} times as long", f"up to {MAX_GROWTH} times"
    raise DataError(
        f"the tokenizer in {str(folder)!r} {problem}",
        allowed=allowed,
        hint="Correct the Replace, ByteLevel and TemplateProcessing parts of tokenizer.json, or choose another.",
    )


def _parts(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
    for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _parts(each)


def _growth(part: dict[str, Any]) -> float:
    """Return how many times as long a part can make a text, at most."""
    match part.get("type"):
        case "Replace":
            added, replaced = len(part["content"]), len(part["pattern"].get("String", ""))
            # A regular expression may match the empty text between all characters.
            return max(1.0, added / replaced) if replaced else 1.0 + added
        case "ByteLevel":
            return 2.0  # The signs of bytes have up to two bytes themselves.
        case "Precompiled":
            return float(_OF_CHARACTER_MAP)
        case "TemplateProcessing":
            return float(sum("Sequence" in piece for piece in part["single"]))
    return 1.0
