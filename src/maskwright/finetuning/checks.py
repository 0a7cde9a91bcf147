"""Checks of labeled examples (labels, duplicates across splits, size) and the messages about a file that was read."""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

from maskwright.core.amounts import counted
from maskwright.core.errors import DataError
from maskwright.finetuning.examples import (
    ChoiceExample,
    Example,
    ExampleFile,
    QuestionExample,
    TaggedExample,
    TextExample,
    has_label,
    summary_of,
)
from maskwright.finetuning.tasks.base import Task
from maskwright.training.reporting import Reporter

FEW = 50
"""Size below which a dev or test file is reported as small: each example counts more than 2 %."""
_LABELS_SHOWN = 12
_DISTINCT_SHARE, _DISTINCT_FROM = 0.9, 20
"""Share of different labels, in so many examples, from which the label column is doubted."""


def unlabeled(examples: Sequence[Any]) -> bool:
    """Whether no example has a label."""
    return not any(map(has_label, examples))


def check_measurable(examples: Sequence[Any], task: Task, name: str) -> None:
    """Raise `DataError` naming the first example of file `name` that cannot be evaluated. Called before training."""
    lacking = [example.key for example in examples if not has_label(example)]
    if lacking:
        raise DataError(
            f"{name}: {len(lacking)} of {len(examples)} examples have no label, the first is {lacking[0]}",
            todo="Development examples need labels: name another file, or omit --dev to hold out a share of "
            "the training examples.",
        )
    try:
        task.check(examples)
    except DataError as error:
        raise DataError(f"{name}, {error.problem}", allowed=error.allowed, todo=error.todo) from error


def warn_of(parts: Mapping[str, Sequence[Example]], reporter: Reporter) -> list[str]:
    """Report the warnings about the examples, and return them as notes."""
    notes = []
    for part, warning in data_warnings(parts):
        reporter.say(part, warning)
        notes.append(f"{part}: {warning}" + "." * (not warning.endswith("?")))
    return notes


def data_warnings(parts: Mapping[str, Sequence[Example]]) -> Iterator[tuple[str, str]]:
    """Yield (part, warning): texts that also occur in an earlier part (data leakage), small parts, distinct labels.

    Texts are equal if all characters are; for pairs both texts, for questions also the context, for multiple choice
    also the options.

    Args:
        parts: Examples by part, training examples first.
    """
    texts: dict[str, set[Hashable]] = {}
    for part, examples in parts.items():
        its, warnings = [input_of(example) for example in examples], []
        for earlier, known in texts.items():
            if seen := sum(text in known for text in its):
                share = f"{seen:,} of {len(its):,}" if seen < len(its) else f"all {len(its):,}"
                warnings.append(f"{share} inputs also in {earlier}")
        texts[part] = set(its)
        if part != "train" and len(its) < FEW and not unlabeled(examples):
            warnings.append(f"{counted(len(its), 'example')}, each {100 / len(its):.0f} % of the score")
        classes = [each.label for each in examples if isinstance(each, TextExample) and isinstance(each.label, str)]
        if part == "train" and len(set(classes)) >= max(_DISTINCT_SHARE * len(its), _DISTINCT_FROM):
            warnings.append(
                f"{len(set(classes)):,} different labels in {len(its):,} examples: is --label the right column?"
            )
        if warnings:
            yield part, "; ".join(warnings)


def input_of(example: Example) -> Hashable:
    """Return what an example holds besides its key and its label."""
    match example:
        case QuestionExample():
            return example.question, example.context
        case ChoiceExample():
            return example.context, example.question, example.options
        case TaggedExample():
            return example.words
    return example.texts


def report_file(part: str, file: ExampleFile[Any], reporter: Reporter) -> None:
    """Report what was read: number of examples, classes, guesses, skipped rows with the most frequent reasons."""
    labels = [example.label for example in file.examples if isinstance(example, TextExample)]
    sets = [(label,) if isinstance(label, str) else label for label in labels if isinstance(label, str | tuple)]
    counts = Counter(label for each in sets for label in each).most_common()
    shown = ", ".join(f"{label} {count:,}" for label, count in counts[:_LABELS_SHOWN])
    more = f" and {len(counts) - _LABELS_SHOWN} more" if len(counts) > _LABELS_SHOWN else ""
    classes = f" ({shown}{more})" if counts else ""
    reporter.say(part, f"{counted(len(file.examples), 'example')} from {file.name}{classes}")
    for note in file.notes:
        reporter.say("", note)
    if file.skipped:
        reporter.say("skipped", f"{counted(len(file.skipped), 'row')}: {summary_of(file.skipped)}")
