"""Which of the layouts that are read a file of similar words has, told from its first lines."""

import re
from pathlib import Path
from typing import Literal

from maskwright.core.errors import DataError
from maskwright.data.compression import decompressed, reading

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
