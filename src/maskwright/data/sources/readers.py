"""Documents of all sources: blocks of raw text, in order and in bounded memory, and their parsing.

The parent process only finds where documents end; workers decode, parse, clean and split each block. Block boundaries
depend only on the files, so any number of workers gives the same bytes.
"""

import io
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Literal, TypeVar

from maskwright.data.files import (
    MAX_LINE_BYTES,
    START_BYTES,
    OnBadLine,
    decode_lines,
    decompressed,
    reading,
    refuse_utf_16,
    skip_long_line,
)
from maskwright.data.sources.arguments import Source, TextDocuments, file_format
from maskwright.data.sources.docstrings import docstring_documents
from maskwright.data.sources.hub import hub_documents
from maskwright.data.tables import OnColumn, file_texts, json_column, json_texts, json_values

BLOCK_BYTES = 1 << 21
# A document longer than this is cut at a line end: 8 MB are three novels, and memory must not follow the corpus.
MAX_DOCUMENT_BYTES = 1 << 23
_SPACED_LINE = re.compile(rb"\n[ \t\r]+\n")
_WIKI_TITLE = r"^ ?= [^=\s][^=\n]* = *$"
_WIKI_TITLE_LINE = re.compile(_WIKI_TITLE, re.MULTILINE)
_WIKI_TITLE_BYTES = re.compile(_WIKI_TITLE.encode(), re.MULTILINE)
_WIKI_HEADING = re.compile(r"^ ?(?:= )+(.*?)(?: =)+ *$", re.MULTILINE)
# WikiText writes the marks inside words and numbers apart: "well @-@ known", "1 @,@ 000", "3 @.@ 5".
_WIKI_MARK = re.compile(r" @([-,.])@ ")
_BLANK_LINES = re.compile(r"\n(?:[^\S\n]*\n)+")

Item = TypeVar("Item")
PieceFormat = Literal["blank_lines", "files", "wiki_titles", "markdown", "jsonl", "records"]


