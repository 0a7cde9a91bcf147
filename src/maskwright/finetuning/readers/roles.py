"""Which column of a table is the text, which the label: as named, or guessed by name and content and said."""

import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from maskwright.core.errors import DataError, nearest
from maskwright.finetuning.readers import column_names
from maskwright.finetuning.readers.dates import is_date
from maskwright.finetuning.readers.delimited import is_number
from maskwright.finetuning.readers.options import Columns, ReadOptions, TextKind, as_names
from maskwright.finetuning.readers.rows import Table

_MOST_CLASSES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """Columns of a table by what they mean.

    Attributes:
        texts: One or two.
        label: None where the file has none.
        label_columns: Multi-label: columns of 0 and 1.
        key: None where rows are called by their number.
        notes: What was guessed.
    """

    texts: tuple[str, ...]
    label: str | None
    label_columns: tuple[str, ...] = ()
    key: str | None = None
    notes: tuple[str, ...] = ()

    def read_as(self) -> dict[str, Any]:
        """Return the columns as fields of `ReadOptions`; keys are found anew in every file."""
        named = {"text": self.texts[0], "text2": self.texts[1] if len(self.texts) > 1 else (), "label": self.label}
        found = {role: column for role, column in named.items() if column}
        return {**found, "label_columns": self.label_columns} if self.label_columns else found


def roles_of(table: Table, kind: TextKind, options: ReadOptions) -> Roles:
    """Find the columns of the texts, the label and the key.

    Raises:
        DataError: If a named column is absent (the nearest is suggested), or nothing or too much could be meant.
    """
    notes: list[str] = []
    texts = _texts(table, options, notes)
    _check_apart(table, options, texts)
    if options.labels == "ignored":
        label: str | None = None
        several: tuple[str, ...] = ()
    else:
        label, several = _labels(table, kind, options, texts, notes)
    key = key_column(table, options, taken=(*texts, *several, *((label,) if label else ())))
    check_named_once(table, options, (*texts, label, *several, key, *(name for name, _ in options.only)))
    return Roles(texts=texts, label=label, label_columns=several, key=key, notes=tuple(notes))


def find_column(table: Table, columns: Columns, besides: Collection[str] = ()) -> str | None:
    """Return the first of the named columns that the table has; capitals do not matter if nothing fits as written.

    Args:
        table: The table.
        columns: Names.
        besides: The table's columns that are something else.
    """
    names = as_names(columns)
    there = [column for column in table.columns if column not in besides]
    for name in names:
        if name in there:
            return name
    folded = {column.casefold(): column for column in reversed(there)}
    return next((folded[name.casefold()] for name in names if name.casefold() in folded), None)


def need_column(table: Table, columns: Columns, what: str, option: str) -> str:
    """Return the first of the named columns that the table has.

    Args:
        table: The table.
        columns: Names, the first one found is taken.
        what: What it holds, for the message.
        option: The option that names it, for the message.

    Raises:
        DataError: If it has none of them.
    """
    if (found := find_column(table, columns)) is not None:
        return found
    names = as_names(columns)
    guess = next((near for name in names if (near := nearest(name, table.columns))), None)
    hint = f"Did you mean {guess!r}?" if guess else f"Name it with the option {option!r}."
    wanted = repr(names[0]) if len(names) == 1 else f"any of {', '.join(map(repr, names))}"
    raise DataError(f"{table.name} has no column {wanted} for {what}", allowed=_shown(table.columns), todo=hint)


def check_named_once(table: Table, options: ReadOptions, used: Iterable[str | None]) -> None:
    """Refuse to guess a column whose name the header holds more than once: another could be meant.

    Args:
        table: The table.
        options: May say which one: "text" is the first, "text (2)" the second.
        used: The table's columns that are read; None for what is in no column.

    Raises:
        DataError: With the first such column.
    """
    named = options.named_columns()
    for column in used:
        name = table.repeated.get(column or "")
        if name is None or column in named:
            continue
        same = [other for other in table.columns if table.repeated.get(other) == name]
        raise DataError(
            f"{table.name}: the header holds {name!r} {len(same)} times, and one of these columns is to be read",
            allowed=_shown(table.columns),
            todo=f"Name the one that is meant: {same[0]!r} is the first, {same[1]!r} the second.",
        )


