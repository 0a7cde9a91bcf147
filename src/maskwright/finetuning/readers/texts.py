"""Texts and pairs of texts with a class, a number or several classes, from any table.

Columns are those the user named, else one simple guess by usual names, which is always in the notes. Where several
columns could be meant, the user must name them.
"""

import ast
import contextlib
import json
import math
import re
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from maskwright.core.errors import DataError
from maskwright.core.text.amounts import listed, pluralize
from maskwright.data.tables import Cells, Row, is_number, usual_text_column
from maskwright.finetuning.examples import ExampleFile, SkippedRow, TextExample
from maskwright.finetuning.readers.options import Kind, ReadOptions
from maskwright.finetuning.readers.tables import KEYS, LABELS, PAIRS, Source, Table, as_text, read_table

_RELATED: tuple[Kind, ...] = ("embedding", "reranking")
"""Kinds whose rows are related texts: pairs, with or without a number, or triplets."""


def read_texts(
    source: Source, kind: Kind, options: ReadOptions = ReadOptions(), optional: Collection[str] = ()
) -> ExampleFile[TextExample]:
    """Read texts, or pairs of texts, with their labels.

    `optional` are fields of the options whose columns the file may lack: they are then guessed.

    Formats: CSV, TSV, JSON, JSON Lines or Parquet; or one text per line, where no labels are needed; or data in memory.

    Bad rows: those with too many or too few columns, without any text, with broken characters, and, where labels are
    needed, without a label or with an invalid one.
    """
    table = read_table(source, kind, options)
    absent = {field for field in optional if table.find(getattr(options, field)) is None}
    if absent & {"text", "text2"}:  # A pair is guessed as a whole.
        absent |= {"text", "text2"}.intersection(optional)
    options = options.replace(**dict.fromkeys(absent, ()))
    texts = _text_columns(table, options)
    if kind == "reranking" and len(texts) == 1:
        raise _to_be_named(table, "reranking needs a query and a document", "text")
    if kind in _RELATED and options.labels != "ignored":
        texts += _negative_column(table, options, texts)
    labels = _label_columns(table, kind, options, texts)
    if both := [column for column in texts if column in labels]:
        raise DataError(
            f"{table.name}: column {both[0]!r} is named as the text and as the label",
            allowed=listed(table.columns),
            hint="Name two different ones.",
        )
    columns: dict[str, Any] = dict(zip(("text", "text2", "negative"), texts, strict=False))
    columns |= {"label_columns": labels} if options.label_columns else {"label": next(iter(labels), None)}
    only = [(name, value) for name, value in options.only if name in table.columns]
    chosen = [row for row in table.rows if all(str(row.cells[name]).strip() == value for name, value in only)]
    if left_out := len(table.rows) - len(chosen):
        names = ", ".join(name for name, _ in only)
        table.notes.append(f"{pluralize(left_out, 'row')} with other values of {names} left out")
        table.rows = chosen

    def example(row: Row, key: str) -> TextExample | None:
        pair = tuple(as_text(row.cells[column]) for column in texts)
        if not (all if kind in _RELATED else any)(text.strip() for text in pair):
            raise ValueError("no text")
        label = _label(row.cells, kind, labels, options)
        if label is None and options.labels == "needed" and len(pair) < 3:
            raise ValueError("no label")
        if isinstance(label, str) and label in options.dropped_labels:
            table.skips.by_rule.append(SkippedRow(row.location, f"labeled {label!r}, which is left out by rule"))
            return None
        return TextExample(key=key, texts=pair, label=label)

    file = table.file(example, columns)
    return _labeled_pairs(file) if kind == "reranking" and len(texts) == 3 else file


def _labeled_pairs(file: ExampleFile[TextExample]) -> ExampleFile[TextExample]:
    """Return the distinct pairs of triplets, labeled 1 and 0; 1 if a pair is relevant in any triplet."""
    pairs: dict[tuple[str, ...], TextExample] = {}
    for example in file.examples:
        query, positive, negative = example.texts
        for suffix, document, label in (("", positive, 1.0), (":negative", negative, 0.0)):
            pair = TextExample(key=f"{example.key}{suffix}", texts=(query, document), label=label)
            if label > pairs.setdefault(pair.texts, pair).label:
                pairs[pair.texts] = pair
    return replace(file, examples=tuple(pairs.values()))


