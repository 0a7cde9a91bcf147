"""Questions about texts: SQuAD 1.1 and 2.0, CMRC 2018, DRCD, XQuAD, and tables with columns for them.

Files say where an answer is in its context in other units than characters, wrongly, or not at all: answers are looked
up, and the notes say how many were elsewhere.
"""

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from maskwright.core.errors import DataError
from maskwright.core.half_characters import HALF_CHARACTER
from maskwright.core.types import IntArray
from maskwright.finetuning.examples import Answer, ExampleFile, QuestionExample
from maskwright.finetuning.readers.columns import (
    ANSWERS,
    CONTEXTS,
    QUESTIONS,
    check_named_once,
    key_column,
    label_column,
    need_column,
)
from maskwright.finetuning.readers.files import Skips, format_of, load_text, parse_json
from maskwright.finetuning.readers.options import ReadOptions
from maskwright.finetuning.readers.tables import read_table
from maskwright.finetuning.readers.texts import as_text

OffsetUnit = Literal["code points", "UTF-16 units", "UTF-8 bytes"]
_NEARBY = 20
"""Characters from the place a file names within which an answer is called found nearby, not elsewhere."""


class WrittenAnswer(NamedTuple):
    """An answer as a file writes it: its text, and its offset in whatever unit; None where the file has none."""

    text: str
    start: int | None


@dataclass(slots=True)
class AnswerCounts:
    """How the answers of one file were found. Counted up as it is read."""

    found: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)

    def add(self, how: str, key: str) -> None:
        """Count one answer, found in this way, of this question."""
        self.found[how] += 1
        self.first.setdefault(how, key)

    def notes(self) -> tuple[str, ...]:
        """Say how many answers were not where the file says."""
        return tuple(
            f"{self.found[how]} answers {words} (first: question {self.first[how]})"
            for how, words in _WORDS.items()
            if self.found[how]
        )


_WORDS = {
    "nearby": f"do not stand where the file says, but within {_NEARBY} characters of it, and are taken there",
    "elsewhere": "do not stand where the file says; the nearest place where they stand is taken",
    "unplaced": "came without their place; the first place where they stand is taken",
    "nowhere": "stand nowhere in their context: they can be scored, but not learnt from",
}


def offset_unit(written: Sequence[tuple[str, WrittenAnswer]]) -> OffsetUnit:
    """Return the unit of a file's offsets, by the answers for which units differ.

    Code points, unless more answers stand where the file says if it counts UTF-16 units (as JavaScript and Java do) or
    bytes, and not if it counts code points, than the other way round.
    """
    votes: Counter[OffsetUnit] = Counter()
    units: tuple[OffsetUnit, ...] = ("UTF-16 units", "UTF-8 bytes")
    against: Counter[OffsetUnit] = Counter()
    for context, answer in written:
        if answer.start is None or not answer.text or context.isascii():
            continue
        plain = _stands(context, answer.text, answer.start)
        for unit in units:
            start = _to_code_points(context, answer.start, unit)
            if start == answer.start:
                continue
            counted = start is not None and _stands(context, answer.text, start)
            votes[unit] += counted and not plain
            against[unit] += plain and not counted
    best = max(units, key=lambda unit: votes[unit] - against[unit])
    return best if votes[best] > against[best] else "code points"


def place_answer(context: str, written: WrittenAnswer, unit: OffsetUnit, counts: AnswerCounts, key: str) -> Answer:
    """Find an answer in its context."""
    text = written.text
    wanted = None if written.start is None else _to_code_points(context, written.start, unit)
    if wanted is not None and _stands(context, text, wanted):
        return Answer(text=text, start=wanted)
    near = 0 if wanted is None else max(wanted, 0)
    found = _nearest(context, text, near)
    if found is None and (found := _nearest(context, text.strip(), near)) is not None:
        text = text.strip()  # the answer carries white space that its context has not
    if found is None:
        counts.add("nowhere", key)
    elif wanted is None or wanted < 0:
        counts.add("unplaced", key)
    else:
        counts.add("nearby" if abs(found - wanted) <= _NEARBY else "elsewhere", key)
    return Answer(text=text, start=found)


def _stands(context: str, text: str, start: int) -> bool:
    return start >= 0 and context.startswith(text, start)


def _nearest(context: str, text: str, wanted: int) -> int | None:
    """Return the occurrence of a text that begins nearest to a place, the earlier of two; None if there is none."""
    if not text:
        return None
    before = context.rfind(text, 0, wanted + len(text))
    after = context.find(text, wanted)
    places = [place for place in (before, after) if place >= 0]
    return min(places, key=lambda place: (abs(place - wanted), place), default=None)


