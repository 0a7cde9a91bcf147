"""Multiple choice: RACE's folders and records, DREAM's and C3's lists, and tables of any format, such as SWAG's CSV."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from maskwright.core.errors import DataError
from maskwright.finetuning.examples import ChoiceExample, ExampleFile
from maskwright.finetuning.readers.columns import (
    CHOICE_CONTEXTS,
    CHOICE_LISTS,
    CHOICE_QUESTIONS,
    RIGHT_CHOICES,
    check_named_once,
    find_column,
    key_column,
    label_column,
    need_column,
)
from maskwright.finetuning.readers.files import Skips, format_of, is_json_lines, load_text, parse_json
from maskwright.finetuning.readers.options import ReadOptions, as_names
from maskwright.finetuning.readers.tables import Table, read_table, records_of
from maskwright.finetuning.readers.texts import as_text

_ONE_OPTION = re.compile(r"(?:ending|option|choice|answer)[ _-]?(?:\d|[a-h])|[a-h]", re.IGNORECASE)


def read_choices(path: Path, options: ReadOptions = ReadOptions()) -> ExampleFile[ChoiceExample]:
    """Read questions with options of which one is right.

    Formats: RACE's folders or JSONL, DREAM's or C3's JSON; or CSV, TSV, JSONL or Parquet with a column for each option
    (SWAG) or one that lists them. The right one is a letter, a number, or the option itself. Options: `text` is the
    context, `text2` the question, `choices` the options.

    Raises:
        DataError: If the file cannot be read, columns cannot be found, or most questions are bad.
    """
    format = format_of(path, "multiple_choice", options)
    skips = Skips(str(path), options.bad_rows)
    read_as: dict[str, Any] = {}
    notes: list[str] = []
    match format:
        case "race":
            examples = list(_of_race(path, options, skips, notes))
        case "dream":
            examples = list(_of_dream(path, options, skips, notes))
        case _:
            table = read_table(path, format, options, skips)
            read_as |= table.read_as
            notes += table.notes
            examples = list(_of_table(table, options, skips, notes, read_as))
    skipped = skips.finished(len(examples))
    return ExampleFile(
        name=str(path), examples=tuple(examples), skipped=skipped, notes=tuple(dict.fromkeys(notes)), read_as=read_as
    )


def _example(
    key: str, context: str, question: object, choices: object, label: int | None, options: ReadOptions
) -> ChoiceExample:
    """Return a question as an example; ValueError if it has no two options, or its answer is none of them."""
    if not isinstance(choices, list) or len(choices) < 2:
        raise ValueError("fewer than two options")
    offered = tuple(as_text(choice) for choice in choices)
    if not all(choice.strip() for choice in offered):
        raise ValueError("an option is empty")
    if label is None and options.labels == "needed":
        raise ValueError("no answer")
    if label is not None and not 0 <= label < len(offered):
        raise ValueError(f"the answer is option {label + 1} of {len(offered)}")
    return ChoiceExample(key=key, context=as_text(context), question=as_text(question), options=offered, label=label)


def _letter(value: object) -> int | None:
    """Return the number, from 0, that a letter stands for; None where there is none."""
    if value is None or value == "":
        return None
    text = str(value).strip().upper()
    if len(text) != 1 or not "A" <= text <= "Z":
        raise ValueError(f"the answer {value!r} is not a letter")
    return ord(text) - ord("A")


def _matching(value: object, choices: Sequence[object]) -> int | None:
    """Return the number of the option that an answer repeats; None where there is no answer."""
    if value is None:
        return None
    answer = str(value).strip()
    found = [number for number, choice in enumerate(choices) if str(choice).strip() == answer]
    if len(found) != 1:
        raise ValueError(f"the answer {answer!r} is {'none' if not found else str(len(found))} of the options")
    return found[0]


def _of_race(path: Path, options: ReadOptions, skips: Skips, notes: list[str]) -> Iterator[ChoiceExample]:
    """Read RACE's layout: a folder in which every `.txt` file at any depth is one record, or a file of records."""
    files = sorted(path.rglob("*.txt")) if path.is_dir() else [path]
    if not files:
        raise DataError(
            f"the folder {path} holds no .txt files",
            allowed="RACE's folders, e.g. RACE/train with high and middle in it",
        )
    for file in files:
        name = file.relative_to(path).as_posix() if path.is_dir() else ""
        try:
            loaded = load_text(file, options.encoding)
            records = [(1, parse_json(loaded))] if name else list(records_of(loaded, skips))
        except DataError as error:
            if not name:
                raise
            skips.add(str(file), error.problem)  # one file of thousands
            continue
        notes += loaded.notes
        counted_in = "record" if name or not is_json_lines(loaded.text) else "line"
        for number, record in records:
            place = str(file) if name else f"{file}, {counted_in} {number}"
            yield from _of_race_record(record, place, name or str(number), options, skips)


def _of_race_record(record: Any, place: str, name: str, options: ReadOptions, skips: Skips) -> Iterator[ChoiceExample]:
    fields = record if isinstance(record, dict) else {}
    article, questions, choices, answers = map(fields.get, ("article", "questions", "options", "answers"))
    if not isinstance(article, str) or not isinstance(questions, list) or not isinstance(choices, list):
        skips.add(place, "no text 'article' with lists 'questions' and 'options'")
        return
    if options.labels == "ignored" or not isinstance(answers, list) or not answers:
        answers = None
    if len(choices) != len(questions) or (answers is not None and len(answers) != len(questions)):
        counts = f"{len(questions)} questions, {len(choices)} lists of options"
        skips.add(place, f"{counts}, {'no' if answers is None else len(answers)} answers")
        return
    key = str(fields.get("id") or name)
    for count, (question, offered) in enumerate(zip(questions, choices, strict=True), 1):
        try:
            right = None if answers is None else _letter(answers[count - 1])
            yield _example(f"{key}-{count}", article, question, offered, right, options)
        except ValueError as error:
            skips.add(f"{place}, question {count}", str(error))


