"""Texts that overlap: near duplicates (`Cleaning.near_duplicates`), and evaluation text (`Cleaning.exclude`)."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.core.errors import DataError
from maskwright.core.extras import imported
from maskwright.core.randomness import hash_64
from maskwright.core.storage.files import parse_json
from maskwright.data.cleaning.text import Cleaning, clean_document
from maskwright.data.files import COMPRESSIONS, decode_lines, decompressed, reading, refuse_line
from maskwright.data.scripts import HAN_AND_KANA
from maskwright.data.tables import json_values

BANDS, _BAND_SIZE, _BAND_NGRAM = 14, 8, 5
LEAK_NGRAM = 13
"""Length in words of the n-grams compared; the maximum of Brown et al. (2020, appendix C)."""
_WORDS = re.compile(f"[{HAN_AND_KANA}]|[^\\W{HAN_AND_KANA}]+")


def words_of(text: str) -> list[str]:
    """Return the words in lower case, without punctuation; a character of Chinese or Japanese is a word."""
    return _WORDS.findall(text.lower())


def hash_of(text: bytes) -> int:
    """Return 64 bits that are not 0."""
    # 64 bits: among a thousand million paragraphs, the chance that any two different ones collide is 3 %.
    return hash_64(text) or 1


def band_hashes(text: str) -> list[int]:
    """Return the hash of each band of a document's MinHash over sequences of words (`Cleaning.near_duplicates`)."""
    rensa = imported("rensa", "near_duplicates", "dedup")
    words = words_of(text)
    minhash = rensa.RMinHash(num_perm=BANDS * _BAND_SIZE, seed=0)
    minhash.update([" ".join(words[n : n + _BAND_NGRAM]) for n in range(max(1, len(words) - _BAND_NGRAM + 1))])
    digest = np.array(minhash.digest(), dtype="<u4").reshape(BANDS, _BAND_SIZE)
    return [hash_of(band.tobytes()) for band in digest]


def shares_text(paragraph: str, hashes: NDArray[np.uint64]) -> bool:
    """Return whether a paragraph shares 13 words in a row with the texts of `excluded_hashes`."""
    of_paragraph = _hashes(paragraph)
    indices = np.minimum(np.searchsorted(hashes, of_paragraph), len(hashes) - 1)
    return bool((hashes[indices] == of_paragraph).any())


def _hashes(text: str) -> NDArray[np.uint64]:
    words = words_of(text)
    sequences = (" ".join(words[start : start + LEAK_NGRAM]) for start in range(len(words) - LEAK_NGRAM + 1))
    return np.array([hash_of(sequence.encode()) for sequence in sequences], dtype=np.uint64)


def excluded_hashes(cleaning: Cleaning) -> NDArray[np.uint64]:
    """Return the hashes of all sequences of 13 words in the files of `cleaning.exclude`, sorted.

    Raises DataError if a file cannot be read or has no such sequence.
    """
    by_file = []
    for name in cleaning.exclude:
        texts = (paragraph for text in _texts(Path(name).expanduser()) for paragraph in clean_document(text, cleaning))
        hashes = np.unique(np.concatenate([np.empty(0, dtype=np.uint64), *map(_hashes, texts)]))
        if not len(hashes):
            raise DataError(
                f"no text in {name} has {LEAK_NGRAM} words, so none of it can be found in the corpus",
                hint="Leave it out of `--clean exclude=[...]`.",
            )
        by_file.append(hashes)
    return np.unique(np.concatenate(by_file))


def _texts(path: Path) -> Iterator[str]:
    """Yield the texts of an evaluation file: all strings in JSON or JSON Lines, the lines of any other text file."""
    with reading(path) as file:
        text = decode_lines(decompressed(file, path).read(), str(path)).removeprefix("\ufeff")
    lines = text.split("\n")  # Other line separators of Unicode are text, in JSON too.
    suffix = next((suffix for suffix in reversed(path.suffixes) if suffix not in COMPRESSIONS), "")
    if not suffix.startswith(".json"):
        yield from lines
        return
    try:
        yield from _strings(parse_json(text))
    except ValueError:
        for *_, value in json_values(lines, str(path), refuse_line):
            yield from _strings(value)


def _strings(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        match waiting.pop():
            case str(text):
                yield text
            case dict(entries):
                waiting += entries.values()
            case list(items):
                waiting += items
