"""Whether examples have labels, and whether these are the ones that a task knows."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from maskwright.core.errors import DataError, unknown_name
from maskwright.evaluation.examples import ChoiceExample, QuestionExample, TaggedExample, TextExample


def has_label(example: Any) -> bool:
    """Whether an example says what is right."""
    match example:
        case TextExample() | ChoiceExample():
            return example.label is not None
        case TaggedExample():
            return example.tags is not None
        case QuestionExample():
            return bool(example.answers) or example.is_impossible
    raise TypeError(f"{type(example).__name__} is no example")


def unlabelled(examples: Sequence[Any]) -> bool:
    """Whether some example does not say what is right, so that nothing can be measured."""
    return not all(map(has_label, examples))


def check_measurable(examples: Sequence[Any], labels: Sequence[str], name: str) -> None:
    """Refuse examples that cannot be measured with: before hours of training, not after.

    Tags are let pass: one that was never seen in training is simply never right.

    Args:
        examples: Of one file.
        labels: The task's; empty for tasks that have none.
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
    for example in examples:
        for label in _classes(example) if labels else ():
            if label not in labels:
                problem, allowed, todo = unknown_name("label", label, labels)
                raise DataError(
                    f"{name}, example {example.key}: {problem}; no training example has it", allowed=allowed, todo=todo
                )


def counted_labels(examples: Sequence[Any]) -> Counter[str]:
    """Return how often each class stands in the examples; nothing where they have no classes."""
    return Counter(label for example in examples for label in _classes(example))


def _classes(example: Any) -> Iterable[str]:
    if not isinstance(example, TextExample) or isinstance(example.label, float) or example.label is None:
        return ()
    return (example.label,) if isinstance(example.label, str) else example.label
