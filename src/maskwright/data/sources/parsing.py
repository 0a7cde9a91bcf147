"""Documents in a piece of a file; the first step in a worker process.

A piece is some whole documents of one file (or part of a document too long for memory) and its position there, so that
errors name file and line.
"""

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from maskwright.core.errors import json_problem
from maskwright.core.files import parse_json
from maskwright.data.sources.files import BadLine, undecodable

PieceFormat = Literal["blank_lines", "files", "wiki_titles", "markdown", "jsonl", "records"]
OnBadLine = Callable[[BadLine], None]

WIKI_TITLE = re.compile(r"^ ?= [^=\s][^=\n]* = *$", re.MULTILINE)
_WIKI_HEADING = re.compile(r"^ ?(?:= )+(.*?)(?: =)+ *$", re.MULTILINE)
# WikiText writes the marks inside words and numbers apart: "well @-@ known", "1 @,@ 000", "3 @.@ 5".
_WIKI_MARK = re.compile(r" @([-,.])@ ")
_BLANK_LINES = re.compile(r"\n(?:[^\S\n]*\n)+")


@dataclass(frozen=True, slots=True)
class Piece:
    """Some consecutive documents of one file, not yet parsed.

    Attributes:
        file: The file's name, for messages.
        payload: Bytes of whole lines, or texts from a table.
        first_line: Line (or row) number at which the piece begins, from 1.
        column: The field to read (format "jsonl").
    """

    file: str
    format: PieceFormat
    payload: bytes | tuple[str, ...]
    first_line: int = 1
    column: str = ""

    @property
    def size(self) -> int:
        """Bytes of the payload (texts: characters)."""
        return len(self.payload) if isinstance(self.payload, bytes) else sum(map(len, self.payload))


def documents_of(piece: Piece, on_bad_line: OnBadLine) -> Iterator[str]:
    """Read the documents of a piece, in order.

    Args:
        on_bad_line: Called for each line that cannot be read; it raises, or returns to have the line skipped.
    """
    if isinstance(piece.payload, tuple):
        yield from piece.payload
    elif piece.format == "jsonl":
        yield from _json_texts(piece, piece.payload, on_bad_line)
    else:
        text = decode_lines(piece.payload, piece.file, piece.first_line, on_bad_line)
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        match piece.format:
            case "blank_lines":
                yield from (part for part in _BLANK_LINES.split(text) if part and not part.isspace())
            case "wiki_titles":
                yield from _wiki_articles(text)
            case "markdown":
                from maskwright.data.sources.markdown import strip_markdown  # takes time to import

                yield strip_markdown(text)
            case _:
                yield text


def decode_lines(data: bytes, file: str, first_line: int, on_bad_line: OnBadLine) -> str:
    """Decode UTF-8; where it is broken, report the line and, if that returns, leave the whole line out."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    lines = []
    start = 0
    for number, line in enumerate(io.BytesIO(data), first_line):
        try:
            lines.append(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            whole = UnicodeDecodeError("utf-8", data, start + error.start, start + error.end, error.reason)
            on_bad_line(undecodable(data, whole, file, number))
        start += len(line)
    return "".join(lines)


def _json_texts(piece: Piece, data: bytes, on_bad_line: OnBadLine) -> Iterator[str]:
    for number, line in enumerate(io.BytesIO(data), piece.first_line):
        if not line.strip():
            continue
        try:
            record = parse_json(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            on_bad_line(undecodable(line, error, piece.file, number))
            continue
        except ValueError as error:
            shown = line[:60].decode("utf-8", errors="replace").strip()
            problem = f"not JSON ({json_problem(error)}); it begins {shown!r}"
            on_bad_line(BadLine(f"{piece.file}, line {number}", problem))
            continue
        text = record.get(piece.column) if isinstance(record, dict) else None
        if isinstance(text, list) and all(isinstance(part, str) for part in text):
            text = "\n\n".join(text)
        if isinstance(text, str):
            yield text
        elif isinstance(record, dict) and piece.column in record and text is None:
            yield ""  # a null is an empty document, not a broken line
        else:
            on_bad_line(BadLine(f"{piece.file}, line {number}", _without_text(record, piece.column)))


def _without_text(record: object, column: str) -> str:
    if not isinstance(record, dict):
        return f"not a JSON object but {type(record).__name__}"
    if column in record:
        return f"the field {column!r} is not a text but {type(record[column]).__name__}"
    return f"no field {column!r}; found {', '.join(map(repr, list(record)[:12])) or 'no fields'}"


def _wiki_articles(text: str) -> Iterator[str]:
    starts = [match.start() for match in WIKI_TITLE.finditer(text)]
    bounds = [0, *(start for start in starts if start > 0), len(text)]
    for start, end in pairwise(bounds):
        article = _WIKI_MARK.sub(r"\1", text[start:end])
        # Each line of WikiText is a whole paragraph; blank lines only set them apart.
        article = _WIKI_HEADING.sub(r"\n\1\n", article)
        if article.strip():
            yield article