def _text_columns(table: Table, options: ReadOptions) -> tuple[str, ...]:
    """Return the column of the text, or the two of a pair; a guess goes into the notes."""
    if options.text2 and not options.text:
        raise _to_be_named(table, f"the second text is named ({options.text2[0]!r}), the first is not", "text")
    if options.text:
        first = table.need(options.text, "the text", "--text")
        return (first, table.need(options.text2, "the second text", "--text2")) if options.text2 else (first,)
    if table.columns == ("text",):
        return table.columns
    labels = {table.find(names) for names in (options.label, *([name] for name in options.label_columns))} - {None}
    labels = labels or {table.find(LABELS)}
    free = [column for column in table.columns if column not in labels and column.casefold() not in KEYS]
    for pair in PAIRS:
        columns = tuple(column for name in pair if (column := table.find([name])) in free)
        if len(columns) == 2:
            table.notes.append(f"pairs of texts: columns {columns[0]!r} and {columns[1]!r}" + _guessed("text"))
            return columns
    usual = usual_text_column(free)
    if usual is None and (len(free) != 1 or free[0].isdecimal()):
        raise _to_be_named(table, "no column has a usual name of a text", "text")
    column = free[0] if usual is None else usual
    table.notes.append(f"text: column {column!r}" + _guessed("text"))
    return (column,)


def _guessed(option: str) -> str:
    return f" (--{option} NAME for another)"


def _to_be_named(table: Table, problem: str, role: str) -> DataError:
    return DataError(
        f"{table.name}: {problem}",
        allowed=listed(table.columns),
        hint=f"Name it, `--{role} COLUMN`" + ", or two for pairs, `--text COLUMN --text2 COLUMN`" * (role == "text"),
    )


def _label_columns(table: Table, kind: Kind, options: ReadOptions, texts: Sequence[str]) -> tuple[str, ...]:
    """Return the column of the label, or several of 0 and 1; none if the file has no labels and needs none."""
    if options.labels == "ignored":
        return ()
    is_similarity = kind in _RELATED
    if named := options.label_columns or options.label:
        each: list[Sequence[str]] = [[name] for name in options.label_columns] or [options.label]
        if options.labels == "if_there" and all(table.find(names) is None for names in each):
            table.notes.append(f"no column {named[0]!r}: the file has no labels")
            return ()
        if is_similarity and len(texts) != 2:
            raise _to_be_named(table, "--label names a similarity, which pairs of texts have", "text")
        return tuple(table.need(names, "the similarity" if is_similarity else "the label", "--label") for names in each)
    if is_similarity:
        return _similarity_column(table, options, texts)
    others = [column for column in table.columns if column not in texts and column.casefold() not in KEYS]
    label = table.find(LABELS, besides=texts) or (others[0] if len(others) == 1 else "")
    if label and not label.isdecimal():
        table.notes.append(f"label: column {label!r}" + _guessed("label"))
        return (label,)
    if options.labels == "if_there":
        table.notes.append("no column has a usual name of labels: the file has no labels")
        return ()
    if "one text per line" in table.notes:
        raise DataError(
            f"{table.name} has one text per line and no labels",
            allowed="a CSV, TSV, JSON Lines or Parquet file with a column of labels",
            hint='If each line starts with its label and a space: `--read "delimiter= " --label 1 --text 2`.',
        )
    raise _to_be_named(table, "no column has a usual name of a label", "label")


def _negative_column(table: Table, options: ReadOptions, texts: Sequence[str]) -> tuple[str, ...]:
    """Return the column of negatives beside a pair, if there is one."""
    if options.negative and len(texts) == 1:
        raise _to_be_named(table, "a column of negatives is named, a second text is not", "text")
    if options.negative:
        return (table.need(options.negative, "the negatives", "--read negative="),)
    column = table.find(["negative"], besides=texts) if len(texts) == 2 else None
    if column is None:
        return ()
    table.notes.append(f"triplets: column {column!r} holds the negatives")
    return (column,)


