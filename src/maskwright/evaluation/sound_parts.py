"""What makes scores say less than they seem to: one file as two parts, texts that stand in both, too few examples."""

import contextlib
import filecmp
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from maskwright.core.errors import DataError
from maskwright.evaluation.benchmarks import Split
from maskwright.evaluation.examples import ChoiceExample, Example, QuestionExample, TaggedExample, has_label
from maskwright.evaluation.readers import Kind, Paths

FEW = 50
"""Examples below which a part is said to be small: of fewer, one more that is right is over two points of a hundred."""
_BY_EXAMPLE = ("classification", "multiple_choice", "question_answering")
"""Kinds of task whose scores are means over the examples."""


def refuse_same_files(files: Mapping[Split, Paths]) -> None:
    """Refuse one file, or a copy of it, as two parts: nothing could be chosen or measured by it.

    Args:
        files: Files by part ("train", "dev", "test").

    Raises:
        DataError: If there is such a file.
    """
    given = [
        (part, Path(path).expanduser())
        for part, paths in files.items()
        for path in ([paths] if isinstance(paths, str | Path) else paths)
    ]
    for (part, path), (later, other) in combinations(given, 2):
        if part != later and _same(path, other):
            held_out = ": a tenth of --train is then held out for it" if later == "dev" else ""
            raise DataError(
                f"--{part} {path} and --{later} {other} are the same examples, and what is measured on them would "
                f"say nothing of others",
                todo=f"Name a file of other examples with --{later}, or leave it out{held_out}.",
            )


def doubts(parts: Mapping[str, Sequence[Example]], kind: Kind) -> Iterator[tuple[str, str]]:
    """Yield (part, what the reader of its scores must know): how many of its texts are in an earlier part, how few.

    Texts are the same if they are so letter by letter. Of pairs both must be, of questions the text too, of choices
    the options too.

    Args:
        parts: Examples by part, training examples first.
        kind: The kind of task.
    """
    texts: dict[str, set[Hashable]] = {}
    for part, examples in parts.items():
        its = [_text(example) for example in examples]
        told = [
            f"{seen:,} of {len(its):,} {_called(examples)} {'is' if seen == 1 else 'are'} in {earlier} too"
            for earlier, known in texts.items()
            if (seen := sum(text in known for text in its))
        ]
        texts[part] = set(its)
        if part != "train" and len(its) < FEW and any(map(has_label, examples)):
            one = f"one is {100 / len(its):.0f} points of 100" if kind in _BY_EXAMPLE else "scores say little"
            told.append(f"with {len(its)} example{'s' * (len(its) > 1)}, {one}")
        if told:
            yield part, "; ".join(told)


def _same(path: Path, other: Path) -> bool:
    if path.resolve() == other.resolve():
        return True
    with contextlib.suppress(OSError):  # What cannot be read is told by who reads it.
        return path.is_file() and path.stat().st_size > 0 and filecmp.cmp(path, other, shallow=False)
    return False


def _text(example: Example) -> Hashable:
    match example:
        case QuestionExample():
            return example.question, example.context
        case ChoiceExample():
            return example.context, example.question, example.options
        case TaggedExample():
            return example.words
    return example.texts


def _called(examples: Sequence[Any]) -> str:
    match examples[0]:
        case QuestionExample() | ChoiceExample():
            return "questions"
        case TaggedExample():
            return "sentences"
    return "texts" if len(examples[0].texts) == 1 else "pairs of texts"
