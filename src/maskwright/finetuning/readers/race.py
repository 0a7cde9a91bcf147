"""Multiple choice in the layout of RACE: a text with its questions, the options of each, and right letters."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from maskwright.core.errors import DataError
from maskwright.finetuning.examples import ChoiceExample, ExampleFile
from maskwright.finetuning.readers.json_records import is_json_lines, parse_json, records_of
from maskwright.finetuning.readers.loading import load_text
from maskwright.finetuning.readers.options import ReadOptions
from maskwright.finetuning.readers.right_choice import checked_choice, letter
from maskwright.finetuning.readers.skips import Skips


def read_race(path: Path, options: ReadOptions = ReadOptions()) -> ExampleFile[ChoiceExample]:
    """Read multiple-choice questions in RACE's layout.

    Args:
        path: A folder, in which every `.txt` file at any depth is one record (RACE as published: `high`, `middle`), or
            a file of one record a line, or of one record.
        options: `labels` says whether answers are needed.

    Raises:
        DataError: If nothing can be read, or most questions are bad.
    """
    skips = Skips(str(path), options.bad_rows)
    files = sorted(path.rglob("*.txt")) if path.is_dir() else [path]
    if not files:
        raise DataError(
            f"the folder {path} holds no .txt files",
            allowed="RACE's folders, e.g. RACE/train with high and middle in it",
        )
    examples: list[ChoiceExample] = []
    notes: dict[str, None] = {}
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
        notes |= dict.fromkeys(loaded.notes)
        # Asked once: it looks at the whole file.
        what = "record" if name or not is_json_lines(loaded.text) else "line"
        for number, record in records:
            place = str(file) if name else f"{file}, {what} {number}"
            examples.extend(_of_record(record, place, name or str(number), options, skips))
    skipped = skips.finished(len(examples))
    return ExampleFile(name=str(path), examples=tuple(examples), skipped=skipped, notes=tuple(notes))


def _of_record(record: Any, place: str, name: str, options: ReadOptions, skips: Skips) -> Iterator[ChoiceExample]:
    fields = record if isinstance(record, dict) else {}
    article, questions, choices = fields.get("article"), fields.get("questions"), fields.get("options")
    if not isinstance(article, str) or not isinstance(questions, list) or not isinstance(choices, list):
        skips.add(place, "no text 'article' with lists 'questions' and 'options'")
        return
    answers = _answers(fields, options)
    if len(choices) != len(questions) or (answers is not None and len(answers) != len(questions)):
        counts = f"{len(questions)} questions, {len(choices)} lists of options"
        skips.add(place, f"{counts}, {'no' if answers is None else len(answers)} answers")
        return
    key = str(fields.get("id") or name)
    for count, (question, offered) in enumerate(zip(questions, choices, strict=True), 1):
        try:
            right = None if answers is None else letter(answers[count - 1])
            yield checked_choice(f"{key}-{count}", article, question, offered, right, options)
        except ValueError as error:
            skips.add(f"{place}, question {count}", str(error))


def _answers(record: dict[str, Any], options: ReadOptions) -> list[Any] | None:
    answers = record.get("answers")
    return None if options.labels == "ignored" or not isinstance(answers, list) or not answers else answers