def key_column(table: Table, options: ReadOptions, taken: Sequence[str] = ()) -> str | None:
    """Return the column of ids: the named one, or a usual one whose values all differ."""
    if options.key:
        return need_column(table, options.key, "the id", "key")
    for name in column_names.KEYS:
        column = find_column(table, name)
        if column is not None and column not in taken and column not in table.repeated:
            values = [str(value).strip() for value in table.values_of(column) if value is not None]
            if len(values) == len(table.rows) and len(set(values)) == len(values) and all(values):
                return column
    return None


def _labelled(table: Table, options: ReadOptions) -> set[str]:
    """Return the table's columns that are named for labels."""
    return {
        column for names in (options.label, *options.label_columns) if (column := find_column(table, names)) is not None
    }


def _check_apart(table: Table, options: ReadOptions, texts: Sequence[str]) -> None:
    """Refuse to read a text from the column of the label: it would be learnt to perfection."""
    if both := [column for column in texts if column in _labelled(table, options)]:
        raise DataError(
            f"{table.name}: column {both[0]!r} is named as the text and as the label",
            allowed=_shown(table.columns),
            todo="Name two different ones.",
        )


def _texts(table: Table, options: ReadOptions, notes: list[str]) -> tuple[str, ...]:
    if options.text:
        first = need_column(table, options.text, "the text", "text")
        return (first, need_column(table, options.text2, "the second text", "text2")) if options.text2 else (first,)
    if options.text2:
        second = need_column(table, options.text2, "the second text", "text2")
        raise DataError(
            f"{table.name}: the second text is named ({second!r}), the first is not",
            allowed=_shown(table.columns),
            todo="Name both with the options 'text' and 'text2'.",
        )
    named = _labelled(table, options) | {find_column(table, options.key) or ""}
    for one, two in column_names.PAIRS:
        first_found, second_found = find_column(table, one), find_column(table, two)
        if first_found and second_found and not named & {first_found, second_found}:
            notes.append(f"columns {first_found!r} and {second_found!r} are taken as a pair of texts")
            return first_found, second_found
    if table.columns == ("text",):
        return table.columns
    usual = find_column(table, column_names.TEXTS, besides=named)
    if usual is not None and _mean_length(table, usual) > 0:
        notes.append(f"column {usual!r} is taken as the text")
        return (usual,)
    return (_longest(table, named, notes),)


def _longest(table: Table, named: Collection[str], notes: list[str]) -> str:
    lengths = {column: _mean_length(table, column) for column in table.columns if column not in named}
    textual = [column for column, length in lengths.items() if length > 0]
    if not textual:
        raise DataError(
            f"{table.name}: no column holds text", allowed=_shown(table.columns), todo="Name it with the option 'text'."
        )
    longest = max(textual, key=lambda column: lengths[column])
    why = "the longest on average" if len(textual) > 1 else "the only one with text"
    notes.append(f"column {longest!r} is taken as the text ({why})")
    if others := [column for column in textual if 2 * lengths[column] > lengths[longest] and column != longest]:
        notes.append(f"columns of about that length are not read: {', '.join(others)}; name two columns for pairs")
    return longest


