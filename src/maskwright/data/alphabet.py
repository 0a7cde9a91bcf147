"""Which characters a WordPiece vocabulary holds: those that cover the text, and all of printable ASCII.

A word with one character outside the alphabet is lost whole ([UNK]), so the alphabet is chosen by coverage
and not by a fixed number: the usual limit of 1,000 characters makes a tenth of Chinese text unknown.
"""

import string
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from tokenizers import normalizers, pre_tokenizers

from maskwright.data.tokenizer_backends import CONTINUATION

COVERAGE = 0.99995
"""Share of the sample's characters that the alphabet covers at least, where the vocabulary has room."""

FREQUENT = 100
"""A character seen this often is in the alphabet even beyond `COVERAGE`."""

MAX_SHARE = 0.8
"""Largest share of the vocabulary that single characters may take; the rest is for words and pieces."""

_CODE_POINTS = 0x110000
_BATCH_CHARACTERS = 1 << 22


@dataclass(frozen=True, slots=True)
class Alphabet:
    """The single-character entries of a WordPiece vocabulary.

    Attributes:
        initial: Characters that may begin a word, ascending.
        continuing: "##" forms of those that may also stand inside a word, ascending. Ideographs and punctuation
            marks always stand alone and have none.
    """

    initial: tuple[str, ...]
    continuing: tuple[str, ...]


def choose_alphabet(
    texts: Iterable[str], room: int, normalizer: normalizers.Normalizer, splitter: pre_tokenizers.PreTokenizer
) -> Alphabet:
    """Choose the alphabet of a sample: most frequent characters first, ties by code point.

    Args:
        texts: The sample, as it stands in the corpus.
        room: Entries the vocabulary has for the alphabet.
        normalizer: The tokenizer's cleaning.
        splitter: The tokenizer's splitting into words.
    """
    counts = count_characters(texts, normalizer)
    ranked = sorted(counts, key=lambda character: (-counts[character], character))
    total, covered = sum(counts.values()), 0
    wanted = []
    for character in ranked:
        if covered >= COVERAGE * total and counts[character] < FREQUENT:
            break
        wanted.append(character)
        covered += counts[character]
    # Addresses, code and numbers come up in later use even where the corpus has none.
    ascii_characters = _normalized(dict.fromkeys(string.printable, 1), normalizer)
    initial: list[str] = []
    continuing: list[str] = []
    for character in dict.fromkeys([*wanted, *sorted(ascii_characters)]):
        inside = len(splitter.pre_tokenize_str(normalizer.normalize_str(f"a{character}"))) == 1
        if len(initial) + len(continuing) + 1 + inside > room:
            break
        initial.append(character)
        if inside:
            continuing.append(CONTINUATION + character)
    return Alphabet(tuple(sorted(initial)), tuple(sorted(continuing)))


def count_characters(texts: Iterable[str], normalizer: normalizers.Normalizer) -> dict[str, int]:
    """Return how often each character occurs in texts that a tokenizer has cleaned; white space is not counted.

    Args:
        texts: The texts, as they stand in the corpus.
        normalizer: The cleaning, one that works character by character.
    """
    return _normalized(_count_code_points(texts), normalizer)


def _count_code_points(texts: Iterable[str]) -> dict[str, int]:
    counts = np.zeros(_CODE_POINTS, dtype=np.int64)
    batch: list[str] = []
    waiting = 0
    for text in texts:
        batch.append(text)
        waiting += len(text)
        if waiting >= _BATCH_CHARACTERS:
            counts += _bincount(batch)
            batch, waiting = [], 0
    counts += _bincount(batch)
    return {chr(code): int(counts[code]) for code in np.flatnonzero(counts)}


def _bincount(batch: list[str]) -> "np.ndarray[tuple[int], np.dtype[np.intp]]":
    codes = np.frombuffer("".join(batch).encode("utf-32-le"), dtype="<u4")
    return np.bincount(codes, minlength=_CODE_POINTS)


def _normalized(counts: dict[str, int], normalizer: normalizers.Normalizer) -> dict[str, int]:
    # Cleaning each distinct character once is the same as cleaning the text, and fast.
    result: dict[str, int] = {}
    for character, count in counts.items():
        for cleaned in normalizer.normalize_str(character):
            if not cleaned.isspace():
                result[cleaned] = result.get(cleaned, 0) + count
    return result
