"""Checks of labeled examples (labels, duplicates across splits, size) and the messages about a file that was read."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
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
)
from maskwright.finetuning.tasks.base import Task
from maskwright.training.reporting import Reporter


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


def counted_labels(examples: Sequence[Any]) -> Counter[str]:
    """Return how often each class occurs; empty for tasks without classes."""
    return Counter(label for example in examples for label in _classes(example))


def _classes(example: Any) -> Iterable[str]:
    if not isinstance(example, TextExample) or isinstance(example.label, float) or example.label is None:
        return ()
    return (example.label,) if isinstance(example.label, str) else example.label


FEW = 50
"""Size below which a dev or test file is reported as small: each example counts more than 2 %."""


def doubts(parts: Mapping[str, Sequence[Example]]) -> Iterator[tuple[str, str]]:
    """Yield (part, warning): texts that also occur in an earlier part (data leakage), and small parts.

    Texts are equal if all characters are; for pairs both texts, for questions also the context, for multiple choice
    also the options.

    Args:
        parts: Examples by part, training examples first.
    """
    texts: dict[str, set[Hashable]] = {}
    for part, examples in parts.items():
        its = [_text(example) for example in examples]
        told = [
            f"{_share(seen, len(its))} {_called(examples)} also in {earlier}"
            for earlier, known in texts.items()
            if (seen := sum(text in known for text in its))
        ]
        texts[part] = set(its)
        if part != "train" and len(its) < FEW and any(map(has_label, examples)):
            told.append(f"{counted(len(its), 'example')}, each {100 / len(its):.0f} % of the score")
        if told:
            yield part, "; ".join(told)


def _share(count: int, total: int) -> str:
    return f"{count:,} of {total:,}" if count < total else f"all {total:,}"


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


_LABELS_SHOWN = 12
_REASONS_SHOWN = 3


def tell(part: str, file: ExampleFile[Any], talk: Reporter) -> None:
    """Report what was read: number of examples, classes, guesses, skipped rows with the most frequent reasons."""
    counts = counted_labels(file.examples).most_common()
    shown = ", ".join(f"{label} {count:,}" for label, count in counts[:_LABELS_SHOWN])
    more = f" and {len(counts) - _LABELS_SHOWN} more" if len(counts) > _LABELS_SHOWN else ""
    talk.say(
        part, f"{counted(len(file.examples), 'example')} from {file.name}" + (f" ({shown}{more})" if counts else "")
    )
    for note in file.notes:
        talk.say("", note)
    if file.skipped:
        reasons = Counter(skipped.reason for skipped in file.skipped).most_common(_REASONS_SHOWN)
        first = {skipped.reason: skipped.place for skipped in reversed(file.skipped)}
        told = "; ".join(f"{reason} ({count:,}, first at {first[reason]})" for reason, count in reasons)
        talk.say("skipped", f"{counted(len(file.skipped), 'row')}: {told}")
