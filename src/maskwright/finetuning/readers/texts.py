"""Texts and pairs of texts with classes, numbers or several classes, from any table."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from maskwright.core.amounts import counted
from maskwright.core.half_characters import told_half_character
from maskwright.finetuning.examples import ExampleFile, Label, TextExample
from maskwright.finetuning.readers.formats import format_of
from maskwright.finetuning.readers.labels import check_known, class_name, class_names, flag, guess_separator, number
from maskwright.finetuning.readers.options import ReadOptions, TextKind
from maskwright.finetuning.readers.roles import Roles, roles_of
from maskwright.finetuning.readers.rows import Row, Table
from maskwright.finetuning.readers.skips import Skips
from maskwright.finetuning.readers.tables import read_table


def read_texts(path: Path, kind: TextKind, options: ReadOptions = ReadOptions()) -> ExampleFile[TextExample]:
    """Read texts, or pairs of texts, with their labels.

    Bad rows: those with too many or too few columns, without any text, with broken characters, and, where labels are
    needed, without a label or with one that cannot be meant.

    Args:
        path: CSV, TSV, JSONL, JSON or Parquet; or one text a line, where no labels are needed.
        kind: What the labels are.
        options: Which columns are what, and how the file is written.

    Raises:
        DataError: If the file cannot be read, columns cannot be found, or most rows are bad.
    """
    skips = Skips(str(path), options.bad_rows)
    table = read_table(path, format_of(path, kind, options), options, skips)
    if not table.rows:
        skips.finished(0)
    roles = roles_of(table, kind, options)
    notes = [*table.notes, *roles.notes]
    read_as = {**table.read_as, **roles.read_as()}
    if kind == "multi_label" and roles.label and (separator := _separator(table, roles.label, options, notes)):
        read_as["label_separator"] = separator
        options = replace(options, label_separator=separator)
    label_of = _label_reader(table, kind, roles, options)
    places = tuple(table.columns.index(column) for column in roles.texts)
    key = table.columns.index(roles.key) if roles.key else None
    passes = _filter(table, options)
    examples = []
    passed_over = 0
    for row in table.rows:
        if not passes(row):
            passed_over += 1
            continue
        try:
            example = _example(row, places, key, label_of)
        except ValueError as error:
            skips.add(table.place(row), str(error))
            continue
        if isinstance(example.label, str) and example.label in options.dropped_labels:
            skips.add_by_rule(table.place(row), f"labelled {example.label!r}, which is left out by rule")
        elif example.label is None and options.labels == "needed":
            skips.add(table.place(row), "no label")
        else:
            examples.append(example)
    if passed_over:
        of = ", ".join(name for name, _ in options.only)
        notes.append(f"{counted(passed_over, 'row')} with other values of {of} left out")
    skipped = skips.finished(len(examples))
    return ExampleFile(
        name=str(path),
        examples=tuple(examples),
        skipped=skipped,
        notes=tuple(notes),
        read_as=read_as,
        names_among_rows=table.names_among_rows,
    )


def _example(row: Row, places: Sequence[int], key: int | None, label_of: Callable[[Row], Label | None]) -> TextExample:
    texts = tuple(as_text(row.values[place]) for place in places)
    if not any(text.strip() for text in texts):
        raise ValueError("no text")
    name = str(row.number) if key is None else as_text(row.values[key]).strip()
    return TextExample(key=name, texts=texts, label=label_of(row))


def as_text(value: object) -> str:
    """Return a cell as text; nothing is an empty one.

    Raises:
        ValueError: If it is no text, or holds half a character; with the reason.
    """
    if value is None:
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise ValueError(f"a {type(value).__name__} stands where a text should")
    if half := told_half_character(value):
        raise ValueError(half)
    return value


def _separator(table: Table, label: str, options: ReadOptions, notes: list[str]) -> str | None:
    """Return what stands between several classes."""
    if options.label_separator:
        return options.label_separator
    separator = guess_separator(table.values_of(label))
    if separator:
        notes.append(f"several classes are separated by {separator!r}")
    return separator


def _label_reader(table: Table, kind: TextKind, roles: Roles, options: ReadOptions) -> Callable[[Row], Label | None]:
    if roles.label_columns:
        places = [(check_known(name, options), table.columns.index(name)) for name in roles.label_columns]
        return lambda row: tuple(name for name, place in places if flag(row.values[place]))
    if roles.label is None:
        return lambda row: None
    place = table.columns.index(roles.label)
    if kind == "regression":
        return lambda row: number(row.values[place])
    if kind == "multi_label":
        return lambda row: _several(row.values[place], options)
    return lambda row: _one(row.values[place], options)


def _one(value: object, options: ReadOptions) -> str | None:
    name = class_name(value)
    if name is None or name in options.dropped_labels:
        return name
    return check_known(name, options)


def _several(value: object, options: ReadOptions) -> tuple[str, ...] | None:
    names = class_names(value, options.label_separator)
    return None if names is None else tuple(check_known(name, options) for name in names)


def _filter(table: Table, options: ReadOptions) -> Callable[[Row], bool]:
    wanted = [(table.columns.index(name), value) for name, value in options.only if name in table.columns]
    return lambda row: all(str(row.values[place]).strip() == value for place, value in wanted)