@dataclass(frozen=True, slots=True)
class Piece:
    """Some consecutive documents of one file (or a part of one too long for memory), not yet parsed.

    Attributes:
        file: The file's name; with it and `first_line` errors name file and line.
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


@dataclass(frozen=True, slots=True)
class RawBlock:
    """About 2 MB of raw text of one source: the unit of work.

    Attributes:
        source: Number of the source.
        pieces: Consecutive documents of one or more files.
        bytes_read: Bytes read from disk so far, over all sources.
    """

    source: int
    pieces: tuple[Piece, ...]
    bytes_read: int


class _Meter:
    """Bytes read from disk, for progress: finished files, and the position in the current one."""

    def __init__(self) -> None:
        self.finished = 0
        self.file: BinaryIO | None = None

    def bytes_read(self) -> int:
        return self.finished + (0 if self.file is None else self.file.tell())


def raw_blocks(
    sources: tuple[Source, ...],
    text_documents: TextDocuments,
    on_bad_line: list[OnBadLine],
    *,
    workers: int | None = None,
    on_column: Callable[[int, str], None] = lambda number, column: None,
) -> Iterator[RawBlock]:
    """Read all sources, one after the other, as blocks.

    Args:
        text_documents: Separator of documents in plain text files (`cleaning.text.Cleaning`).
        on_bad_line: For each source, called with a broken table row; it raises, or returns to skip it.
        workers: Processes for the `docstrings` source.
        on_column: Receives the number of a source and the column that is read in a file of it.

    Raises DataError if a file is missing, damaged or not of the kind of its name.
    """
    meter = _Meter()
    for number, source in enumerate(sources):
        rule = on_bad_line[number]
        pieces = _pieces_of(source, text_documents, rule, meter, workers, partial(on_column, number))
        for some in _batches(pieces, lambda piece: piece.size, BLOCK_BYTES):
            yield RawBlock(number, some, meter.bytes_read())


def _batches(items: Iterable[Item], size: Callable[[Item], int], least: int) -> Iterator[tuple[Item, ...]]:
    """Yield consecutive items in batches of at least this total size, except the last."""
    waiting: list[Item] = []
    total = 0
    for item in items:
        waiting.append(item)
        total += size(item)
        if total >= least:
            yield tuple(waiting)
            waiting, total = [], 0
    if waiting:
        yield tuple(waiting)


def _pieces_of(
    source: Source,
    text_documents: TextDocuments,
    on_bad_line: OnBadLine,
    meter: _Meter,
    workers: int | None,
    on_column: OnColumn,
) -> Iterator[Piece]:
    if source.kind == "docstrings":
        yield from _in_pieces(docstring_documents(workers=workers), source.name)
    elif source.dataset is not None:
        yield from _in_pieces(hub_documents(source.dataset, source.column, on_column), source.name)
    for path in source.files:
        with reading(path) as file:
            meter.file = file
            yield from _pieces_of_file(file, path, source.column, text_documents, on_bad_line, on_column)
            meter.finished += path.stat().st_size
            meter.file = None


def _pieces_of_file(
    file: BinaryIO,
    path: Path,
    column: str | None,
    text_documents: TextDocuments,
    on_bad_line: OnBadLine,
    on_column: OnColumn,
) -> Iterator[Piece]:
    format = file_format(path)
    if format in ("csv", "tsv", "parquet"):
        texts = file_texts(file, path, format, column, f"{path}#{{}}", on_bad_line, on_column)
        yield from _in_pieces(texts, str(path))
        return
    stream = decompressed(file, path)
    refuse_utf_16(stream.peek(START_BYTES)[:START_BYTES], str(path))
    if format == "text":
        yield from _pieces_of_lines(stream, path, text_documents, column, on_bad_line, on_column)
    elif format == "markdown" or format == "jsonl":
        yield from _pieces_of_lines(stream, path, format, column, on_bad_line, on_column)


def _in_pieces(documents: Iterator[str], file: str) -> Iterator[Piece]:
    first = 1
    for texts in _batches(documents, len, BLOCK_BYTES // 2):
        yield Piece(file=file, format="records", payload=texts, first_line=first)
        first += len(texts)


def _pieces_of_lines(
    stream: io.BufferedReader,
    path: Path,
    format: PieceFormat | Literal["auto"],
    column: str | None,
    on_bad_line: OnBadLine,
    on_column: OnColumn,
) -> Iterator[Piece]:
    waiting = bytearray()
    line = 1
    if stream.peek(3).startswith(BOM_UTF8):
        stream.read(3)
    while True:
        data = stream.read(BLOCK_BYTES)
        waiting += data
        if format == "auto":
            start = bytes(waiting[: 1 << 16]).decode("utf-8", errors="replace")
            format = "wiki_titles" if _WIKI_TITLE_LINE.search(start) else "blank_lines"
        if cut := _last_document_start(waiting, format) if data else len(waiting):
            payload = bytes(waiting[:cut])
            del waiting[:cut]
            if format == "jsonl" and column is None:
                values = json_values(io.BytesIO(payload), str(path), lambda bad: None)  # Reported by `documents_of`.
                column = json_column(values, str(path), f"{path}#{{}}")
                if column is not None:
                    on_column(column)
            if payload.strip():
                yield Piece(str(path), format, payload, first_line=line, column=column or "text")
            line += payload.count(b"\n")
        if format == "jsonl" and len(waiting) > MAX_LINE_BYTES:
            skip_long_line(stream, str(path), line, on_bad_line)
            waiting.clear()
            line += 1
        if not data:
            return


def _last_document_start(data: bytearray, format: PieceFormat) -> int:
    """Return where some bytes can be cut between documents, 0 if nowhere."""
    cut = 0
    if format == "jsonl":
        return data.rfind(b"\n") + 1
    if format == "wiki_titles":
        cut = max((match.start() for match in _WIKI_TITLE_BYTES.finditer(data)), default=0)
    elif format == "blank_lines":
        unix, windows = data.rfind(b"\n\n"), data.rfind(b"\n\r\n")
        # Pieces end before the line break that ends the blank line, so that line numbers stay exact.
        cut = max(unix + 2 if unix >= 0 else 0, windows + 3 if windows >= 0 else 0)
        cut = cut or max((match.end() for match in _SPACED_LINE.finditer(data)), default=0)
    return cut if cut or len(data) < MAX_DOCUMENT_BYTES else _line_end(data)


def _line_end(data: bytearray) -> int:
    cut = data.rfind(b"\n", len(data) // 2) + 1 or data.rfind(b" ", len(data) // 2) + 1
    if cut:
        return cut
    cut = len(data) - 1
    while cut and data[cut] & 0xC0 == 0x80:  # not inside a character
        cut -= 1
    return cut or len(data)


# Parsing of pieces, in a worker process.


def documents_of(piece: Piece, on_bad_line: OnBadLine) -> Iterator[str]:
    """Read the documents of a piece, in order.

    Args:
        on_bad_line: Called for each line that cannot be read; it raises, or returns to have the line skipped.
    """
    if isinstance(piece.payload, tuple):
        yield from piece.payload
    elif piece.format == "jsonl":
        values = json_values(io.BytesIO(piece.payload), piece.file, on_bad_line, piece.first_line)
        yield from json_texts(values, piece.column, on_bad_line)
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


def _wiki_articles(text: str) -> Iterator[str]:
    starts = [match.start() for match in _WIKI_TITLE_LINE.finditer(text)]
    bounds = [0, *(start for start in starts if start > 0), len(text)]
    for start, end in pairwise(bounds):
        article = _WIKI_MARK.sub(r"\1", text[start:end])
        # Each line of WikiText is a whole paragraph; blank lines only set them apart.
        article = _WIKI_HEADING.sub(r"\n\1\n", article)
        if article.strip():
            yield article