def _to_code_points(context: str, offset: int, unit: OffsetUnit) -> int | None:
    """Return an offset in characters; None if it points into a character or behind the text."""
    if unit == "code points" or offset < 0:
        return offset
    begins = _begins(context, unit)
    number = int(np.searchsorted(begins, offset))
    return number if number < len(begins) and begins[number] == offset else None


@lru_cache(maxsize=4)  # answers come paragraph by paragraph
def _begins(context: str, unit: OffsetUnit) -> IntArray:
    """Return where each character of a text, and its end, would be if offsets counted UTF-16 units or bytes."""
    points = np.frombuffer(context.encode("utf-32-le", errors="surrogatepass"), dtype=np.uint32)
    widths = np.ones(len(points), dtype=np.int64)
    for least in (0x10000,) if unit == "UTF-16 units" else (0x80, 0x800, 0x10000):
        widths += points >= least
    return np.concatenate([[0], np.cumsum(widths)])


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenQuestion:
    """A question as a file writes it; `place` is for messages, `answers` is None in files without any (test files)."""

    place: str
    key: str
    question: str
    context: str
    answers: tuple[WrittenAnswer, ...] | None
    is_impossible: bool


def read_questions(path: Path, options: ReadOptions = ReadOptions()) -> ExampleFile[QuestionExample]:
    """Read questions with the texts that answer them.

    Formats: SQuAD's JSON; or JSONL, CSV, TSV or Parquet with columns of question, context and answers (as `datasets`
    writes them, a list of texts, or one text). Options: `text` is the question, `text2` the context, `label` the
    answers.

    Raises:
        DataError: If the file cannot be read, columns cannot be found, or most questions are bad.
    """
    format = format_of(path, "question_answering", options)
    skips = Skips(str(path), options.bad_rows)
    read_as: dict[str, Any] = {}
    if format == "squad":
        loaded = load_text(path, options.encoding)
        data = parse_json(loaded)
        articles = data.get("data") if isinstance(data, dict) else data
        if not isinstance(articles, list):
            raise DataError(
                f"{path} is not in the layout of SQuAD",
                allowed='{"data": [{"paragraphs": [{"context": ..., "qas": [{"id", "question", "answers"}]}]}]}',
            )
        notes, written = loaded.notes, list(_of_articles(articles, str(path), skips))
    else:
        table = read_table(path, format, options, skips)
        question = need_column(table, options.text or QUESTIONS, "the question", "text")
        context = need_column(table, options.text2 or CONTEXTS, "the context", "text2")
        answers = label_column(table, options, ANSWERS, "the answers")
        key = key_column(table, options, taken=(question, context, answers))
        check_named_once(table, options, (question, context, answers, key))
        notes, written = table.notes, []
        for place, number, cells in table.records():
            try:
                name = as_text(cells[key]).strip() if key else number
                written.append(_of_row(place, name, cells, question, context, answers))
            except ValueError as error:
                skips.add(place, str(error))
        read_as = {**table.read_as, "text": question, "text2": context} | ({"label": answers} if answers else {})
    examples, more = _placed(written, options, skips)
    skipped = skips.finished(len(examples))
    return ExampleFile(name=str(path), examples=examples, skipped=skipped, notes=(*notes, *more), read_as=read_as)


def _of_row(
    place: str, key: str, cells: dict[str, object], question: str, context: str, answers: str | None
) -> WrittenQuestion:
    value = cells[answers] if answers else None
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        # `answers` as `datasets` has them, written into a CSV; else an answer that begins with a bracket.
        with contextlib.suppress(ValueError):
            value = json.loads(value)
    start = cells.get("answer_start")
    if isinstance(value, str) and value.strip() and start not in (None, ""):
        value = {"text": value, "answer_start": start}
    impossible = cells.get("is_impossible")
    written = _written_answers(value)
    # SQuAD 2.0 in the layout of `datasets` has no flag: no answer means impossible.
    unsaid = impossible is None and answers is not None and written == () and not isinstance(value, str)
    return WrittenQuestion(
        place=place,
        key=key,
        question=as_text(cells[question]),
        context=as_text(cells[context]),
        answers=written,
        is_impossible=unsaid or str(impossible).strip().casefold() in ("true", "1"),
    )


