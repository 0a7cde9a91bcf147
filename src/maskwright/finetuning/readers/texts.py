"""Texts and pairs of texts with a class, a number or several classes, from any table."""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from maskwright.core.amounts import counted
from maskwright.core.half_characters import told_half_character
from maskwright.finetuning.examples import ExampleFile, Label, TextExample
from maskwright.finetuning.readers.columns import Roles, roles_of
from maskwright.finetuning.readers.files import Skips, format_of
from maskwright.finetuning.readers.options import ReadOptions, TextKind
from maskwright.finetuning.readers.tables import read_table


def read_texts(path: Path, kind: TextKind, options: ReadOptions = ReadOptions()) -> ExampleFile[TextExample]:
    """Read texts, or pairs of texts, with their labels.

    Bad rows: those with too many or too few columns, without any text, with broken characters, and, where labels are
    needed, without a label or with one that is not understood.

    Formats: CSV, TSV, JSONL, JSON or Parquet; or one text per line, where no labels are needed.

    Raises:
        DataError: If the file cannot be read, columns cannot be found, or most rows are bad.
    """
    skips = Skips(str(path), options.bad_rows)
    table = read_table(path, format_of(path, kind, options), options, skips)
    notes = list(table.notes)
    roles = roles_of(table, kind, options, notes)
    named = {
        "text": roles.texts[0],
        "text2": "".join(roles.texts[1:]),
        "label": roles.label,
        "label_columns": roles.label_columns,
    }
    read_as = {**table.read_as, **{role: column for role, column in named.items() if column}}
    if kind == "multi_label" and roles.label:
        separator = options.label_separator or _guess_separator(table.values_of(roles.label))
        if separator:
            if not options.label_separator:
                notes.append(f"several classes are separated by {separator!r}")
            read_as["label_separator"] = separator
            options = replace(options, label_separator=separator)
    label_of = _label_reader(kind, roles, options)
    wanted = [(name, value) for name, value in options.only if name in table.columns]
    examples = []
    passed_over = 0
    for place, number, cells in table.records():
        if any(str(cells[name]).strip() != value for name, value in wanted):
            passed_over += 1
            continue
        try:
            texts = tuple(as_text(cells[column]) for column in roles.texts)
            if not any(text.strip() for text in texts):
                raise ValueError("no text")
            key = as_text(cells[roles.key]).strip() if roles.key else number
            label = label_of(cells)
        except ValueError as error:
            skips.add(place, str(error))
            continue
        if isinstance(label, str) and label in options.dropped_labels:
            skips.add_by_rule(place, f"labeled {label!r}, which is left out by rule")
        elif label is None and options.labels == "needed":
            skips.add(place, "no label")
        else:
            examples.append(TextExample(key=key, texts=texts, label=label))
    if passed_over:
        of = ", ".join(name for name, _ in options.only)
        notes.append(f"{counted(passed_over, 'row')} with other values of {of} left out")
    return ExampleFile(
        name=str(path),
        skipped=skips.finished(len(examples)),
        examples=tuple(examples),
        notes=tuple(notes),
        read_as=read_as,
        names_among_rows=table.names_among_rows,
    )


def as_text(value: object) -> str:
    """Return a cell as text; None is an empty one.

    Raises:
        ValueError: If it is no text, or holds a lone surrogate; with the reason.
    """
    if value is None:
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise ValueError(f"a {type(value).__name__} is where a text should be")
    if half := told_half_character(value):
        raise ValueError(half)
    return value


def class_name(value: object) -> str | None:
    """Return a class as text; None where there is none.

    JSON and Parquet hold numbers and booleans: 1 and 1.0 are the class "1" (a missing label turns whole numbers into
    fractions in pandas), true is "true".

    Raises:
        ValueError: If the value is no name; with the reason.
    """
    match value:
        case None:
            return None
        case str():
            return value.strip() or None
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case float():
            if math.isnan(value):
                return None
            return str(int(value)) if value.is_integer() else str(value)
        case _:
            raise ValueError(f"the label is a {type(value).__name__}, not one class")


def _label_reader(kind: TextKind, roles: Roles, options: ReadOptions) -> Callable[[dict[str, object]], Label | None]:
    if roles.label_columns:
        names = [(_known(column, options), column) for column in roles.label_columns]
        return lambda cells: tuple(name for name, column in names if _flag(cells[column]))
    column = roles.label
    if column is None:
        return lambda cells: None
    if kind == "regression":
        return lambda cells: _number(cells[column])
    if kind == "multi_label":
        return lambda cells: _classes(cells[column], options)
    return lambda cells: _class(cells[column], options)


def _class(value: object, options: ReadOptions) -> str | None:
    name = class_name(value)
    return name if name is None or name in options.dropped_labels else _known(name, options)


def _classes(value: object, options: ReadOptions) -> tuple[str, ...] | None:
    """Return the classes that hold, each once: a list, or a text with separators. An empty one: none holds."""
    if value is None:
        return None
    parts: Iterable[object] = value if isinstance(value, list | tuple) else [value]
    if isinstance(value, str) and options.label_separator:
        parts = value.split(options.label_separator)
    names = dict.fromkeys(name for part in parts if (name := class_name(part)) is not None)
    return tuple(_known(name, options) for name in names)


def _known(name: str, options: ReadOptions) -> str:
    name = dict(options.label_names).get(name, name)
    if options.known_labels and name not in options.known_labels:
        raise ValueError(f"the label {name!r} is none of {', '.join(options.known_labels)}")
    return name


def _number(value: object) -> float | None:
    """Return the label of a regression; None where there is none. The decimal mark may be a comma."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    try:
        result = float(value.strip().replace(",", ".", 1)) if isinstance(value, str) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ValueError(f"the label {value!r} is not a number") from None
    if math.isnan(result) and not isinstance(value, str):
        return None
    if not math.isfinite(result):
        raise ValueError(f"the label {value!r} is not a finite number")
    return result


def _flag(value: object) -> bool:
    match str(value).strip().casefold():
        case "1" | "1.0" | "true":
            return True
        case "0" | "0.0" | "false":
            return False
        case _:
            raise ValueError(f"{value!r} is neither 0 nor 1")


def _guess_separator(values: Iterable[object]) -> str | None:
    """Return what separates several classes in one text: the most frequent of | ; and comma, None if none occurs."""
    counts: Counter[str] = Counter()
    for value in values:
        if isinstance(value, str):
            counts.update({mark: 1 for mark in "|;," if mark in value})
    return counts.most_common(1)[0][0] if counts else None