def _of_dream(path: Path, options: ReadOptions, skips: Skips, notes: list[str]) -> Iterator[ChoiceExample]:
    """Read [[turns], [{"question", "choice", "answer"}], id] for each text; turns are joined by line feeds."""
    loaded = load_text(path, options.encoding)
    notes += loaded.notes
    data = parse_json(loaded)
    if not isinstance(data, list):
        raise DataError(f"{path} is not a JSON list, as DREAM and C3 are", allowed="[[[turns], [questions], id], ...]")
    for number, item in enumerate(data, 1):
        place = f"{path}, text {number}"
        if not (isinstance(item, list) and len(item) >= 2 and isinstance(item[0], list) and isinstance(item[1], list)):
            skips.add(place, "not a list of turns, questions and an id")
            continue
        key = str(item[2]) if len(item) > 2 else str(number)
        for count, question in enumerate(item[1], 1):
            try:
                if not isinstance(question, dict) or not isinstance(choices := question.get("choice"), list):
                    raise ValueError("no list of options 'choice'")
                # C3's test files of CLUE have an empty answer.
                right = None if options.labels == "ignored" else _matching(question.get("answer") or None, choices)
                context = "\n".join(map(str, item[0]))
                yield _example(f"{key}-{count}", context, question.get("question"), choices, right, options)
            except ValueError as error:
                skips.add(f"{place} ({key}), question {count}", str(error))


def _of_table(
    table: Table, options: ReadOptions, skips: Skips, notes: list[str], read_as: dict[str, Any]
) -> Iterator[ChoiceExample]:
    context = find_column(table, CHOICE_CONTEXTS)
    question = find_column(table, CHOICE_QUESTIONS)
    if options.text:
        context = need_column(table, options.text, "the context", "text")
    if options.text2:
        question = need_column(table, options.text2, "the question", "text2")
    columns = _choice_columns(table, options, notes)
    right = label_column(table, options, RIGHT_CHOICES, "the right option")
    key = key_column(table, options, taken=(context, question, right, *columns))
    check_named_once(table, options, (context, question, right, *columns, key))
    named = {"text": context, "text2": question, "choices": columns, "label": right}
    read_as |= {role: column for role, column in named.items() if column}
    rows = [(place, number, cells, _offered(cells, columns)) for place, number, cells in table.records()]
    first = 0
    if right is not None and options.first_option is None:
        found = _first_option([(_written(cells[right]), offered) for _, _, cells, offered in rows], table.name, right)
        if found is not None:
            first = read_as["first_option"] = found
        if found == 1:
            notes.append(f"column {right!r} numbers the options from 1")
    elif options.first_option is not None:
        first = options.first_option
    for place, number, cells, offered in rows:
        try:
            if not isinstance(offered, list):
                raise ValueError(f"the options are a {type(offered).__name__}, not a list")
            label = _right(_written(cells[right]), offered, first) if right else None
            name = as_text(cells[key]).strip() if key else number
            context_text = as_text(cells[context]) if context else ""
            yield _example(name, context_text, cells[question] if question else None, offered, label, options)
        except ValueError as error:
            skips.add(place, str(error))


def _choice_columns(table: Table, options: ReadOptions, notes: list[str]) -> tuple[str, ...]:
    if options.choices:
        return tuple(need_column(table, name, "an option", "choices") for name in as_names(options.choices))
    if (listed := find_column(table, CHOICE_LISTS)) is not None:
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


def _first_option(rows: Sequence[tuple[str, object]], name: str, column: str) -> Literal[0, 1] | None:
    """Return what the right options are numbered from; None where they are no numbers.

    A 0 shows 0, a number that is that of the options shows 1. Files in which neither occurs are refused: read the wrong
    way, every label would be wrong, and nothing else would show it.
    """
    numbered = [
        (int(text), len(offered))
        for text, offered in rows
        if isinstance(offered, list) and text.isdecimal() and not _repeats(text, offered)
    ]
    if not numbered:
        return None
    if any(number == 0 for number, _ in numbered):
        return 0
    if any(number == count for number, count in numbered):
        return 1
    raise DataError(
        f"{name}: column {column!r} numbers the right options, and neither 0 nor the last option's number occurs, "
        "so that they may be numbered from 0 or from 1",
        allowed="first_option=0, first_option=1",
        todo="Set it, e.g. `--read first_option=1`.",
    )


def _offered(cells: dict[str, object], columns: tuple[str, ...]) -> object:
    return cells[columns[0]] if len(columns) == 1 else [cells[name] for name in columns]


def _written(value: object) -> str:
    """Return an answer as text; pandas turns whole numbers into fractions where one is missing."""
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    return "" if whole is None or whole != whole else str(whole).strip()


def _repeats(text: str, offered: Sequence[object]) -> bool:
    return text in [str(choice).strip() for choice in offered]


def _right(text: str, offered: list[object], first: int) -> int | None:
    if not text:
        return None
    if _repeats(text, offered):
        return _matching(text, offered)
    return int(text) - first if text.isdecimal() else _letter(text)
