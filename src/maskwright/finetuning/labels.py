"""Whether examples have labels, and whether these are the ones that a task knows."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from maskwright.core.errors import DataError
from maskwright.finetuning.examples import TextExample, has_label
from maskwright.finetuning.tasks.base import Task


def unlabelled(examples: Sequence[Any]) -> bool:
    """Whether no example says what is right, so that nothing can be measured."""
    return not any(map(has_label, examples))


def check_measurable(examples: Sequence[Any], task: Task[Any], name: str) -> None:
    """Refuse examples that cannot be measured with: before hours of training, not after.

    Args:
        examples: Of one file.
        task: By which they would be scored.
        name: The file, for messages.

    Raises:
        DataError: With the first such example.
    """
    lacking = [example.key for example in examples if not has_label(example)]
    if lacking:
        raise DataError(
            f"{name}: {len(lacking)} of {len(examples)} examples have no label, the first is {lacking[0]}",
            todo="Development examples must be labelled: name another file, or leave --dev out to have a share of the "
            "training examples held out.",
        )
    try:
        task.check(examples)
    except DataError as error:
        raise DataError(f"{name}, {error.problem}", allowed=error.allowed, todo=error.todo) from error


def counted_labels(examples: Sequence[Any]) -> Counter[str]:
    """Return how often each class stands in the examples; nothing where they have no classes."""
    return Counter(label for example in examples for label in _classes(example))


def _classes(example: Any) -> Iterable[str]:
    if not isinstance(example, TextExample) or isinstance(example.label, float) or example.label is None:
        return ()
    return (example.label,) if isinstance(example.label, str) else example.label
