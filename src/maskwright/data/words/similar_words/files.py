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

_FORMATS = (
    "HIT Cilin (`Aa01A01= word word ...`), the Open English WordNet's table (`lemma TAB n TAB synonym|synonym`), plain "
    "groups of synonyms (a line of words, between spaces, commas or tabs), or word vectors as text (word2vec, GloVe)"
)
_CILIN_CODE = re.compile(r"([A-Z][a-z][0-9]{2}[A-Z][0-9]{2})([=#@])(?:\s+|$)")
_WORDNET_POS = ("n", "v", "a", "r", "s")
_SEPARATORS = re.compile(r"[\s,，、;；|]+")
_MIN_NUMBERS = 8  # a line of a word and more numbers than this is a vector
_LONGEST_LINE = 1 << 20
_LINES_AT_ONCE = 8192


def layout_of(path: Path) -> Layout:
    """Return the layout of a file, from its first lines.

    Raises:
        DataError: If it cannot be read, is empty, or is obviously something else.
    """
    if not path.is_file():
        raise DataError(
            f"there is no file {str(path)!r} with similar words",
            allowed="corpus, or the path of a thesaurus or of word vectors",
            todo="Check replacement.table.source.",
        )
    with reading(path) as file:
        text = decompressed(file, path)
        lines = [line.strip() for line in (text.readline(_LONGEST_LINE) for _ in range(100)) if line.strip()][:2]
    if not lines:
        raise DataError(f"{path} contains no line of text, so no similar words", allowed=_FORMATS)
    first, second = (line.decode("utf-8", errors="replace").removeprefix("\ufeff") for line in (lines * 2)[:2])
    if first.startswith(("{", "[", "<")):
        raise DataError(f"{path} looks like {'XML' if first[0] == '<' else 'JSON'}", allowed=_FORMATS)
    fields = first.split()
    if _is_header(fields):
        size = int(fields[1])
        if len(lines) < 2 or not _is_vector(second.rsplit(maxsplit=size), size):
            raise DataError(
                f"{path}, line 2: the first line promises {int(fields[0]):,} vectors of {size} numbers, but this is "
                "not a word and so many numbers",
                todo="Save word2vec's vectors in its text format (a .bin file is its binary format).",
            )
        return "vectors"
    if len(fields) - 1 >= _MIN_NUMBERS and _is_vector(fields, len(fields) - 1):
        return "vectors"
    if _CILIN_CODE.match(first):
        return "cilin"
    columns = first.split("\t")
    return "wordnet" if len(columns) == 3 and columns[1] in _WORDNET_POS else "plain"


def _is_header(fields: list[str]) -> bool:
    return len(fields) == 2 and all(field.isascii() and field.isdigit() for field in fields)


def _is_vector(fields: list[str], size: int) -> bool:
    if size < 1 or len(fields) < size + 1:
        return False
    try:
        [float(field) for field in fields[-size:]]
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Thesaurus:
    """For each word its synonyms, in the file's order, and a description of the file."""

    synonyms: dict[str, list[str]]
    description: str


def read_thesaurus(path: Path, layout: Layout) -> Thesaurus:
    """Read a thesaurus file of a known layout, UTF-8 or GB 18030 (which includes Cilin's GBK).

    Raises:
        DataError: If a line does not fit the layout, or no two words are synonyms; file and line are named.
    """
    synonyms: dict[str, dict[str, None]] = {}
    groups, left_out = 0, 0
    parse = {"cilin": _cilin, "wordnet": _wordnet, "plain": _plain}[layout]
    for number, line in _text_lines(path):
        words, others = parse(path, number, line)
        if not words:
            left_out += 1
            continue
        groups += 1
        for word in words:
            synonyms.setdefault(word, {}).update(dict.fromkeys(other for other in others if other != word))
    found = {word: list(others) for word, others in synonyms.items() if others}
    if not found:
        raise DataError(f"{path} names no two words as synonyms", allowed=_FORMATS)
    word, first = next(iter(found.items()))
    name, kind, without = {
        "cilin": ("HIT Cilin", "classes of synonyms", "of merely related or single words"),
        "wordnet": ("the Open English WordNet", "words with synonyms", ""),
        "plain": ("plain groups", "groups of synonyms", "of a single word"),
    }[layout]
    rest = f" ({left_out:,} {without} left out)" if left_out else ""
    return Thesaurus(
        found,
        f"{path.name}, {name}: {groups:,} {kind}{rest}, {len(found):,} words; first {word} ~ {', '.join(first[:3])}",
    )


