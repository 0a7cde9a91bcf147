"""Texts and pairs of texts with a class, a number or several classes, from any table.

Columns are those the user named, else one simple guess by usual names, which is always in the notes. Where several
columns could be meant, the user must name them.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from maskwright.core.amounts import counted
from maskwright.core.errors import DataError
from maskwright.core.surrogates import surrogate_problem
from maskwright.finetuning.examples import ExampleFile, Label, Skipped, TextExample
from maskwright.finetuning.readers.files import Skips, format_of
from maskwright.finetuning.readers.options import ReadOptions, TextKind
from maskwright.finetuning.readers.tables import KEYS, LABELS, PAIRS, TEXTS, Cells, Row, Table, is_number, read_table

_UNMISTAKABLE = ("text", "sentence")
_ROWS_LOOKED_AT = 200
_LONG = 20


def read_texts(path: Path, kind: TextKind, options: ReadOptions = ReadOptions()) -> ExampleFile[TextExample]:
    """Read texts, or pairs of texts, with their labels.

    Formats: CSV, TSV, JSON, JSON Lines or Parquet; or one text per line, where no labels are needed.

    Bad rows: those with too many or too few columns, without any text, with broken characters, and, where labels are
    needed, without a label or with an invalid one.

    Raises:
        DataError: If the file cannot be read, columns cannot be found, or most rows are bad.
    """
    skips = Skips(str(path), options.bad_rows)
    table = read_table(path, format_of(path, kind, options), options, skips)
    notes = list(table.notes)
    texts = text_columns(table, options, notes)
    if kind == "embedding":
        texts += _negative_column(table, options, texts, notes)
        labels = _similarity_column(table, options, texts, notes)
    else:
        labels = () if options.labels == "ignored" else _label_columns(table, kind, options, texts, notes)
    if both := [column for column in texts if column in labels]:
        raise DataError(
            f"{table.name}: column {both[0]!r} is named as the text and as the label",
            allowed=table.shown(),
            todo="Name two different ones.",
        )
    key = table.key(options, taken=(*texts, *labels))
    read_as = {**table.read_as, **dict(zip(("text", "text2", "negative"), texts, strict=False))}
    flags = kind == "multi_label" and len(labels) > 0 and (bool(options.label_columns) or len(labels) > 1)
    if labels:
        read_as["label_columns" if flags else "label"] = labels if flags else labels[0]
    guessed = _guess_separator(table.values_of(labels[0])) if kind == "multi_label" and labels and not flags else None
    if guessed and not options.label_separator:
        notes.append(f"several classes are separated by {guessed!r}")
        options = options.replace(label_separator=guessed)
    if options.label_separator:
        read_as["label_separator"] = options.label_separator
    wanted = [(name, value) for name, value in options.only if name in table.columns]
    other_values: list[str] = []

    def example(row: Row) -> TextExample | None:
        cells = row.cells
        if any(str(cells[name]).strip() != value for name, value in wanted):
            other_values.append(row.key)
            return None
        key_text = as_text(cells[key]).strip() if key else row.key
        pair = tuple(as_text(cells[column]) for column in texts)
        if not (all if kind == "embedding" else any)(text.strip() for text in pair):
            raise ValueError("no text")
        label = _label(cells, kind, labels, options, flags=flags)
        if label is None and options.labels == "needed":
            raise ValueError("no label")
        if isinstance(label, str) and label in options.dropped_labels:
            skips.by_rule.append(Skipped(row.place, f"labeled {label!r}, which is left out by rule"))
            return None
        return TextExample(key=key_text, texts=pair, label=label)

    examples = table.examples(example, skips)
    if other_values:
        columns = ", ".join(name for name, _ in options.only)
        notes.append(f"{counted(len(other_values), 'row')} with other values of {columns} left out")
    return ExampleFile(
        name=str(path),
        skipped=skips.finished(len(examples)),
        examples=tuple(examples),
        notes=tuple(notes),
        read_as=read_as,
    )


def text_columns(table: Table, options: ReadOptions, notes: list[str]) -> tuple[str, ...]:
    """Return the column of the text, or the two of a pair; a guess goes into the notes.

    Raises:
        DataError: If a named column is absent, or none or several could be meant.
    """
    if options.text2 and not options.text:
        raise DataError(
            f"{table.name}: the second text is named ({options.text2[0]!r}), the first is not",
            allowed=table.shown(),
            todo="Name both, `--text COLUMN --text2 COLUMN`.",
        )
    if options.text:
        first = table.need(options.text, "the text", "--text")
        if options.text2:
            return first, table.need(options.text2, "the second text", "--text2")
        for other in table.columns:
            if first.isdecimal() and other not in (first, *options.label) and _holds_texts(table, other):
                notes.append(f"not read: column {other}, which holds texts too (`--text2 {other}` for pairs)")
        return (first,)
    if table.columns == ("text",):
        return table.columns
    labels = (options.label, *([name] for name in options.label_columns))
    named = {column for names in labels if (column := table.find(names)) is not None}
    for pair in PAIRS:
        found = tuple(column for name in pair if (column := table.find([name], besides=named)))
        if len(found) == 2:
            notes.append(f"pairs of texts: columns {found[0]!r} and {found[1]!r}")
            return found
    column = table.find(_UNMISTAKABLE, besides=named)
    if column is None:
        label = named or {table.find(LABELS) or ""}
        rest = [name for name in table.columns if name not in label and name.casefold() not in KEYS]
        usual = [name for name in rest if name.casefold() in TEXTS]
        could = [name for name in rest if name in usual or (usual and _holds_texts(table, name))]
        is_named = len(table.columns) == 1 or not any(map(str.isdecimal, rest))
        could = could or (rest if len(rest) == 1 and is_named else [])
        if len(could) != 1:
            raise _not_found(table, could, "text")
        column = could[0]
    notes.append(f"text: column {column!r}")
    return (column,)


def _label_columns(
    table: Table, kind: TextKind, options: ReadOptions, texts: Sequence[str], notes: list[str]
) -> tuple[str, ...]:
    """Return the column of the label, or several of 0 and 1; none if the file has no labels and needs none."""
    if named := options.label_columns or options.label:
        each: list[Sequence[str]] = [[name] for name in options.label_columns] or [options.label]
        if options.labels == "if_there" and all(table.find(names) is None for names in each):
            notes.append(f"no column {named[0]!r}: the file has no labels")
            return ()
        if options.label_columns:
            return tuple(table.need([name], "a class", "--read label_columns=") for name in named)
        return (table.need(named, "the label", "--label"),)
    rest = [column for column in table.columns if column not in texts]
    if kind == "multi_label" and len(flags := [column for column in rest if _is_flags(table, column)]) > 1:
        notes.append(f"classes: columns {', '.join(map(repr, flags))}, which hold 0 and 1")
        return tuple(flags)
    others = [column for column in rest if column.casefold() not in KEYS]
    label = table.find(LABELS, besides=texts) or (others[0] if len(others) == 1 else "")
    if label and not label.isdecimal():
        notes.append(f"label: column {label!r}")
        return (label,)
    if options.labels == "if_there":
        notes.append("no column has a usual name of labels: the file has no labels")
        return ()
    raise _not_found(table, (), "label")


def _negative_column(table: Table, options: ReadOptions, texts: Sequence[str], notes: list[str]) -> tuple[str, ...]:
    """Return the column of negatives beside a pair, if there is one."""
    if options.negative and len(texts) == 1:
        raise DataError(
            f"{table.name}: a column of negatives is named ({options.negative[0]!r}), a second text is not",
            allowed=table.shown(),
            todo="Name all three, `--text COLUMN --text2 COLUMN --read negative=COLUMN`.",
        )
    if options.negative:
        return (table.need(options.negative, "the negatives", "--read negative="),)
    found = table.find(["negative"], besides=texts) if len(texts) == 2 else None
    if found is None:
        return ()
    notes.append(f"triplets: column {found!r} holds the negatives")
    return (found,)


def _similarity_column(table: Table, options: ReadOptions, texts: Sequence[str], notes: list[str]) -> tuple[str, ...]:
    """Return the column of the similarity of pairs, if there is one: named, or of a usual name."""
    if len(texts) != 2:
        if options.label:
            raise DataError(
                f"{table.name}: --label names a similarity, which pairs of texts have; "
                f"the texts here are {', '.join(map(repr, texts))}",
                todo="Name pairs, `--text COLUMN --text2 COLUMN`, or leave --label out.",
            )
        return ()
    if options.label:
        if options.labels == "if_there" and table.find(options.label) is None:
            notes.append(f"no column {options.label[0]!r}: the pairs have no similarity")
            return ()
        return (table.need(options.label, "the similarity", "--label"),)
    found = table.find(LABELS, besides=[*texts, *(name for name, _ in options.only)])
    if found is None:
        return ()
    values = [value for value in table.values_of(found) if value not in (None, "")]
    if not values or not all(map(is_number, values)):
        raise DataError(
            f"{table.name}: column {found!r} holds no numbers, so that it is no similarity of the pairs",
            todo=f'To train on the similar pairs alone, name them: `--read "only=[[{found}, VALUE]]"`.',
        )
    notes.append(f"similarity of the pairs: column {found!r}")
    return (found,)


def _not_found(table: Table, could: Collection[str], role: str) -> DataError:
    todo = f"Name it, `--{role} COLUMN`."
    if role == "text":
        first, second = (*could, "COLUMN", "COLUMN")[:2] if len(could) > 1 else ("COLUMN", "COLUMN")
        todo = f"Name it, `--text {first}`, or two for pairs, `--text {first} --text2 {second}`."
    if role == "label" and "one text per line" in table.notes:
        return DataError(
            f"{table.name} has one text per line and no labels",
            allowed="a CSV, TSV, JSON Lines or Parquet file with a column of labels",
            todo='If each line starts with its label and a space: `--read "delimiter= " --label 1 --text 2`.',
        )
    allowed = table.shown()
    if could:
        problem = f"{table.name}: several columns could be the {role}: {', '.join(could)}"
    else:
        cells = table.rows[0].cells
        shown = "; ".join(f"{column}: {str(value)[:20]}" for column, value in cells.items() if column.isdecimal())
        problem = f"{table.name}: no column has a usual name of a {role}" + f" (the first row is {shown})" * bool(shown)
        names = [str(value).strip() for value in cells.values()]
        if shown and all(names) and len(set(names)) == len(names) and not any(map(is_number, names)):
            allowed += f"; or, if the first row is a header, its names: {', '.join(name[:20] for name in names[:20])}"
    return DataError(problem, allowed=allowed, todo=todo)


def _holds_texts(table: Table, column: str) -> bool:
    """Whether most of the first values are of several words, or long in UTF-8 (seven hanzi)."""
    values = [str(row.cells[column]).strip() for row in table.rows[:_ROWS_LOOKED_AT] if row.cells[column] is not None]
    long = [value for value in values if len(value.split()) > 1 or len(value.encode("utf-8", "replace")) >= _LONG]
    return 2 * len(long) > len(values)


def _is_flags(table: Table, column: str) -> bool:
    values = {str(value).strip().casefold() for value in table.values_of(column) if value is not None}
    return bool(values) and values <= _FLAGS.keys()


_FLAGS = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}


def as_text(value: object) -> str:
    """Return a cell as text; None is an empty one.

    Raises:
        ValueError: If it is not text, or holds a lone surrogate; with the reason.
    """
    if value is None:
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise ValueError(f"a {type(value).__name__} is where a text should be")
    if problem := surrogate_problem(value):
        raise ValueError(problem)
    return value


def class_name(value: object) -> str | None:
    """Return a class as text; None where there is none.

    JSON and Parquet hold numbers and booleans: 1 and 1.0 are the class "1" (a missing label turns whole numbers into
    fractions in pandas), true is "true".

    Raises:
        ValueError: If the value is not one name; with the reason.
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


def _label(cells: Cells, kind: TextKind, columns: Sequence[str], options: ReadOptions, *, flags: bool) -> Label | None:
    """Return the label of a row; None where there is none. Raises ValueError if it is invalid."""
    if not columns:
        return None
    if flags:
        return tuple(_known(column, options) for column in columns if _flag(cells[column]))
    value = cells[columns[0]]
    if kind in ("regression", "embedding"):
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
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, bool | list | dict) or not is_number(value):
        raise ValueError(f"the label {value!r} is not a number")
    result = float(str(value).replace(",", ".", 1))
    if math.isnan(result) and not isinstance(value, str):
        return None
    if not math.isfinite(result):
        raise ValueError(f"the label {value!r} is not a finite number")
    return result


def _flag(value: object) -> bool:
    try:
        return _FLAGS[str(value).strip().casefold()]
    except KeyError:
        raise ValueError(f"{value!r} is neither 0 nor 1") from None


def _guess_separator(values: Iterable[object]) -> str | None:
    """Return the most frequent of | ; and comma in texts of several classes, None if none occurs."""
    counts = Counter(mark for value in values if isinstance(value, str) for mark in "|;," if mark in value)
    return counts.most_common(1)[0][0] if counts else None
