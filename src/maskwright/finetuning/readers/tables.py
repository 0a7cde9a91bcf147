"""Rows with named columns, from CSV, TSV, JSON, JSON Lines, Parquet and plain lines; usual names of columns."""

import contextlib
import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from maskwright.core.amounts import pluralize
from maskwright.core.errors import DataError, json_problem, nearest
from maskwright.core.files import parse_json
from maskwright.core.surrogates import surrogate_problem
from maskwright.data.libraries import imported
from maskwright.data.tables import long_fields, reading_parquet
from maskwright.finetuning.examples import E, ExampleFile
from maskwright.finetuning.readers.files import Skips, lines_of, load_bytes, load_text
from maskwright.finetuning.readers.options import Format, Kind, ReadOptions, as_names

# Usual names of columns in public data sets and spreadsheets (English, German, Chinese), in lower case. The first that
# a table has is used.
PAIRS = (
    ("sentence1", "sentence2"),
    ("text_a", "text_b"),
    ("premise", "hypothesis"),
    ("premise", "hypo"),
    ("question1", "question2"),
    ("text1", "text2"),
    ("text", "text2"),
    ("s1", "s2"),
    ("anchor", "positive"),
    ("query", "title"),
    ("question", "sentence"),
    ("satz1", "satz2"),
    ("句子1", "句子2"),
)
TEXTS = (
    "text", "sentence", "text_a", "review", "comment", "comment_text", "content", "body", "document", "description",
    "tweet", "message", "utterance", "question", "title", "satz", "kommentar", "rezension", "nachricht",
    "bewertungstext", "文本", "句子", "内容", "评论", "标题",
)  # fmt: skip
LABELS = (
    "label", "labels", "gold_label", "class", "category", "categories", "target", "sentiment", "score",
    "rating", "stars", "is_duplicate", "quality", "intent", "emotion", "topic", "tags", "y", "klasse",
    "kategorie", "bewertung", "stimmung", "标签", "类别", "情感", "分数",
)  # fmt: skip
KEYS = ("index", "idx", "id", "guid", "key")


ROLES: Mapping[str, Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "tagging": {
        "text": ("the words", ("tokens", "words", "token", "word", *TEXTS)),
        "label": ("the tags", ("ner_tags", "tags", "labels", "ner", "pos_tags", "chunk_tags", "label", "tag")),
    },
    "question_answering": {
        "text": ("the question", ("question", "query", "问题")),
        "text2": ("the context", ("context", "passage", "article", "paragraph", "document", "text", "文章", "段落")),
        "label": ("the answers", ("answers", "answer", "答案")),
    },
    "multiple_choice": {
        "text": ("the context", ("sent1", "context", "article", "passage", "paragraph", "document")),
        "text2": ("the question", ("sent2", "question", "query", "startphrase")),
        "choices": ("the options", ("options", "choices", "choice", "endings")),
        "label": ("the right option", ("label", "answer", "answers", "answerkey", "correct", "gold")),
    },
}
"""What a column holds and its usual names, by kind of task and by the field of `ReadOptions` that names it.

Columns of texts are guessed in `texts`.
"""
_MAY_LACK = {("multiple_choice", "text"), ("multiple_choice", "text2")}
Cells = dict[str, object]