def _text_lines(path: Path) -> Iterable[tuple[int, str]]:
    with reading(path) as file:
        data = decompressed(file, path).read()
    for encoding in ("utf-8-sig", "gb18030"):
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            return [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    raise DataError(f"{path} is neither UTF-8 nor GB 18030 text", allowed=_FORMATS)


_Group = tuple[list[str], list[str]]
"""Words, and the synonyms of each of them; both empty for a line to leave out."""


def _cilin(path: Path, number: int, line: str) -> _Group:
    """Parse `Aa01A01= word word`: "=" marks synonyms, "#" related words, "@" a single word."""
    code = _CILIN_CODE.match(line)
    if code is None:
        raise _broken(path, number, line, "a class of HIT Cilin: a code such as `Aa01A01=`, then words")
    words = line[code.end() :].split() if code[2] == "=" else []
    return words, words


def _wordnet(path: Path, number: int, line: str) -> _Group:
    columns = line.rstrip("\r\n").split("\t")
    if len(columns) != 3 or columns[1] not in _WORDNET_POS or not columns[0] or not columns[2]:
        raise _broken(path, number, line, "`lemma TAB n (or v, a, r, s) TAB synonym|synonym`")
    return [columns[0]], [word for word in columns[2].split("|") if word]


def _plain(path: Path, number: int, line: str) -> _Group:
    words = [word for word in _SEPARATORS.split(line) if word]
    words = words if len(words) > 1 else []
    return words, words


def _broken(path: Path, number: int, line: str, expected: str) -> DataError:
    shown = line if len(line) <= 60 else line[:60] + "..."
    return DataError(f"{path}, line {number}: {shown!r} is not {expected}", todo="Correct or remove that line.")


def check_vectors(path: Path) -> None:
    """Read the first lines of a file of vectors.

    Raises:
        DataError: If they are not text in a known encoding.
    """
    next(_vector_lines(path), None)


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
    size, lines = 0, 0
    for block in _vector_lines(path):
        size = size or len(block[0][1].split()) - 1
        split = [line.rsplit(None, size) for _, line in block]
        for (number, line), fields in zip(block, split, strict=True):
            if len(fields) != size + 1:
                raise _broken(path, number, line, f"a word and {size} numbers")
        for way, encoded in enumerate(spellings([fields[0] for fields in split], tokenizer, capitals=False)):
            vectors = found.setdefault(way, {})
            for place, word in _known(encoded, words):
                if word not in vectors:
                    try:
                        vectors[word] = np.array(split[place][1:], dtype=np.float32)
                    except ValueError:
                        raise _broken(path, *block[place], f"a word and {size} numbers") from None
        lines += len(block)
        progress("reading word vectors", lines, None)
    ordered = [sorted(vectors.items()) for vectors in found.values() if vectors]
    return [
        (np.array([word for word, _ in vectors]), np.stack([vector for _, vector in vectors])) for vectors in ordered
    ], f"{path.name}: {lines:,} word vectors of {size} numbers"


def _vector_lines(path: Path) -> Iterator[list[tuple[int, str]]]:
    """Yield numbered lines, some at a time, without word2vec's header."""
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
    """Return the encoding, UTF-8 or GB 18030, of most lines.

    Raises:
        DataError: If neither fits half of them.
    """
    undecodable = dict.fromkeys(("utf-8", "gb18030"), 0)
    for line, encoding in itertools.product(lines, undecodable):
        try:
            line.decode(encoding)
        except UnicodeDecodeError:
            undecodable[encoding] += 1
    best = min(undecodable, key=undecodable.__getitem__)
    if 2 * undecodable[best] > len(lines):
        raise DataError(
            f"{path} is neither UTF-8 nor GB 18030 text", todo="Save the word vectors as UTF-8, in the text format."
        )
    return best


def _known(encoded: list[IntArray], words: CountedWords) -> Iterator[tuple[int, int]]:
    """Yield (place in the block, number of the word) of the corpus's words."""
    places = np.array([place for place, ids in enumerate(encoded) if len(ids)], dtype=np.int64)
    if not len(places):
        return
    lengths = np.array([len(encoded[place]) for place in places])
    hashes = word_hashes(np.concatenate([encoded[place] for place in places]), np.cumsum(lengths) - lengths)
    numbers = words.find(hashes)
    yield from zip(places[numbers >= 0].tolist(), numbers[numbers >= 0].tolist(), strict=True)
