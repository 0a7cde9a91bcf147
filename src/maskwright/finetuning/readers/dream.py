"""Multiple choice in the layout of DREAM and C3: lists of turns or paragraphs, questions, and an id."""

from pathlib import Path
from typing import Any

from maskwright.core.errors import DataError
from maskwright.finetuning.examples import ChoiceExample, ExampleFile
from maskwright.finetuning.readers.json_records import parse_json
from maskwright.finetuning.readers.loading import load_text
from maskwright.finetuning.readers.options import ReadOptions
from maskwright.finetuning.readers.right_choice import checked_choice, matching
from maskwright.finetuning.readers.skips import Skips


def read_dream(path: Path, options: ReadOptions = ReadOptions()) -> ExampleFile[ChoiceExample]:
    """Read multiple-choice questions about dialogues or short texts; turns are joined by line feeds.

    Args:
        path: JSON: [[turns], [{"question", "choice", "answer"}], id] for each text.
        options: `labels` says whether answers are needed.

    Raises:
        DataError: If the file cannot be read or is of another layout, or most questions are bad.
    """
    skips = Skips(str(path), options.bad_rows)
    loaded = load_text(path, options.encoding)
    data = parse_json(loaded)
    if not isinstance(data, list):
        raise DataError(f"{path} is not a JSON list, as DREAM and C3 are", allowed="[[[turns], [questions], id], ...]")
    examples: list[ChoiceExample] = []
    for number, item in enumerate(data, 1):
        place = f"{path}, text {number}"
        if not (isinstance(item, list) and len(item) >= 2 and isinstance(item[0], list) and isinstance(item[1], list)):
            skips.add(place, "not a list of turns, questions and an id")
            continue
        key = str(item[2]) if len(item) > 2 else str(number)
        for count, question in enumerate(item[1], 1):
            try:
                examples.append(_example(f"{key}-{count}", item[0], question, options))
            except ValueError as error:
                skips.add(f"{place} ({key}), question {count}", str(error))
    skipped = skips.finished(len(examples))
    return ExampleFile(name=str(path), examples=tuple(examples), skipped=skipped, notes=loaded.notes)


def _example(key: str, turns: list[Any], question: Any, options: ReadOptions) -> ChoiceExample:
    if not isinstance(question, dict) or not isinstance(question.get("choice"), list):
        raise ValueError("no list of options 'choice'")
    choices = question["choice"]
    answer = question.get("answer") or None  # C3's test files of CLUE have an empty one
    label = None if options.labels == "ignored" else matching(answer, choices)
    return checked_choice(key, "\n".join(map(str, turns)), question.get("question"), choices, label, options)
