"""Word vectors from a text file, as word2vec and GloVe write them; only those of the corpus's words are kept."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskwright.core.errors import DataError
from maskwright.core.similar_words import word_hashes
from maskwright.core.types import IntArray
from maskwright.data.compression import decompressed, reading
from maskwright.data.progress import Progress
from maskwright.data.similar_words.counting import CountedWords
from maskwright.data.similar_words.spelling import spellings
from maskwright.data.tokenizer import Tokenizer

_LINES_AT_ONCE = 8192


@dataclass(frozen=True, slots=True)
class FileVectors:
    """Vectors of corpus words.

    Attributes:
        spellings: For each way of writing words (see `spelling.spellings`): (numbers of words, shape (K,), no two
            alike; their vectors, shape (K, size)).
        told: What was read, in words.
    """

    spellings: list[tuple[IntArray, NDArray[np.float32]]]
    told: str


def read_vectors(path: Path, words: CountedWords, tokenizer: Tokenizer, progress: Progress) -> FileVectors:
    """Read the vectors of the corpus's words; of a word that is named twice the first counts.

    Raises:
        DataError: If a line is not a word and as many numbers as the others; file and line are named.
    """
    found: dict[int, dict[int, NDArray[np.float32]]] = {}
    size, lines = 0, 0
    for block in _blocks(path):
        size = size or len(block[0][1].split()) - 1
        parted = [line.rsplit(None, size) for _, line in block]
        for (number, line), parts in zip(block, parted, strict=True):
            if len(parts) != size + 1:
                raise _broken(path, number, line, size)
        for way, encoded in enumerate(spellings([parts[0] for parts in parted], tokenizer, capitals=False)):
            kept = found.setdefault(way, {})
            for place, word in _known(encoded, words):
                if word not in kept:
                    kept[word] = _numbers(path, *block[place], parted[place][1:])
        lines += len(block)
        progress("reading word vectors", lines, None)
    return FileVectors(
        [_stacked(vectors) for vectors in found.values() if vectors],
        f"{path.name}: {lines:,} word vectors of {size} numbers",
    )


def check_vectors(path: Path) -> None:
    """Look at the first lines of a file of vectors.

    Raises:
        DataError: If they are no text that is read here.
    """
    next(_blocks(path), None)


def _blocks(path: Path) -> Iterator[list[tuple[int, str]]]:
    """Yield numbered lines, some at a time: UTF-8 or GB 18030, as thesauri are read."""
    with reading(path) as file:
        lines = enumerate(decompressed(file, path), 1)
        while block := list(itertools.islice(lines, _LINES_AT_ONCE)):
            encoding = _encoding_of(path, [line for _, line in block])
            # Broken words occur in published files; as unknown characters they match no word.
            texts = ((number, line.decode(encoding, errors="replace").strip()) for number, line in block)
            filled = [
                (number, text.removeprefix("\ufeff"))
                for number, text in texts
                if text and not (number == 1 and len(text.split()) == 2)
            ]
            if filled:
                yield filled


def _encoding_of(path: Path, lines: list[bytes]) -> str:
    """Return the encoding that fits more of the lines; of two that fit as many, UTF-8.

    Raises:
        DataError: If neither fits half of them.
    """
    telling = [line for line in lines if not line.isascii()]
    if not telling:
        return "utf-8"
    fitting = {encoding: sum(_decodes(line, encoding) for line in telling) for encoding in ("utf-8", "gb18030")}
    best = max(fitting, key=lambda encoding: fitting[encoding])
    if 2 * (len(telling) - fitting[best]) > len(lines):
        raise DataError(
            f"{path} is neither UTF-8 nor GB 18030 text", todo="Save the word vectors as UTF-8, in the text format."
        )
    return best


def _decodes(line: bytes, encoding: str) -> bool:
    try:
        line.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _known(encoded: list[IntArray], words: CountedWords) -> Iterator[tuple[int, int]]:
    """Yield (place in the block, number of the corpus's word) of those that are words of the corpus."""
    places = np.array([place for place, ids in enumerate(encoded) if len(ids)], dtype=np.int64)
    if not len(places):
        return
    lengths = np.array([len(encoded[place]) for place in places])
    hashes = word_hashes(np.concatenate([encoded[place] for place in places]), np.cumsum(lengths) - lengths)
    numbers = words.find(hashes)
    yield from zip(places[numbers >= 0].tolist(), numbers[numbers >= 0].tolist(), strict=True)


def _numbers(path: Path, number: int, line: str, fields: list[str]) -> NDArray[np.float32]:
    try:
        return np.array(fields, dtype=np.float32)
    except ValueError:
        raise _broken(path, number, line, len(fields)) from None


def _stacked(vectors: dict[int, NDArray[np.float32]]) -> tuple[IntArray, NDArray[np.float32]]:
    numbers = np.array(sorted(vectors))
    return numbers, np.stack([vectors[number] for number in numbers.tolist()])


def _broken(path: Path, number: int, line: str, size: int) -> DataError:
    shown = line if len(line) <= 60 else line[:60] + "..."
    return DataError(
        f"{path}, line {number}: {shown!r} is not a word and {size} numbers",
        todo="Mend that line or take it out; all vectors of a file have one size.",
    )
