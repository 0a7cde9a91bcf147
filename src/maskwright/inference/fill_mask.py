"""Fill masks: tokenize a text with masks, and turn the scores at a mask into its best tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from maskwright.core.errors import DataError, MaskwrightError
from maskwright.core.types import IntArray
from maskwright.data.tokenizers.tokenizer import Tokenizer

MASK_FORMS = ("[MASK]", "<mask>")
"""Accepted spellings of a mask, for every model."""


@dataclass(frozen=True, slots=True)
class MaskPrediction:
    """One predicted token.

    Attributes:
        score: Its probability, in [0, 1].
        token: Readable: "##ing" continues a word, " the" includes the space before it.
        sequence: The text with this one mask filled.
    """

    score: float
    token: str
    token_id: int
    sequence: str


@dataclass(frozen=True, slots=True)
class MaskedText:
    """A tokenized text with masks.

    Attributes:
        text: The text with the model's own mask tokens.
        ids: Shape (L,), with special tokens.
        positions: Shape (K,), of the masks in `ids`.
        spans: Shape (K, 2), the characters [start, end) of each mask in `text`.
        is_truncated: Whether the text was truncated to the part around the masks.
    """

    text: str
    ids: IntArray
    positions: IntArray
    spans: IntArray
    is_truncated: bool


def read_masks(text: str, name: str, tokenizer: Tokenizer, max_length: int) -> MaskedText:
    """Tokenize a text and find its masks, `[MASK]` or `<mask>`; `name` is for messages, e.g. "text 3".

    A text of more than `max_length` tokens, special ones included, is truncated to the part around the masks, with the
    masks in its middle if possible. Raises DataError if there is no mask, or the masks are too far apart for one
    sequence.
    """
    special = tokenizer.special_tokens
    mask_name = special.names[4]
    for form in MASK_FORMS:
        text = text.replace(form, mask_name)
    encoded = tokenizer.encode_around_masks(text)
    masks = np.flatnonzero(encoded.ids == special.mask)
    if not len(masks):
        raise DataError(
            f"{name} has no mask: {_shortened(text)!r}",
            allowed=" or ".join(MASK_FORMS),
            hint="Write it in place of the token to predict",
        )
    longest = max_length - 2
    low, high = _window(int(masks[0]), int(masks[-1]) + 1, len(encoded.ids), longest)
    if high - low < masks[-1] + 1 - masks[0]:
        raise DataError(
            f"{name} has masks {int(masks[-1] - masks[0])} tokens apart: {_shortened(text)!r}",
            allowed=f"masks within {longest} tokens, the maximum length of the model",
            hint="Split the text",
        )
    return MaskedText(
        text=text,
        ids=np.concatenate([[special.cls], encoded.ids[low:high], [special.sep]]),
        positions=masks - low + 1,
        spans=encoded.offsets[masks],
        is_truncated=high - low < len(encoded.ids),
    )


def _window(first: int, last: int, length: int, longest: int) -> tuple[int, int]:
    """Return [low, high) within [0, length), at most `longest` wide, with [first, last) in its middle if possible."""
    low = first - (longest - (last - first)) // 2
    low = max(0, min(low, length - longest))
    return low, min(low + longest, length)


def best_tokens(logits: Tensor, top_k: int, vocab_size: int) -> tuple[Tensor, Tensor]:
    """Return the probabilities and ids of the best tokens for logits (M, V), best first, (M, top_k) each, on the CPU.

    Models padded to a round V have more rows than `vocab_size`, the tokenizer's; these count in the probabilities, as
    in training, and are never predicted.
    """
    scores, ids = torch.softmax(logits.float(), dim=-1)[:, :vocab_size].topk(top_k, dim=-1)
    return scores.cpu(), ids.cpu()


def fill(
    masked: MaskedText, number: int, scores: Sequence[float], ids: Sequence[int], tokenizer: Tokenizer
) -> list[MaskPrediction]:
    """Put the best tokens (probabilities and ids) of mask `number` into its text."""
    start, end = masked.spans[number].tolist()
    before, after = masked.text[:start], masked.text[end:]
    tokens = [tokenizer.token_text(id) for id in ids]
    return [
        MaskPrediction(score, token, id, _join(before, token, tokenizer) + after)
        for score, token, id in zip(scores, tokens, ids, strict=True)
    ]


def _join(before: str, token: str, tokenizer: Tokenizer) -> str:
    if tokenizer.kind == "wordpiece":
        prefix: str = tokenizer.backend.model.continuing_subword_prefix
        continues = token.startswith(prefix) and token != prefix
        return before.rstrip() + token.removeprefix(prefix) if continues else before + token
    # A byte-level or unigram mask includes the white space before it, as does the token.
    if token.startswith(" "):
        return before + (token.lstrip() if before == "" or before[-1].isspace() else token)
    return before.rstrip() + token


def _shortened(text: str, width: int = 60) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def never_saw_masks(folder: Path) -> bool:
    """Return whether a directory is a run whose recipe never uses the mask token (MacBERT)."""
    recipe = folder / "recipe.json"
    if not recipe.is_file():
        return False
    from maskwright.recipes.catalog import resolve  # The recipes take longer to import than what embeddings need.

    try:
        return not resolve(str(recipe)).replacement.shows_masks
    except MaskwrightError:
        return False
