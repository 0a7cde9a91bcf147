"""Questions: extractive answers (SQuAD, CMRC 2018, DRCD, XQuAD) and multiple choice (RACE, DREAM, C3, SWAG).

The nested JSON of these benchmarks becomes rows, which are then read like tables of the user.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from maskwright.core.errors import DataError
from maskwright.data.tables import Row
from maskwright.finetuning.examples import Answer, ChoiceExample, ExampleFile, QuestionExample
from maskwright.finetuning.readers.files import Skips
from maskwright.finetuning.readers.options import ReadOptions
from maskwright.finetuning.readers.tables import Source, as_text, read_table, row_of

_MOVED = "are not at their offset, or have none; the nearest occurrence is read"
_ABSENT = "do not occur in their context: they are used for scoring, not for training"


def read_questions(source: Source, options: ReadOptions = ReadOptions()) -> ExampleFile[QuestionExample]:
    """Read questions with the texts that answer them.

    Formats: SQuAD's JSON; or JSON, JSON Lines, CSV, TSV or Parquet with columns of question, context and answers (as
    `datasets` writes them, a list of texts, or one text). Options: `text` is the question, `text2` the context, `label`
    the answers. Offsets of answers are in characters; a wrong one is corrected, which is counted in the notes.
    """
    table = read_table(source, "question_answering", options, _of_article)
    columns = table.roles("question_answering", options)
    question, context, answers = (columns[role] or "" for role in ("text", "text2", "label"))
    corrections: Counter[str] = Counter()

    def example(row: Row, key: str) -> QuestionExample:
        question_text, text = as_text(row.cells[question]), as_text(row.cells[context])
        if not text.strip():
            raise ValueError("no context")
        value = row.cells[answers] if answers else None
        written = _written_answers(value)
        flag = row.cells.get("is_impossible")
        # SQuAD 2.0 in the layout of `datasets` has no flag: an empty list of answers means impossible.
        unanswerable = flag is None and written == () and not isinstance(value, str)
        is_impossible = unanswerable or str(flag).strip().casefold() in ("true", "1")
        if options.labels == "needed" and is_impossible and written:
            raise ValueError("marked as impossible, but with answers")
        if options.labels == "needed" and not is_impossible and not written:
            raise ValueError("no answer, and not marked as impossible")
        each = () if is_impossible else tuple(_corrected_answer(text, *one, corrections) for one in written or ())
        return QuestionExample(key=key, question=question_text, context=text, answers=each, is_impossible=is_impossible)

    file = table.file(example, columns)
    return replace(file, notes=(*file.notes, *(f"{count} answers {how}" for how, count in corrections.items())))


def _of_article(location: str, key: str, article: Any, skips: Skips) -> Iterator[Row]:
    """Yield the rows of an article of SQuAD, or the row that a record is."""
    if not isinstance(article, dict) or "paragraphs" not in article:
        yield from row_of(location, key, article, skips)
        return
    paragraphs = article["paragraphs"]
    for count, paragraph in enumerate(paragraphs if isinstance(paragraphs, list) else [None], 1):
        paragraph_location = f"{location}, paragraph {count}"
        match paragraph:
            case {"context": str() as context, "qas": list() as questions}:
                for index, qa in enumerate(questions, 1):
                    if isinstance(qa, dict):
                        key = str(qa.get("id", f"{paragraph_location}, question {index}"))
                        cells = {name: qa.get(name) for name in ("question", "answers")}
                        cells |= {"context": context, "is_impossible": qa.get("is_impossible", False)}
                        yield Row(f"{paragraph_location}, question {key}", key, cells)
                    else:
                        skips.add(f"{paragraph_location}, question {index}", "not a JSON object")
            case _:
                skips.add(paragraph_location, "no text 'context' with a list of questions 'qas'")


def _written_answers(value: Any) -> tuple[tuple[str, int | None], ...] | None:
    """Return texts and offsets of answers in any of the ways files write them; None where there are none.

    A list of {"text", "answer_start"} (SQuAD), a list of texts, {"text": [...], "answer_start": [...]} (the same in
    `datasets`), or one text. Else ValueError.
    """
    match value:
        case None:
            return None
        case str():
            return (_answer(value),) if value.strip() else ()
        case {"text": list() as texts, **rest}:
            starts = rest.get("answer_start") or [None] * len(texts)
            if not isinstance(starts, list) or len(starts) != len(texts):
                raise ValueError(f"{len(texts)} answers with another number of offsets")
            return tuple(map(_answer, texts, starts))
        case list():
            each = [one if isinstance(one, dict) else {"text": one} for one in value]
            return tuple(_answer(one.get("text"), one.get("answer_start")) for one in each)
    raise ValueError(f"the answers are a {type(value).__name__}")


def _answer(text: object, start: object = None) -> tuple[str, int | None]:
    if not isinstance(text, str) or not as_text(text).strip():
        raise ValueError("an answer without text")
    if start is not None and (not isinstance(start, int) or isinstance(start, bool)):
        raise ValueError(f"the offset of an answer is {start!r}, not a number")
    return text, start


def _corrected_answer(context: str, text: str, start: int | None, corrections: Counter[str]) -> Answer:
    """Find an answer in its context, at its offset or else nearest to it."""
    if start is not None and start >= 0 and context.startswith(text, start):
        return Answer(text=text, start=start)
    near = max(start or 0, 0)
    offset = _nearest(context, text, near)
    if offset is None and (offset := _nearest(context, text.strip(), near)) is not None:
        text = text.strip()  # the answer has white space that its context has not
    corrections[_ABSENT if offset is None else _MOVED] += 1
    return Answer(text=text, start=offset)


def _nearest(context: str, text: str, wanted: int) -> int | None:
    """Return the start of the occurrence nearest to a position, the earlier of two; None if there is none."""
    before, after = context.rfind(text, 0, wanted + len(text)), context.find(text, wanted)
    starts = [start for start in (before, after) if start >= 0]
    return min(starts, key=lambda start: (abs(start - wanted), start), default=None)


def read_choices(source: Source, options: ReadOptions = ReadOptions()) -> ExampleFile[ChoiceExample]:
    """Read questions with options, one of which is right.

    Formats: RACE's folders or JSON Lines, DREAM's or C3's JSON; or a table with a column for each option (SWAG) or one
    that lists them. The right one is a letter, a number, or the option itself. Options: `text` is the context, `text2`
    the question, `choices` the options.
    """
    if isinstance(source, Path) and source.is_dir() and not any(source.rglob("*.txt")):
        raise DataError(f"the folder {source} holds no .txt files", allowed="RACE's folders, e.g. RACE/train")
    table = read_table(source, "multiple_choice", options, _of_race_or_dream)
    columns = table.roles("multiple_choice", options)
    context, question, right = (columns[role] for role in ("text", "text2", "label"))
    named = options.choices or (columns["choices"] or "",)
    choices = [table.need([name], "an option", "--read choices=") for name in named]
    first = options.first_option
    if right is not None and first is None:
        numbers = [text for row in table.rows if (text := _written(row.cells[right])).isdecimal()]
        if numbers:
            first = 0 if "0" in numbers else 1
            note = f"column {right!r} numbers the options from {first} (else `--read first_option={1 - first}`)"
            table.notes.append(note)
            table.read_as["first_option"] = first

    def example(row: Row, key: str) -> ChoiceExample:
        offered = row.cells[choices[0]] if len(choices) == 1 else [row.cells[name] for name in choices]
        if not isinstance(offered, list) or len(offered) < 2:
            raise ValueError("fewer than two options")
        label = _right(row.cells[right], offered, first or 0) if right else None
        if label is None and options.labels == "needed":
            raise ValueError("no answer")
        if label is not None and not 0 <= label < len(offered):
            raise ValueError(f"the answer is option {label + 1} of {len(offered)}")
        if not all(as_text(choice).strip() for choice in offered):
            raise ValueError("an option is empty")
        return ChoiceExample(
            key=key,
            context=as_text(row.cells[context]) if context else "",
            question=as_text(row.cells[question]) if question else "",
            options=tuple(map(as_text, offered)),
            label=label,
        )

    return table.file(example, {**columns, "choices": tuple(choices)})


def _of_race_or_dream(location: str, key: str, record: Any, skips: Skips) -> Iterator[Row]:
    """Return the rows of a record of RACE, of DREAM and C3, or the row that it is."""
    if isinstance(record, dict) and "article" in record and record.keys().isdisjoint(("question", "choices")):
        return _of_race(location, key, record, skips)
    return (_of_dream if isinstance(record, list) else row_of)(location, key, record, skips)


def _of_race(location: str, key: str, record: dict[str, Any], skips: Skips) -> Iterator[Row]:
    article, questions, choices, answers = map(record.get, ("article", "questions", "options", "answers"))
    if not isinstance(article, str) or not isinstance(questions, list) or not isinstance(choices, list):
        skips.add(location, "no text 'article' with lists 'questions' and 'options'")
        return
    answers = answers or [None] * len(questions)
    if not len(choices) == len(questions) == len(answers):
        skips.add(location, f"{len(questions)} questions, {len(choices)} lists of options, {len(answers)} answers")
        return
    for count, (question, offered, answer) in enumerate(zip(questions, choices, answers, strict=True), 1):
        cells = {"context": article, "question": question, "options": offered, "answer": answer}
        yield Row(f"{location}, question {count}", f"{record.get('id') or key}-{count}", cells)


def _of_dream(location: str, key: str, item: list[Any], skips: Skips) -> Iterator[Row]:
    """Yield the rows of [[turns], [{"question", "choice", "answer"}], id]; turns are joined by line feeds."""
    if not (len(item) >= 2 and isinstance(item[0], list) and isinstance(item[1], list)):
        skips.add(location, "not a list of turns, questions and an id")
        return
    key = str(item[2]) if len(item) > 2 else key
    for count, question in enumerate(item[1], 1):
        fields = question if isinstance(question, dict) else {}
        cells = {
            "context": "\n".join(map(str, item[0])),
            "question": fields.get("question"),
            "options": fields.get("choice"),
            "answer": fields.get("answer") or None,  # C3's test files of CLUE have an empty answer
        }
        yield Row(f"{location} ({key}), question {count}", f"{key}-{count}", cells)


def _written(value: object) -> str:
    """Return an answer as text; pandas turns whole numbers into fractions where one is missing."""
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    return "" if whole is None or whole != whole else str(whole).strip()


def _right(value: object, offered: list[object], first: int) -> int | None:
    """Return the index of the right option; None where there is no answer. Raises ValueError if it is none of them."""
    text = _written(value)
    if not text:
        return None
    if len(matches := [number for number, choice in enumerate(offered) if str(choice).strip() == text]) > 1:
        raise ValueError(f"the answer {text!r} is {len(matches)} of the options")
    if matches:
        return matches[0]
    if text.isdecimal():
        return int(text) - first
    if not re.fullmatch("[A-Za-z]", text):
        raise ValueError(f"the answer {text!r} is none of the options")
    return ord(text.upper()) - ord("A")
