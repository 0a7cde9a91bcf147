"""How a word of a file may stand in running text, as token ids: after a space or not, capitalised or not."""

from collections.abc import Iterator, Sequence

import numpy as np

from maskwright.core.types import IntArray
from maskwright.data.tokenizer import Tokenizer


def spellings(words: Sequence[str], tokenizer: Tokenizer, *, capitals: bool) -> Iterator[list[IntArray]]:
    """Yield the token ids of all words, once for each way of writing them that the tokenizer tells apart.

    Byte-level BPE has other tokens after a space; a tokenizer that keeps capitals has others at the beginning of a
    sentence. A word that cannot be written that way (one with a space inside, one that needs an unknown token) has
    no tokens.

    Args:
        words: As a file names them.
        tokenizer: The tokenizer.
        capitals: Whether lower-case words are also written with a capital.
    """
    special = tokenizer.special_tokens
    never = {special.pad, special.unk, special.cls, special.sep, special.mask}
    none = np.empty(0, dtype=np.int32)
    forms = [list(words)]
    if capitals and not tokenizer.lowercase:
        forms.append([word[:1].upper() + word[1:] for word in words])
    seen: list[list[bytes]] = []
    for form in forms:
        for before in ("", " "):
            encoded = [ids for ids, _ in tokenizer.encode_batch([before + word for word in form])]
            usable = [
                none if any(map(str.isspace, word)) or not never.isdisjoint(ids.tolist()) else ids
                for word, ids in zip(form, encoded, strict=True)
            ]
            kept = [ids.tobytes() for ids in usable]
            if kept not in seen:
                seen.append(kept)
                yield usable
