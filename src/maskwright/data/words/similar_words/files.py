"""Files of similar words: groups of synonyms, or word vectors in the text format of word2vec and GloVe.

Files are UTF-8, optionally compressed (.gz, .zst). Of the vectors, only those of the corpus's words are kept.
"""

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskwright.core.errors import DataError
from maskwright.core.types import IntArray
from maskwright.data.progress import Progress
from maskwright.data.sources.files import decompressed, lines_in, reading, undecodable
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.words.similar_words.counting import CountedWords, spellings

_FORMATS = (
    "groups of synonyms (a line of words, between spaces, commas or tabs), or word vectors as text (word2vec, GloVe)"
)
_SEPARATORS = re.compile(r"[\s,，、;；|]+")
_MIN_NUMBERS = 8  # a line of a word and more numbers than this is a vector
_LINES_AT_ONCE = 8192

Synonyms = dict[str, list[str]]
"""For each word its synonyms, in the file's order."""


def holds_vectors(path: Path) -> bool:
    """Return whether a file contains word vectors, not groups of synonyms, from its first lines.

    Raises:
        DataError: If it cannot be read, is empty, or is obviously something else.
    """
    if not path.is_file():
        raise DataError(
            f"there is no file {str(path)!r} with similar words",
            allowed="corpus, or the path of a file of synonyms or of word vectors",
            todo="Check replacement.table.source.",
        )
    lines = (line.decode("utf-8-sig", errors="replace").split() for _, line in _lines(path))
    first, second = [*islice(filter(None, lines), 2), [], []][:2]
    if not first:
        raise DataError(f"{path} contains no line of text, so no similar words", allowed=_FORMATS)
    if first[0].startswith(("{", "[", "<")):
        raise DataError(f"{path} looks like {'XML' if first[0][0] == '<' else 'JSON'}", allowed=_FORMATS)
    if not _is_header(first):
        return len(first) > _MIN_NUMBERS and _numbers(first, len(first) - 1) is not None
    if _numbers(second, int(first[1])) is None:
        raise DataError(
            f"{path}, line 2: the first line promises {int(first[0]):,} vectors of {int(first[1])} numbers, but this "
            "is not a word and so many numbers",
            todo="Save word2vec's vectors in its text format (a .bin file is its binary format).",
        )
    return True


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with reading(path) as file:
        yield from enumerate(lines_in(decompressed(file, path), str(path)), 1)


def _is_header(fields: list[str]) -> bool:
    return len(fields) == 2 and all(field.isascii() and field.isdigit() for field in fields)


def _numbers(fields: list[str], size: int) -> NDArray[np.float32] | None:
    """Return the last `size` fields of a line with more fields as numbers, None if they are not."""
    if not 0 < size < len(fields):
        return None
    try:
        return np.array(fields[-size:], dtype=np.float32)
    except ValueError:
        return None


def read_synonyms(path: Path) -> tuple[Synonyms, str]:
    """Read groups of synonyms; each word of a line is similar to the others. Also describe the file.

    Raises:
        DataError: If it is not UTF-8, or no line has two words.
    """
    found: dict[str, dict[str, None]] = {}
    groups = 0
    for number, line in _lines(path):
        try:
            text = line.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            bad = undecodable(line, error, str(path), number)
            raise DataError(f"{bad.place}: {bad.problem}", allowed=_FORMATS, todo=f"{bad.todo}.") from error
        words = [word for word in _SEPARATORS.split(text) if word]
        groups += len(words) > 1
        for word in words:
            found.setdefault(word, {}).update(dict.fromkeys(other for other in words if other != word))
    synonyms = {word: list(others) for word, others in found.items() if others}
    if not synonyms:
        raise DataError(f"{path} names no two words as synonyms", allowed=_FORMATS)
    word, first = next(iter(synonyms.items()))
    return synonyms, (
        f"{path.name}: {groups:,} groups of synonyms, {len(synonyms):,} words; first {word} ~ {', '.join(first[:3])}"
    )


def read_vectors(
    path: Path, words: CountedWords, tokenizer: Tokenizer, progress: Progress
) -> tuple[list[tuple[IntArray, NDArray[np.float32]]], str]:
    """Read the vectors of the corpus's words; of a repeated word the first counts.

    Returns:
        For each way of writing words (`spellings`): numbers of words, shape (K,), ascending, and their vectors, shape
        (K, size); and a description of the file.

    Raises:
        DataError: If a line is not a word and as many numbers as the others; file and line are named.
    """
    found: dict[int, dict[int, NDArray[np.float32]]] = {}
    size = done = 0
    # Broken words occur in published files; as unknown characters they match no word.
    rows = ((number, line.decode("utf-8-sig", errors="replace").split()) for number, line in _lines(path))
    vectors = ((number, row) for number, row in rows if row and not (number == 1 and _is_header(row)))
    while block := list(islice(vectors, _LINES_AT_ONCE)):
        size = size or len(block[0][1]) - 1
        if short := next((number for number, row in block if len(row) <= size), None):
            raise _not_a_vector(path, short, size)
        names = [" ".join(row[:-size]) for _, row in block]
        for way, encoded in enumerate(spellings(names, tokenizer, capitals=False)):
            known = words.numbers_of(encoded)
            for place in np.flatnonzero(known >= 0).tolist():
                number, row = block[place]
                vector = _numbers(row, size)
                if vector is None:
                    raise _not_a_vector(path, number, size)
                found.setdefault(way, {}).setdefault(int(known[place]), vector)
        done += len(block)
        progress("reading word vectors", done, None)
    ordered = [sorted(of_way.items()) for of_way in found.values()]
    return [
        (np.array([word for word, _ in pairs]), np.stack([vector for _, vector in pairs])) for pairs in ordered
    ], f"{path.name}: {done:,} word vectors of {size} numbers"


def _not_a_vector(path: Path, number: int, size: int) -> DataError:
    return DataError(f"{path}, line {number}: not a word and {size} numbers", todo="Correct or remove that line.")