class Row(NamedTuple):
    """A row of a file: its place for messages, its key (the number of its line or record), its values by column."""

    place: str
    key: str
    cells: Cells


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The rows of one file `name`.

    `columns` are "1", "2" and so on where the file has no header; values are text, or what JSON and Parquet hold.
    `notes` say what was guessed about the file, `read_as` the same as fields of `ReadOptions`.
    """

    name: str
    columns: tuple[str, ...]
    rows: Sequence[Row]
    notes: tuple[str, ...] = ()
    read_as: Mapping[str, Any] = field(default_factory=dict)

    def find(self, names: Sequence[str], besides: Collection[str] = ()) -> str | None:
        """Return the first of the named columns that the table has, besides some.

        Exact names come before other case. If all names are numbers, the first one is also the column's place, from 1,
        or from -1 backwards.
        """
        there = [column for column in self.columns if column not in besides]
        folded = {column.casefold(): column for column in reversed(there)}
        found = next((name for name in names if name in there), None)
        found = found or next((folded[name.casefold()] for name in names if name.casefold() in folded), None)
        if found is None and names and all(_place(name, 0) is not None for name in names):
            place = _place(names[0], len(self.columns))
            found = self.columns[place] if place is not None and 0 <= place < len(self.columns) else None
        return found if found in there else None

    def need(self, names: Sequence[str], what: str, option: str) -> str:
        """Return the first of the named columns that the table has; else DataError.

        `what` (the content) and `option` (which names the column) are for the message.
        """
        if (found := self.find(names)) is not None:
            return found
        guess = nearest(names[0], self.columns) if len(names) == 1 else None
        wanted = f"{names[0]!r} for {what}" if len(names) == 1 else f"for {what}, such as {', '.join(names)}"
        raise DataError(
            f"{self.name} has no column {wanted}",
            allowed=self.shown(),
            todo=f"Did you mean {guess!r}?" if guess else f"Name it, `{option} COLUMN`.",
        )

    def roles(self, kind: Kind, options: ReadOptions) -> dict[str, str | None]:
        """Return the columns of a kind of task by role (`ROLES`): those named, or else of a usual name."""
        found: dict[str, str | None] = {}
        for role, (what, usual) in ROLES[kind].items():
            names = getattr(options, role)
            if role == "label" and options.labels != "needed":
                found[role] = None if options.labels == "ignored" else self.find(names or usual)
            elif (kind, role) in _MAY_LACK and not names:
                found[role] = self.find(usual)
            else:
                found[role] = self.need(names or usual, what, "--read choices=" if role == "choices" else f"--{role}")
        return found

    def file(
        self,
        make: Callable[[Row, str], E | None],
        columns: Mapping[str, Any],
        skips: Skips,
        notes: Callable[[Sequence[E]], Iterable[str]] = lambda _: (),
    ) -> ExampleFile[E]:
        """Return an example for each row, except those for which `make` returns None or raises ValueError (skipped).

        `make` takes a row and its key; `columns` are those that were found, by field of `ReadOptions`; `notes` gives
        further notes on the examples. DataError if no row or less than half of the rows are good.
        """
        key = self._key([name for names in columns.values() for name in as_names(names or ())])
        made: list[E] = []
        for row in self.rows:
            try:
                example = make(row, as_text(row.cells[key]).strip() if key else row.key)
            except ValueError as error:
                skips.add(row.place, str(error))
            else:
                made += [] if example is None else [example]
        return ExampleFile(
            name=self.name,
            examples=tuple(made),
            skipped=skips.finished(len(made)),
            notes=(*self.notes, *notes(made)),
            read_as={**self.read_as, **{role: names for role, names in columns.items() if names}},
        )

    def _key(self, taken: Collection[str]) -> str | None:
        """Return the column of ids: one of a usual name whose values are all different."""
        for name in KEYS:
            column = self.find([name])
            if column is not None and column not in taken:
                found = (row.cells[column] for row in self.rows)
                values = {str(value).strip() for value in found if value is not None} - {""}
                if len(values) == len(self.rows):
                    return column
        return None

    def shown(self) -> str:
        return ", ".join(self.columns[:20]) + (", ..." if len(self.columns) > 20 else "")


Flatten = Callable[[str, str, Any, Skips], Iterator[Row] | None]


def read_table(
    path: Path, format: Format, options: ReadOptions, skips: Skips, flatten: Flatten = lambda *_: None
) -> Table:
    """Read a file of rows, or RACE's folder.

    `flatten(place, key, record, skips)` may return the rows that a JSON record stands for (an article of SQuAD); None
    for a record that is a row itself.
    """
    if format == "parquet":
        table = _read_parquet(path)
    elif format == "json":
        table = _read_json(path, options, skips, flatten)
    elif format == "text":
        lines = enumerate(lines_of(load_text(path, options.encoding)), 1)
        rows = [Row(f"{path}, line {n}", str(n), {"text": line}) for n, line in lines if line.strip()]
        table = Table(name=str(path), columns=("text",), rows=rows, notes=("one text per line",))
    else:
        table = _read_delimited(path, options, skips)
    if not table.rows:
        skips.finished(0)
    return table


def _read_json(path: Path, options: ReadOptions, skips: Skips, flatten: Flatten) -> Table:
    rows: list[Row] = []
    for file in sorted(path.rglob("*.txt")) if path.is_dir() else [path]:
        for place, key, record in _records(file, load_text(file, options.encoding), skips):
            name = file.relative_to(path).as_posix() if path.is_dir() else key
            nested = flatten(place, name, record, skips)
            if nested is not None:
                rows += nested
            elif isinstance(record, dict):
                rows.append(Row(place, key, record))
            else:
                skips.add(place, f"not a JSON object but {type(record).__name__}")
    columns = tuple(dict.fromkeys(name for row in rows for name in row.cells))
    rows = [row._replace(cells={name: row.cells.get(name) for name in columns}) for row in rows]
    return Table(name=str(path), columns=columns, rows=rows)


def _records(path: Path, text: str, skips: Skips) -> Iterator[tuple[str, str, Any]]:
    """Yield place, number and value of the records in JSON Lines, a JSON list, or one JSON value."""
    lines = [(number, line) for number, line in enumerate(lines_of(text), 1) if line.strip()]
    if len(lines) > 1 and all(line.lstrip().startswith("{") for _, line in lines[:2]):
        for number, line in lines:
            try:
                yield f"{path}, line {number}", str(number), parse_json(line)
            except ValueError as error:
                skips.add(f"{path}, line {number}", f"not JSON ({json_problem(error)})")
        return
    try:
        data = parse_json(text)
    except ValueError as error:
        raise DataError(
            f"{path}, line {getattr(error, 'lineno', 1)}: not JSON ({json_problem(error)})",
            todo="Check that the file is whole. JSON Lines have one object per line.",
        ) from error
    if isinstance(data, dict) and isinstance(data.get("data"), list):
        data = data["data"]
    for number, record in enumerate(data if isinstance(data, list) else [data], 1):
        yield f"{path}, record {number}", str(number), record


def _read_parquet(path: Path) -> Table:
    parquet = imported("pyarrow.parquet", f"reading {path}", "parquet", package="pyarrow")
    data = load_bytes(path)
    with reading_parquet(path):
        table = parquet.read_table(io.BytesIO(data))
        values = table.to_pylist()
    rows = [Row(f"{path}, record {number}", str(number), cells) for number, cells in enumerate(values, 1)]
    return Table(name=str(path), columns=tuple(table.column_names), rows=rows)


def _read_delimited(path: Path, options: ReadOptions, skips: Skips) -> Table:
    text = load_text(path, options.encoding)
    notes: list[str] = []
    read_as: dict[str, Any] = {}
    first_line = next((line for line in lines_of(text) if line.strip()), "")
    delimiter = options.delimiter or ("\t" if "\t" in first_line else max(",;|", key=first_line.count))
    plain = enumerate((line.split(delimiter, 1 if delimiter == " " else -1) for line in lines_of(text)), 1)
    parsed: Iterable[tuple[int, list[str]]] = plain
    if options.quoting == "csv":
        parsed = _quoted_lines(text, delimiter)
    elif options.quoting is None and '"' in text and delimiter != " ":
        # Double quotes enclose fields if all of the text is valid CSV.
        with contextlib.suppress(csv.Error):
            parsed = list(_quoted_lines(text, delimiter, strict=True))
        read_as["quoting"] = "none" if parsed is plain else "csv"
        notes.append(f"double quotes {'are part of the texts' if parsed is plain else 'enclose texts, as in CSV'}")
    lines = [(number, fields) for number, fields in parsed if any(field.strip() for field in fields)]
    if not lines:
        return Table(name=str(path), columns=(), rows=())
    if _has_header([field.strip() for field in lines[0][1]], options):
        columns = tuple(name.strip() or str(number) for number, name in enumerate(lines[0][1], 1))
        lines, where = lines[1:], "the header has"
    else:
        width = Counter(len(fields) for _, fields in lines).most_common(1)[0][0]
        columns, where = tuple(str(number + 1) for number in range(width)), "most rows have"
        notes.append(f"no header; the columns are {', '.join(columns)}")
    rows = []
    for number, fields in lines:
        place = f"{path}, line {number}"
        if not any(fields[len(columns) :]):
            fields = fields[: len(columns)]
        if len(fields) == len(columns):
            rows.append(Row(place, str(number), dict(zip(columns, fields, strict=True))))
        else:
            skips.add(place, f"{pluralize(len(fields), 'column')} where {where} {len(columns)}")
    return Table(name=str(path), columns=columns, rows=rows, notes=tuple(notes), read_as=read_as)


def _quoted_lines(text: str, delimiter: str, *, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
    with long_fields():
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=strict)
        line = 1
        for fields in reader:
            yield line, fields
            line = reader.line_num + 1


def _has_header(first: Sequence[str], options: ReadOptions) -> bool:
    """Whether the first line names the columns.

    It does unless columns are named by number; then only if it has other names that are given, or usual names in those
    places.
    """
    named = options.named_columns()
    places = [_place(name, len(first)) for name in named]
    usual = {*TEXTS, *LABELS, *(name for pair in PAIRS for name in pair)}
    return any(name in first for name, place in zip(named, places, strict=True) if place is None) or all(
        0 <= place < len(first) and first[place].casefold() in usual for place in places if place is not None
    )


def _place(name: str, num_columns: int) -> int | None:
    """Return the index of a column that is given by number, from 1 or from the end (-1); None for a name."""
    if not re.fullmatch(r"-?\d{1,9}", name):
        return None
    number = int(name)
    # 0 is beyond the last column.
    return number - 1 if number > 0 else num_columns + number


def is_number(field: object) -> bool:
    """Whether a field is a number, with a decimal point or comma."""
    try:
        float(str(field).replace(",", ".", 1))
    except ValueError:
        return False
    return True


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
