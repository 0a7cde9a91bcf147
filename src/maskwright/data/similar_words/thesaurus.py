"""Thesauri: HIT Cilin, the Open English WordNet's table of synonyms, and plain groups of synonyms."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from maskwright.core.errors import DataError
from maskwright.data.compression import decompressed, reading
from maskwright.data.similar_words.layout import CILIN_CODE, READ, WORDNET_POS, Layout

_BETWEEN_WORDS = re.compile(r"[\s,，、;；|]+")


@dataclass(frozen=True, slots=True)
class Thesaurus:
    """Which words a thesaurus calls synonyms.

    Attributes:
        synonyms: Of each word, the others, in the file's order.
        told: What was read, in words.
    """

    synonyms: dict[str, list[str]]
    told: str


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
            raise _broken(path, number, line, "a class of HIT Cilin: a code such as `Aa01A01=`, then words")
        words = line[code.end() :].split()
        yield _Group(words, words) if code[2] == "=" else None


def _wordnet(path: Path, lines: _Lines) -> Iterator[_Group | None]:
    for number, line in lines:
        columns = line.rstrip("\r\n").split("\t")
        if len(columns) != 3 or columns[1] not in WORDNET_POS or not columns[0] or not columns[2]:
            raise _broken(path, number, line, "`lemma TAB n (or v, a, r, s) TAB synonym|synonym`")
        yield _Group([columns[0]], [word for word in columns[2].split("|") if word])


def _plain(path: Path, lines: _Lines) -> Iterator[_Group | None]:
    for _, line in lines:
        words = [word for word in _BETWEEN_WORDS.split(line) if word]
        yield _Group(words, words) if len(words) > 1 else None


def _broken(path: Path, number: int, line: str, expected: str) -> DataError:
    shown = line if len(line) <= 60 else line[:60] + "..."
    return DataError(f"{path}, line {number}: {shown!r} is not {expected}", todo="Mend that line or take it out.")
