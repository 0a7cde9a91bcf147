"""Files of similar words, their layout detected from the first lines.

Thesauri: HIT Cilin, the Open English WordNet's table of synonyms, and plain groups of synonyms. Word vectors in the
text format of word2vec and GloVe; only those of the corpus's words are kept.
"""

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from maskwright.core.errors import DataError
from maskwright.core.similar_words import word_hashes
from maskwright.core.types import IntArray
from maskwright.data.progress import Progress
from maskwright.data.sources.files import decompressed, reading
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.words.similar_words.counting import CountedWords, spellings

Layout = Literal["cilin", "wordnet", "plain", "vectors"]

READ = (
    "HIT Cilin (`Aa01A01= word word ...`), the Open English WordNet's table (`lemma TAB n TAB synonym|synonym`), plain "
    "groups of synonyms (a line of words, between spaces, commas or tabs), or word vectors as text (word2vec, GloVe)"
)
CILIN_CODE = re.compile(r"([A-Z][a-z][0-9]{2}[A-Z][0-9]{2})([=#@])(?:\s+|$)")
WORDNET_POS = ("n", "v", "a", "r", "s")
_FEWEST_NUMBERS = 8
"""A line of a word and at least so many numbers is a vector."""
_LONGEST_LINE = 1 << 20


def layout_of(path: Path) -> Layout:
    """Tell the layout of a file from its first lines.

    Raises:
        DataError: If it cannot be read, is empty, or is plainly something else.
    """
    if not path.is_file():
        raise DataError(
            f"{str(path)!r}, where similar words should come from, is no file here",
            allowed="corpus, or the path of a thesaurus or of word vectors",
            todo="Check replacement.table.source.",
        )
    with reading(path) as file:
        text = decompressed(file, path)
        lines = [line.strip() for line in (text.readline(_LONGEST_LINE) for _ in range(100)) if line.strip()][:2]
    if not lines:
        raise DataError(f"{path} holds no line of text, so no similar words", allowed=READ)
    first = lines[0].removeprefix(b"\xef\xbb\xbf").decode("utf-8", errors="replace")
    if first.startswith(("{", "[", "<")):
        raise DataError(f"{path} looks like {'XML' if first[0] == '<' else 'JSON'}", allowed=READ)
    fields = first.split()
    if len(fields) == 2 and all(field.isascii() and field.isdigit() for field in fields):
        size = int(fields[1])
        if len(lines) < 2 or not _is_vector(lines[1].decode("utf-8", errors="replace").rsplit(maxsplit=size), size):
            raise DataError(
                f"{path}, line 2: the first line promises {int(fields[0]):,} vectors of {size} numbers, but this is "
                "not a word and so many numbers",
                todo="Save word2vec's vectors in its text format (a .bin file is its binary format).",
            )
        return "vectors"
    if _is_vector(fields, len(fields) - 1) and len(fields) > _FEWEST_NUMBERS:
        return "vectors"
    if CILIN_CODE.match(first):
        return "cilin"
    columns = first.split("\t")
    return "wordnet" if len(columns) == 3 and columns[1] in WORDNET_POS else "plain"


def _is_vector(fields: list[str], size: int) -> bool:
    if size < 1 or len(fields) < size + 1:
        return False
    try:
        [float(field) for field in fields[-size:]]
    except ValueError:
        return False
    return True


_BETWEEN_WORDS = re.compile(r"[\s,，、;；|]+")


@dataclass(frozen=True, slots=True)
class Thesaurus:
    """Which words a thesaurus calls synonyms.

    Attributes:
        synonyms: Of each word, the others, in the file's order.
        description: What was read, in words.
    """

    synonyms: dict[str, list[str]]
    description: str


def read_thesaurus(path: Path, layout: Layout) -> Thesaurus:
    """Read a thesaurus file of a known layout, UTF-8 or GB 18030 (Cilin's own GBK is a part of it).

    Raises:
        DataError: If a line does not fit the layout, or no two words are synonyms; file and line are named.
    """
    synonyms: dict[str, dict[str, None]] = {}
    groups, left_out = 0, 0
    reader = {"cilin": _cilin, "wordnet": _wordnet, "plain": _plain}[layout]
    for group in reader(path, _lines(path)):
        if group is None:
            left_out += 1
            continue
        groups += 1
        for word in group.words:
            synonyms.setdefault(word, {}).update(dict.fromkeys(other for other in group.others if other != word))
    found = {word: list(others) for word, others in synonyms.items() if others}
    if not found:
        raise DataError(f"{path} names no two words as synonyms", allowed=READ)
    word, others = next(iter(found.items()))
    name, kind, without = {
        "cilin": ("HIT Cilin", "classes of synonyms", "of merely related or single words"),
        "wordnet": ("the Open English WordNet", "words with synonyms", ""),
        "plain": ("plain groups", "groups of synonyms", "of a single word"),
    }[layout]
    rest = f" ({left_out:,} {without} left out)" if left_out else ""
    return Thesaurus(
        found,
        f"{path.name}, {name}: {groups:,} {kind}{rest}, {len(found):,} words; first {word} ~ {', '.join(others[:3])}",
    )


@dataclass(frozen=True, slots=True)
class _Group:
    """Every one of `words` has all of `others` (but itself) as synonyms."""

    words: list[str]
    others: list[str]


_Lines = Iterable[tuple[int, str]]


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with reading(path) as file:
        data = decompressed(file, path).read()
    for encoding in ("utf-8-sig", "gb18030"):
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            yield from ((number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip())
            return
    raise DataError(f"{path} is neither UTF-8 nor GB 18030 text", allowed=READ)


def _cilin(path: Path, lines: _Lines) -> Iterator[_Group | None]:
    """Read `Aa01A01= word word`: "=" marks synonyms, "#" words that are related, "@" a word that stands alone."""
    for number, line in lines:
        code = CILIN_CODE.match(line)
        if code is None:
            raise _broken_thesaurus(path, number, line, "a class of HIT Cilin: a code such as `Aa01A01=`, then words")
        words = line[code.end() :].split()
        yield _Group(words, words) if code[2] == "=" else None


def _wordnet(path: Path, lines: _Lines) -> Iterator[_Group | None]:
    for number, line in lines:
        columns = line.rstrip("\r\n").split("\t")
        if len(columns) != 3 or columns[1] not in WORDNET_POS or not columns[0] or not columns[2]:
            raise _broken_thesaurus(path, number, line, "`lemma TAB n (or v, a, r, s) TAB synonym|synonym`")
        yield _Group([columns[0]], [word for word in columns[2].split("|") if word])


def _plain(path: Path, lines: _Lines) -> Iterator[_Group | None]:
    for _, line in lines:
        words = [word for word in _BETWEEN_WORDS.split(line) if word]
        yield _Group(words, words) if len(words) > 1 else None


def _broken_thesaurus(path: Path, number: int, line: str, expected: str) -> DataError:
    shown = line if len(line) <= 60 else line[:60] + "..."
    return DataError(f"{path}, line {number}: {shown!r} is not {expected}", todo="Mend that line or take it out.")


_LINES_AT_ONCE = 8192


@dataclass(frozen=True, slots=True)
class FileVectors:
    """Vectors of corpus words.

    Attributes:
        spellings: For each way of writing words (see `spelling.spellings`): (numbers of words, shape (K,), no two
            alike; their vectors, shape (K, size)).
        description: What was read, in words.
    """

    spellings: list[tuple[IntArray, NDArray[np.float32]]]
    description: str


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
