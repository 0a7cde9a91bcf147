"""Questions in the layout of SQuAD 1.1 and 2.0, CMRC 2018, DRCD and XQuAD: articles of paragraphs with questions."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwright.core.errors import DataError
from maskwright.core.half_characters import HALF_CHARACTER
from maskwright.finetuning.examples import ExampleFile, QuestionExample
from maskwright.finetuning.readers.answers import AnswerCounts, OffsetUnit, WrittenAnswer, offset_unit, place_answer
from maskwright.finetuning.readers.json_records import parse_json
from maskwright.finetuning.readers.loading import load_text
from maskwright.finetuning.readers.options import ReadOptions
from maskwright.finetuning.readers.skips import Skips


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenQuestion:
    """A question as a file writes it.

    Attributes:
        place: Where it is, for messages.
        key: Its id.
        question: The question.
        context: The text.
        answers: None where the file says nothing of answers (test files).
        is_impossible: Whether the file says that the text does not answer it.
    """

    place: str
    key: str
    question: str
    context: str
    answers: tuple[WrittenAnswer, ...] | None
    is_impossible: bool


def read_squad(path: Path, options: ReadOptions = ReadOptions()) -> ExampleFile[QuestionExample]:
    """Read questions from a JSON file of articles with paragraphs; answers are looked up in their paragraph.

    CMRC 2018's own layout (`context_text`, `query_text`, answers without places) is read too.

    Args:
        path: The file.
        options: `labels` says whether questions need answers.

    Raises:
        DataError: If the file cannot be read or is of another layout, or most questions are bad.
    """
    skips = Skips(str(path), options.bad_rows)
    loaded = load_text(path, options.encoding)
    data = parse_json(loaded)
    articles = data.get("data") if isinstance(data, dict) else data
    if not isinstance(articles, list):
        raise DataError(
            f"{path} is not in the layout of SQuAD",
            allowed='{"data": [{"paragraphs": [{"context": ..., "qas": [{"id", "question", "answers"}]}]}]}',
        )
    written = list(_questions(articles, str(path), skips))
    examples, notes = placed_questions(written, options, skips)
    skipped = skips.finished(len(examples))
    return ExampleFile(name=str(path), examples=examples, skipped=skipped, notes=(*loaded.notes, *notes))


def placed_questions(
    written: list[WrittenQuestion], options: ReadOptions, skips: Skips
) -> tuple[tuple[QuestionExample, ...], tuple[str, ...]]:
    """Look up the answers of all questions of a file, and leave out the questions that cannot be used.

    Args:
        written: The questions as the file has them.
        options: `labels` says whether questions need answers.
        skips: Takes the questions left out.

    Returns:
        The questions, and notes on the answers.
    """
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
            examples.append(_example(one, unit, counts, with_answers))
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


def _example(one: WrittenQuestion, unit: OffsetUnit, counts: AnswerCounts, with_answers: bool) -> QuestionExample:
    answers = tuple(
        place_answer(one.context, answer, unit, counts, one.key)
        for answer in one.answers or ()
        if with_answers and not one.is_impossible
    )
    return QuestionExample(
        key=one.key, question=one.question, context=one.context, answers=answers, is_impossible=one.is_impossible
    )


def _questions(articles: list[Any], name: str, skips: Skips) -> Iterator[WrittenQuestion]:
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
                answers=written_answers(qa.get("answers")),
                is_impossible=str(qa.get("is_impossible", False)).casefold() == "true",
            )
        except ValueError as error:
            skips.add(f"{name}, question {key}", str(error))


def written_answers(value: object) -> tuple[WrittenAnswer, ...] | None:
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