def _labels(
    table: Table, kind: TextKind, options: ReadOptions, texts: Sequence[str], notes: list[str]
) -> tuple[str | None, tuple[str, ...]]:
    if options.label_columns:
        if options.labels == "if_there" and all(find_column(table, name) is None for name in options.label_columns):
            notes.append(f"no column {options.label_columns[0]!r}: the file has no labels")
            return None, ()
        return None, tuple(need_column(table, name, "a class", "label_columns") for name in options.label_columns)
    if options.label:
        if options.labels == "if_there" and find_column(table, options.label) is None:
            notes.append(f"no column {as_names(options.label)[0]!r}: the file has no labels")
            return None, ()
        return need_column(table, options.label, "the label", "label"), ()
    rest = [column for column in table.columns if column not in texts]
    if kind == "multi_label" and len(flags := [column for column in rest if _is_flags(table, column)]) > 1:
        notes.append(f"columns {', '.join(map(repr, flags))} hold 0 and 1 and are taken as the classes")
        return None, tuple(flags)
    dates = [column for column in rest if kind != "regression" and _holds_dates(table, column)]
    named = find_column(table, column_names.LABELS, besides=(*texts, *dates))
    if named is not None:
        notes.append(f"column {named!r} is taken as the label")
        return named, ()
    candidates = [
        column for column in rest if column.casefold() not in column_names.KEYS and _fits(table, column, kind)
    ]
    if passed_over := [column for column in candidates if column in dates]:
        notes.append(f"dates and times are no labels: {', '.join(passed_over)}")
        candidates = [column for column in candidates if column not in dates]
    if len(candidates) == 1:
        count = len({str(value) for value in table.values_of(candidates[0])})
        notes.append(f"column {candidates[0]!r} is taken as the label ({count} different values)")
        return candidates[0], ()
    if not candidates and options.labels == "if_there":
        notes.append("no column looks like a label: the file has no labels")
        return None, ()
    none = f" (dates and times are no labels: {', '.join(dates)})" if dates else ""
    which, todo = f"no column looks like a label{none}", "Name it with the option 'label'."
    if candidates:
        which = f"several columns could be the label ({', '.join(candidates)})"
        likeliest = min(candidates, key=lambda column: _different(table, column))
        todo = f"Name it with the option 'label', e.g. `--label {shlex.quote(likeliest)}`."
    raise DataError(f"{table.name}: {which}", allowed=_shown(table.columns), todo=todo)


def _fits(table: Table, column: str, kind: TextKind) -> bool:
    values = [value for value in table.values_of(column) if value is not None and str(value).strip()]
    if kind == "multi_label":
        return bool(values) and (
            all(isinstance(value, list) for value in values)
            or (_mean_length(table, column) > 0 and len({str(value) for value in values}) < len(values))
        )
    if any(isinstance(value, list | dict) for value in values):
        return False
    if kind == "regression":
        return bool(values) and all(is_number(str(value)) for value in values)
    different = _different(table, column)
    return 2 <= different <= max(2, min(len(values) // 2, _MOST_CLASSES))


def _different(table: Table, column: str) -> int:
    values = {str(value).strip() for value in table.values_of(column) if value is not None}
    return len(values - {""})


def _holds_dates(table: Table, column: str) -> bool:
    values = [value for value in table.values_of(column) if value is not None and str(value).strip()]
    return bool(values) and all(map(is_date, values))


def _is_flags(table: Table, column: str) -> bool:
    values = {str(value).strip().casefold() for value in table.values_of(column) if value is not None}
    return bool(values) and values <= {"0", "1", "true", "false", "0.0", "1.0"}


def _mean_length(table: Table, column: str) -> float:
    """Mean number of characters; 0 if the column mostly holds no text, or nothing but numbers or dates."""
    values = [value for value in table.values_of(column) if value is not None]
    strings = [value for value in values if isinstance(value, str)]
    if 2 * len(strings) <= len(values) or all(
        is_number(value) or not value.strip() or is_date(value) for value in strings
    ):
        return 0.0
    return sum(map(len, strings)) / len(strings)


def _shown(columns: Sequence[str]) -> str:
    return ", ".join(columns[:20]) + (", ..." if len(columns) > 20 else "")
