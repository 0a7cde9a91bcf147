"""Tables of labeled examples: what their columns hold, and the examples of their rows (files: `data.tables`)."""

import io
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from maskwright.core.errors import DataError, suggestion
from maskwright.core.text.amounts import listed, pluralize
from maskwright.core.text.surrogates import surrogate_problem
from maskwright.data.tables import (
    TEXT_COLUMNS,
    Records,
    Row,
    delimited_rows,
    guess_delimiter,
    json_records,
    malformed_rows,
    open_parquet,
    refuse_repeated,
)
from maskwright.finetuning.examples import E, ExampleFile
from maskwright.finetuning.readers.files import Skips, format_of, lines_of, load_bytes, load_text
from maskwright.finetuning.readers.options import Kind, ReadOptions, as_names

Source = Path | Records
"""A file (of RACE a folder), or rows in memory."""

# Usual names of columns, in lower case. The first that a table has is used, and printed as a guess.
PAIRS = (
    ("sentence1", "sentence2"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("text", "text2"),
    ("text", "text_2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("anchor", "positive"),
    ("query", "positive"),
    ("query", "document"),
    ("query", "passage"),
    ("question", "answer"),
)
LABELS = ("label", "labels", "class", "category", "score")
KEYS = ("index", "idx", "id", "guid", "key")

ROLES: Mapping[str, Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "tagging": {
        "text": ("the words", ("tokens", "words", "text")),
        "label": ("the tags", ("ner_tags", "tags", "labels")),
    },
    "question_answering": {
        "text": ("the question", ("question",)),
        "text2": ("the context", ("context",)),
        "label": ("the answers", ("answers", "answer")),
    },
    "multiple_choice": {
        "text": ("the context", ("context", "article")),
        "text2": ("the question", ("question",)),
        "choices": ("the options", ("options", "choices")),
        "label": ("the right option", ("label", "answer")),
    },
}
"""Content of a column and its usual names, by kind of task and by the field of `ReadOptions` that names it.

Columns of texts are guessed in `texts`.
"""
COLUMNS = ("text", "text2", "negative", "choices", "label", "label_columns")
"""Fields of `ReadOptions` that name columns."""
_MOST_MALFORMED = 0.2
"""Of the lines in which a field begins with a double quote: share of malformed rows up to which quotes enclose fields.

A choice: in GLUE's files, whose quotes are part of the texts, it is 0.80 to 1.
"""
_MAY_LACK = {("multiple_choice", "text"), ("multiple_choice", "text2")}


@dataclass(slots=True, kw_only=True)
class Table:
    """The rows of one file or table in memory.

    `columns` are "1", "2" and so on where a file has no header; values are text, or what JSON, Parquet and memory hold.
    `skips` are rows that were left out; readers add theirs. `notes` say what was guessed, `read_as` the same as fields
    of `ReadOptions`.
    """

    skips: Skips
    columns: tuple[str, ...]
    rows: Sequence[Row]
    notes: list[str] = field(default_factory=list)
    read_as: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.skips.name

    def find(self, names: Sequence[str], besides: Collection[str] = ()) -> str | None:
        """Return the first of the named columns that the table has, besides some.

        Exact names come before other case. If all names are numbers, the first one is also the column's number, from 1,
        or from -1 backwards.
        """
        columns = [column for column in self.columns if column not in besides]
        folded = {column.casefold(): column for column in reversed(columns)}
        match = next((name for name in names if name in columns), None)
        match = match or next((folded[name.casefold()] for name in names if name.casefold() in folded), None)
        if match is None and names and all(_index(name, 0) is not None for name in names):
            index = _index(names[0], len(self.columns))
            match = self.columns[index] if index is not None and 0 <= index < len(self.columns) else None
        return match if match in columns else None

    def need(self, names: Sequence[str], content: str, option: str) -> str:
        """Return the first of the named columns that the table has; else DataError, in which `option` names it."""
        if (column := self.find(names)) is not None:
            return column
        named = f"Name it, `{option}{'' if option.endswith('=') else ' '}COLUMN`."
        wanted = f"{names[0]!r} for {content}" if len(names) == 1 else f"for {content}, such as {', '.join(names)}"
        raise DataError(
            f"{self.name} has no column {wanted}",
            allowed=listed(self.columns),
            hint=suggestion(names[0], self.columns, named) if len(names) == 1 else named,
        )

    def roles(self, kind: Kind, options: ReadOptions) -> dict[str, str | None]:
        """Return the columns of a kind of task by role (`ROLES`): those named, or else of a usual name."""
        columns: dict[str, str | None] = {}
        for role, (content, usual) in ROLES[kind].items():
            names = getattr(options, role)
            if role == "label" and options.labels != "needed":
                columns[role] = None if options.labels == "ignored" else self.find(names or usual)
            elif (kind, role) in _MAY_LACK and not names:
                columns[role] = self.find(usual)
            else:
                option = "--read choices=" if role == "choices" else f"--{role}"
                columns[role] = self.need(names or usual, content, option)
        return columns

    def file(self, make: Callable[[Row, str], E | None], columns: Mapping[str, Any]) -> ExampleFile[E]:
        """Return an example for each row, except those for which `make` returns None or raises ValueError (skipped).

        `make` takes a row and its key; `columns` are those that were found, by field of `ReadOptions`. DataError if no
        row or less than half of the rows are good.
        """
        used = [name for names in columns.values() for name in as_names(names or ())]
        refuse_repeated(self.columns, used, self.name)
        key = self._key(used)
        numbered = "" if key or not self.rows else self.rows[0].location.removesuffix(f" {self.rows[0].key}")
        key_word = next((word for word in ("line", "record", "question") if numbered.endswith(f" {word}")), "example")
        made: list[E] = []
        for row in self.rows:
            try:
                example = make(row, as_text(row.cells[key]).strip() if key else row.key)
            except ValueError as error:
                self.skips.add(row.location, str(error))
            else:
                made += [] if example is None else [replace(example, key_word=key_word)]
        return ExampleFile(
            name=self.name,
            examples=tuple(made),
            skipped=self.skips.finished(len(made)),
            notes=tuple(self.notes),
            read_as={**self.read_as, **{role: names for role, names in columns.items() if names}},
        )

    def _key(self, taken: Collection[str]) -> str | None:
        """Return the column of ids: one of a usual name whose values are all different."""
        for name in KEYS:
            column = self.find([name])
            if column is not None and column not in taken:
                cells = (row.cells[column] for row in self.rows)
                values = {str(value).strip() for value in cells if value is not None} - {""}
                if len(values) == len(self.rows):
                    return column
        return None


def row_of(location: str, key: str, record: Any, skips: Skips) -> Iterator[Row]:
    """Yield the row that a record is, unless it is no JSON object."""
    if isinstance(record, dict):
        yield Row(location, key, record)
    else:
        skips.add(location, f"not a JSON object but {type(record).__name__}")


RowsOf = Callable[[str, str, Any, Skips], Iterator[Row]]
"""Yields the rows of a record, given its location, key and value: of an article of SQuAD those of its questions."""


def read_table(source: Source, kind: Kind, options: ReadOptions, rows_of: RowsOf = row_of) -> Table:
    """Read a file of rows, RACE's folder, or rows in memory."""
    skips, format = Skips(str(source)), format_of(source, kind, options)
    if isinstance(source, Path) and format == "parquet":
        with open_parquet(io.BytesIO(load_bytes(source)), source) as file:
            names = tuple(file.schema_arrow.names)
            refuse_repeated(names, names, str(source))
            source = Records(str(source), names, tuple(file.read().to_pylist()))
    if isinstance(source, Records):
        table = _of_records(source.numbered(), skips, rows_of)
    elif format == "json":
        table = _of_records(_json_records(source, options, skips), skips, rows_of)
    elif format == "text":
        lines = enumerate(lines_of(load_text(source, options.encoding)), 1)
        rows = [Row(f"{source}, line {n}", str(n), {"text": line}) for n, line in lines if line.strip()]
        table = Table(skips=skips, columns=("text",), rows=rows, notes=["one text per line"])
    else:
        table = _read_delimited(source, options, skips)
    if not table.rows:
        skips.finished(0)
    return table


def _of_records(records: Iterable[tuple[str, str, Any]], skips: Skips, rows_of: RowsOf) -> Table:
    rows = [row for record in records for row in rows_of(*record, skips)]
    columns = tuple(dict.fromkeys(column for row in rows for column in row.cells))
    rows = [row._replace(cells={column: row.cells.get(column) for column in columns}) for row in rows]
    return Table(skips=skips, columns=columns, rows=rows)


def _json_records(path: Path, options: ReadOptions, skips: Skips) -> Iterator[tuple[str, str, Any]]:
    for file in sorted(path.rglob("*.txt")) if path.is_dir() else [path]:
        for location, key, record in json_records(load_text(file, options.encoding), str(file), skips.report):
            yield location, file.relative_to(path).as_posix() if path.is_dir() else key, record


def _read_delimited(path: Path, options: ReadOptions, skips: Skips) -> Table:
    text = load_text(path, options.encoding)
    notes: list[str] = []
    read_as: dict[str, Any] = {}
    delimiter = options.delimiter or guess_delimiter(next((line for line in lines_of(text) if line.strip()), ""))
    quoted = options.quoting == "csv"
    begun = sum(line.startswith('"') or f'{delimiter}"' in line for line in lines_of(text))
    if options.quoting is None and begun and delimiter != " ":
        bad = malformed_rows(text, str(path), delimiter)
        quoted = len(bad) <= _MOST_MALFORMED * begun
        read_as["quoting"] = "csv" if quoted else "none"
        note = f"double quotes {'enclose texts, as in CSV' if quoted else 'are part of the texts'}"
        if bad:
            first = bad[0].location.rpartition(", ")[2]
            note += f" ({pluralize(len(bad), 'row')} not CSV, first at {first}; "
            note += f"to change: --read quoting={'none' if quoted else 'csv'})"
        notes.append(note)
    columns, rows = delimited_rows(
        io.StringIO(text, newline="") if quoted else lines_of(text),
        str(path),
        skips.report,
        delimiter=delimiter,
        quoted=quoted,
        strict=options.quoting is None,
        has_header=lambda first: _has_header(first, options),
    )
    kept = [row for row in rows if any(str(value).strip() for value in row.cells.values())]
    if not _has_header(columns, options):
        notes.append(f"no header; the columns are {', '.join(columns)}")
    return Table(skips=skips, columns=columns, rows=kept, notes=notes, read_as=read_as)


def _has_header(first: Sequence[str], options: ReadOptions) -> bool:
    """Return whether the first line names the columns.

    It does unless columns are named by number; then only if it has other names that are given, or usual names in those
    columns.
    """
    named = [name for role in COLUMNS for name in getattr(options, role)]
    numbers = [_index(name, len(first)) for name in named]
    usual = {*TEXT_COLUMNS, *LABELS, *(name for pair in PAIRS for name in pair)}
    return any(name in first for name, number in zip(named, numbers, strict=True) if number is None) or all(
        0 <= number < len(first) and first[number].casefold() in usual for number in numbers if number is not None
    )


def _index(name: str, num_columns: int) -> int | None:
    """Return the index of a column that is given by number, from 1 or from the end (-1); None for a name."""
    if not re.fullmatch(r"-?\d{1,9}", name):
        return None
    number = int(name)
    # 0 is beyond the last column.
    return number - 1 if number > 0 else num_columns + number


def as_text(value: object) -> str:
    """Return a cell as text, None as an empty one; ValueError if it is not text, or holds a lone surrogate."""
    if value is None:
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise ValueError(f"a {type(value).__name__} is where a text should be")
    if problem := surrogate_problem(value):
        raise ValueError(problem)
    return value