def _placed(
    written: list[WrittenQuestion], options: ReadOptions, skips: Skips
) -> tuple[tuple[QuestionExample, ...], tuple[str, ...]]:
    """Return the usable questions of a file with their answers located, and notes on the answers."""
    with_answers = options.labels != "ignored"
    pairs = [(one.context, answer) for one in written if with_answers for answer in one.answers or ()]
    unit = offset_unit(pairs)
    notes = [] if unit == "code points" else [f"places of answers are counted in {unit} and turned into characters"]
    counts = AnswerCounts()
    examples = []
    for one in written:
        if (problem := _problem(one, options)) is not None:
            skips.add(one.place, problem)
        else:
            answers = tuple(
                place_answer(one.context, answer, unit, counts, one.key)
                for answer in one.answers or ()
                if with_answers and not one.is_impossible
            )
            examples.append(
                QuestionExample(
                    key=one.key,
                    question=one.question,
                    context=one.context,
                    answers=answers,
                    is_impossible=one.is_impossible,
                )
            )
    if repeated := len(examples) - len({example.key for example in examples}):
        notes.append(f"{repeated} questions have the id of an earlier one")
    if empty := [example.key for example in examples if not example.question.strip()]:
        notes.append(f"{len(empty)} questions are empty texts (first: {empty[0]}); they are kept, as they are scored")
    return tuple(examples), (*notes, *counts.notes())


def _problem(one: WrittenQuestion, options: ReadOptions) -> str | None:
    if not one.context.strip():
        return "no context"
    texts = (one.context, one.question, *(answer.text for answer in one.answers or ()))
    if any(map(HALF_CHARACTER.search, texts)):
        return "half a character in question, context or answer (broken UTF-8 or a lone surrogate)"
    if options.labels != "needed":
        return None
    if one.is_impossible:
        return "said to be impossible, yet with answers" if one.answers else None
    return None if one.answers else "no answer, and not said to be impossible"


def _of_articles(articles: list[Any], name: str, skips: Skips) -> Iterator[WrittenQuestion]:
    for number, article in enumerate(articles, 1):
        place = f"{name}, article {number}"
        if not isinstance(article, dict):
            skips.add(place, "not a JSON object")
            continue
        paragraphs = article.get("paragraphs", [article])
        if not isinstance(paragraphs, list):
            skips.add(place, "its paragraphs are no list")
            continue
        for count, paragraph in enumerate(paragraphs, 1):
            yield from _of_paragraph(paragraph, f"{place}, paragraph {count}", name, skips)


def _of_paragraph(paragraph: Any, place: str, name: str, skips: Skips) -> Iterator[WrittenQuestion]:
    if not isinstance(paragraph, dict) or not isinstance(paragraph.get("qas"), list):
        skips.add(place, "no list of questions 'qas'")
        return
    context = paragraph.get("context", paragraph.get("context_text"))
    if not isinstance(context, str):
        skips.add(place, "no context")
        return
    for count, qa in enumerate(paragraph["qas"], 1):
        if not isinstance(qa, dict):
            skips.add(f"{place}, question {count}", "not a JSON object")
            continue
        key = str(qa.get("id", qa.get("query_id", f"{place}, question {count}")))
        try:
            yield WrittenQuestion(
                place=f"{name}, question {key}",
                key=key,
                question=str(qa.get("question", qa.get("query_text")) or ""),
                context=context,
                answers=_written_answers(qa.get("answers")),
                is_impossible=str(qa.get("is_impossible", False)).casefold() == "true",
            )
        except ValueError as error:
            skips.add(f"{name}, question {key}", str(error))


def _written_answers(value: object) -> tuple[WrittenAnswer, ...] | None:
    """Return answers in any of the ways files write them; None where the file says nothing of answers.

    A list of {"text", "answer_start"} (SQuAD), a list of texts (CMRC), {"text": [...], "answer_start": [...]} (the same
    in `datasets`), or one text.

    Raises:
        ValueError: If it is none of them; with the reason.
    """
    match value:
        case None:
            return None
        case str():
            return (WrittenAnswer(value, None),) if value.strip() else ()
        case {"text": list() as texts, **rest}:
            starts = rest.get("answer_start") or [None] * len(texts)
            if not isinstance(starts, list) or len(starts) != len(texts):
                raise ValueError(f"{len(texts)} answers with other numbers of places")
            return tuple(_answer(text, start) for text, start in zip(texts, starts, strict=True))
        case {"text": str() as text, **rest}:
            return (_answer(text, rest.get("answer_start")),)
        case list():
            return tuple(
                _answer(one.get("text"), one.get("answer_start")) if isinstance(one, dict) else _answer(one, None)
                for one in value
            )
        case _:
            raise ValueError(f"the answers are a {type(value).__name__}")


def _answer(text: object, start: object) -> WrittenAnswer:
    if not isinstance(text, str) or not text.strip():
        raise ValueError("an answer without text")
    if isinstance(start, str) and start.strip().lstrip("-").isdecimal():
        start = int(start)
    if start is not None and (not isinstance(start, int) or isinstance(start, bool)):
        raise ValueError(f"the place of an answer is {start!r}, not a number")
    return WrittenAnswer(text, start)
