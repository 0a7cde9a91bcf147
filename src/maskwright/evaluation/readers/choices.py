"""Multiple choice in any format; SWAG's CSV is a table like any other."""

import re
from pathlib import Path

from maskwright.core.errors import DataError
from maskwright.evaluation.examples import ChoiceExample, ExampleFile
from maskwright.evaluation.readers import column_names
from maskwright.evaluation.readers.dream import read_dream
from maskwright.evaluation.readers.formats import format_of
from maskwright.evaluation.readers.options import ReadOptions, as_names
from maskwright.evaluation.readers.race import read_race
from maskwright.evaluation.readers.right_choice import checked_choice, letter, matching
from maskwright.evaluation.readers.roles import find_column, key_column, need_column
from maskwright.evaluation.readers.rows import Row, Table
from maskwright.evaluation.readers.skips import Skips
from maskwright.evaluation.readers.tables import read_table
from maskwright.evaluation.readers.texts import as_text

_ONE_OPTION = re.compile(r"(?:ending|option|choice|answer)[ _-]?(?:\d|[a-h])|[a-h]", re.IGNORECASE)


def read_choices(path: Path, options: ReadOptions = ReadOptions()) -> ExampleFile[ChoiceExample]:
    """Read questions with options of which one is right.

    Args:
        path: RACE's folders or JSONL, DREAM's or C3's JSON; or CSV, TSV, JSONL or Parquet with a column for each option
            (SWAG) or one that lists them. The right one is a letter, a number, or the option itself.
        options: How to read it: `text` is the context, `text2` the question, `choices` the options.

    Raises:
        DataError: If the file cannot be read, columns cannot be found, or most questions are bad.
    """
    match format_of(path, "multiple_choice", options):
        case "race":
            return read_race(path, options)
        case "dream":
            return read_dream(path, options)
        case format:
            skips = Skips(str(path), options.bad_rows)
            table = read_table(path, format, options, skips)
            if not table.rows:
                skips.finished(0)
            return _from_table(table, options, skips)


def _from_table(table: Table, options: ReadOptions, skips: Skips) -> ExampleFile[ChoiceExample]:
    notes = list(table.notes)
    context = find_column(table, column_names.CHOICE_CONTEXTS)
    question = find_column(table, column_names.CHOICE_QUESTIONS)
    if options.text:
        context = need_column(table, options.text, "the context", "text")
    if options.text2:
        question = need_column(table, options.text2, "the question", "text2")
    columns = _choice_columns(table, options, notes)
    right = None
    if options.labels == "needed":
        right = need_column(table, options.label or column_names.RIGHT_CHOICES, "the right option", "label")
    elif options.labels == "if_there":
        right = find_column(table, options.label or column_names.RIGHT_CHOICES)
    from_one = right is not None and _counts_from_one(table, right, columns, notes)
    key = key_column(table, options, taken=[name for name in (context, question, right, *columns) if name])
    examples = []
    for row in table.rows:
        try:
            examples.append(_example(table, row, (context, question, right, key), columns, from_one, options))
        except ValueError as error:
            skips.add(table.place(row), str(error))
    skipped = skips.finished(len(examples))
    return ExampleFile(name=table.name, examples=tuple(examples), skipped=skipped, notes=tuple(notes))


def _choice_columns(table: Table, options: ReadOptions, notes: list[str]) -> tuple[str, ...]:
    if options.choices:
        return tuple(need_column(table, name, "an option", "choices") for name in as_names(options.choices))
    if (listed := find_column(table, column_names.CHOICE_LISTS)) is not None:
        return (listed,)
    columns = tuple(sorted((name for name in table.columns if _ONE_OPTION.fullmatch(name)), key=str.casefold))
    if len(columns) < 2:
        raise DataError(
            f"{table.name}: no columns look like options",
            allowed=", ".join(table.columns),
            todo="Name them with the option 'choices': one column each, or one that holds a list.",
        )
    notes.append(f"columns {', '.join(columns)} are taken as the options")
    return columns


def _counts_from_one(table: Table, right: str, columns: tuple[str, ...], notes: list[str]) -> bool:
    """Whether the right options are numbered from 1: no 0 among them, and the highest is the number of options."""
    values = {str(value).strip() for value in table.values_of(right) if value is not None and str(value).strip()}
    if not values or not all(value.isdecimal() for value in values) or "0" in values:
        return False
    from_one = len(columns) > 1 and str(len(columns)) in values
    if from_one:
        notes.append(f"column {right!r} numbers the options from 1")
    return from_one


def _example(
    table: Table,
    row: Row,
    named: tuple[str | None, str | None, str | None, str | None],
    columns: tuple[str, ...],
    from_one: bool,
    options: ReadOptions,
) -> ChoiceExample:
    cells = dict(zip(table.columns, row.values, strict=True))
    context, question, right, key = (cells[name] if name else None for name in named)
    offered = cells[columns[0]] if len(columns) == 1 else [cells[name] for name in columns]
    if not isinstance(offered, list):
        raise ValueError(f"the options are a {type(offered).__name__}, not a list")
    name = as_text(key).strip() if named[3] else str(row.number)
    return checked_choice(name, as_text(context), question, offered, _right(right, offered, from_one), options)


def _right(value: object, offered: list[object], from_one: bool) -> int | None:
    text = str(value).strip() if value is not None else ""
    if not text:
        return None
    if text in [str(choice).strip() for choice in offered]:
        return matching(text, offered)
    if text.isdecimal():
        return int(text) - from_one
    return letter(text)
