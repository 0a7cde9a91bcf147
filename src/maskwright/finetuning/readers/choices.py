"""Multiple choice in any format; SWAG's CSV is a table like any other."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from maskwright.core.errors import DataError
from maskwright.finetuning.examples import ChoiceExample, ExampleFile
from maskwright.finetuning.readers import column_names
from maskwright.finetuning.readers.dream import read_dream
from maskwright.finetuning.readers.formats import format_of
from maskwright.finetuning.readers.options import ReadOptions, as_names
from maskwright.finetuning.readers.race import read_race
from maskwright.finetuning.readers.right_choice import checked_choice, letter, matching
from maskwright.finetuning.readers.roles import check_named_once, find_column, key_column, need_column
from maskwright.finetuning.readers.rows import Row, Table
from maskwright.finetuning.readers.skips import Skips
from maskwright.finetuning.readers.tables import read_table
from maskwright.finetuning.readers.texts import as_text

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
    first, read_as = 0, dict(table.read_as)
    if right is not None:
        first, said = _first_option(table, right, columns, options, notes)
        read_as |= said
    key = key_column(table, options, taken=[name for name in (context, question, right, *columns) if name])
    check_named_once(table, options, (context, question, right, *columns, key))
    examples = []
    for row in table.rows:
        try:
            examples.append(_example(table, row, (context, question, right, key), columns, first, options))
        except ValueError as error:
            skips.add(table.place(row), str(error))
    skipped = skips.finished(len(examples))
    named = {"text": context, "text2": question, "choices": columns, "label": right}
    read_as |= {role: column for role, column in named.items() if column}
    return ExampleFile(name=table.name, examples=tuple(examples), skipped=skipped, notes=tuple(notes), read_as=read_as)


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


def _first_option(
    table: Table, right: str, columns: tuple[str, ...], options: ReadOptions, notes: list[str]
) -> tuple[int, dict[str, int]]:
    """Return what the right options are numbered from, and the same as a field of `ReadOptions` where it was seen.

    A 0 tells of 0, a number that is that of the options tells of 1. Files in which neither occurs are refused: taken
    the wrong way, every label would be wrong, and nothing else would be seen of it.
    """
    if options.first_option is not None:
        return options.first_option, {}
    numbered = []
    for row in table.rows:
        cells = dict(zip(table.columns, row.values, strict=True))
        offered, written = _offered(cells, columns), _written(cells[right])
        if isinstance(offered, list) and written.isdecimal() and not _repeats(written, offered):
            numbered.append((int(written), len(offered)))
    if not numbered:
        return 0, {}
    if any(number == 0 for number, _ in numbered):
        return 0, {"first_option": 0}
    if any(number == count for number, count in numbered):
        notes.append(f"column {right!r} numbers the options from 1")
        return 1, {"first_option": 1}
    raise DataError(
        f"{table.name}: column {right!r} numbers the right options, and neither 0 nor the last option's number occurs, "
        "so that it cannot be told whether they are numbered from 0 or from 1",
        allowed="first_option=0, first_option=1",
        todo="Say it, e.g. `--read first_option=1`.",
    )


def _example(
    table: Table,
    row: Row,
    named: tuple[str | None, str | None, str | None, str | None],
    columns: tuple[str, ...],
    first: int,
    options: ReadOptions,
) -> ChoiceExample:
    cells = dict(zip(table.columns, row.values, strict=True))
    context, question, right, key = (cells[name] if name else None for name in named)
    offered = _offered(cells, columns)
    if not isinstance(offered, list):
        raise ValueError(f"the options are a {type(offered).__name__}, not a list")
    name = as_text(key).strip() if named[3] else str(row.number)
    return checked_choice(name, as_text(context), question, offered, _right(right, offered, first), options)


def _offered(cells: Mapping[str, object], columns: tuple[str, ...]) -> object:
    return cells[columns[0]] if len(columns) == 1 else [cells[name] for name in columns]


def _written(value: object) -> str:
    """Return an answer as text; pandas turns whole numbers into fractions where one is missing."""
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    return "" if whole is None or whole != whole else str(whole).strip()


def _repeats(text: str, offered: Sequence[object]) -> bool:
    return text in [str(choice).strip() for choice in offered]


def _right(value: object, offered: list[object], first: int) -> int | None:
    text = _written(value)
    if not text:
        return None
    if _repeats(text, offered):
        return matching(text, offered)
    if text.isdecimal():
        return int(text) - first
    return letter(text)