def _similarity_column(table: Table, options: ReadOptions, texts: Sequence[str]) -> tuple[str, ...]:
    """Return the column of a usual name that holds the similarity of pairs, if there is one."""
    column = table.find(LABELS, besides=[*texts, *(name for name, _ in options.only)]) if len(texts) == 2 else None
    if column is None:
        return ()
    rows = [row for row in table.rows if row.cells[column] not in (None, "")]
    bad = next((row for row in rows if not is_number(row.cells[column])), None)
    if bad or not rows:
        problem = (
            f"{bad.location}: {bad.cells[column]!r} is not a number" if bad else f"{table.name}: there are no numbers"
        )
        raise DataError(
            f"{problem}, so that column {column!r} holds no numbers as similarities of the pairs",
            hint=f'To train on the similar pairs alone, name them: `--read "only=[[{column}, VALUE]]"`.',
        )
    table.notes.append(f"similarity of the pairs: column {column!r}" + _guessed("label"))
    return (column,)


_FLAGS = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}


def class_name(value: object) -> str | None:
    """Return a class as text; None where there is none; ValueError if it is not one name.

    JSON and Parquet hold numbers and booleans: 1 and 1.0 are the class "1" (a missing label turns whole numbers into
    fractions in pandas), true is "true".
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        value = None if math.isnan(value) else int(value) if value.is_integer() else value
    if isinstance(value, list | dict):
        raise ValueError(f"the label is a {type(value).__name__}, not one class")
    return None if value is None else str(value).strip() or None


def _label(cells: Cells, kind: Kind, columns: Sequence[str], options: ReadOptions) -> Any:
    """Return the label of a row; None where there is none. Raises ValueError if it is invalid."""
    if not columns:
        return None
    if kind == "multi_label" and options.label_columns:
        return tuple(_known(column, options) for column in columns if _flag(cells[column]))
    value = cells[columns[0]]
    if kind in ("regression", *_RELATED):
        return _number(value)
    if kind == "multi_label":
        return _classes(value, options)
    name = class_name(value)
    return name if name is None or name in options.dropped_labels else _known(name, options)


def _classes(value: object, options: ReadOptions) -> tuple[str, ...] | None:
    """Return the classes, each once, of a list or of a text with separators; an empty one has none."""
    if value is None:
        return None
    parts: Iterable[object] = value if isinstance(value, list | tuple) else [value]
    if isinstance(value, str):
        written = _written_list(value.strip())
        parts = re.split("[|;,]", value) if written is None else written
    names = dict.fromkeys(name for part in parts if (name := class_name(part)) is not None)
    return tuple(_known(name, options) for name in names)


_ITEM = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[-+.\w]+)"""
_PYTHON_LIST = re.compile(rf"\[\s*(?:{_ITEM}(?:\s*,\s*{_ITEM})*\s*(?:,\s*)?)?\]")
"""A list of strings and numbers. Without the commas, as NumPy writes it, Python would join the strings."""


def _written_list(text: str) -> list[Any] | None:
    """Return the list that a text is, in JSON or as pandas writes a column of lists to CSV; None if it is none.

    ValueError if the text begins and ends as a list of strings but is none.
    """
    if not (text.startswith("[") and text.endswith("]")):
        return None
    with contextlib.suppress(ValueError, RecursionError):
        return list(json.loads(text))
    if _PYTHON_LIST.fullmatch(text):
        with contextlib.suppress(ValueError, SyntaxError), warnings.catch_warnings(action="ignore"):
            return list(ast.literal_eval(text))
    if re.match(r"""[\[\s]+['"]""", text):
        raise ValueError(f"the label {text!r} is not a list of texts with commas")
    return None


def _known(name: str, options: ReadOptions) -> str:
    name = dict(options.label_names).get(name, name)
    if options.known_labels and name not in options.known_labels:
        raise ValueError(f"the label {name!r} is none of {', '.join(options.known_labels)}")
    return name


_LARGEST = 1e30
"""Largest number as a label: its square, and sums of those, are finite."""


def _number(value: object) -> float | None:
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, bool | list | dict) or not is_number(value):
        raise ValueError(f"the label {value!r} is not a number")
    result = float(str(value).replace(",", ".", 1))
    if math.isnan(result) and not isinstance(value, str):
        return None
    if not abs(result) <= _LARGEST:
        raise ValueError(f"the label {value!r} is not a number from -{_LARGEST:g} to {_LARGEST:g}")
    return result


def _flag(value: object) -> bool:
    try:
        return _FLAGS[str(value).strip().casefold()]
    except KeyError:
        raise ValueError(f"{value!r} is neither 0 nor 1") from None
