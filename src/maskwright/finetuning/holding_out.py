"""Development examples where there is no file of them: a stated, keyed share of the training examples."""

from collections.abc import Hashable, Sequence

import numpy as np

from maskwright.core.amounts import counted
from maskwright.core.errors import DataError
from maskwright.core.randomness import Permutation, integer_key
from maskwright.finetuning.examples import ChoiceExample, E, Example, QuestionExample, TaggedExample

SHARE = 0.1
"""Share of the training examples held out."""
FEWEST = 5
"""Examples held out of a small file, if these are no more than a third of it: one alone could not tell two models."""
_SEED = 0


def hold_out(examples: Sequence[E], name: str) -> tuple[list[E], list[E]]:
    """Split examples into training and development ones, the same way for every seed.

    Equal texts, and questions about one text, stay together: no text is seen in both parts.

    Args:
        examples: All labelled examples.
        name: The file, for messages.

    Returns:
        Training and development examples, each in the order of the file.

    Raises:
        DataError: If there are too few.
    """
    groups: dict[Hashable, int] = {}
    group_of = np.array([groups.setdefault(_text(example), len(groups)) for example in examples])
    if len(groups) < 2:
        raise DataError(
            f"{name} has {counted(len(examples), 'example')} of {counted(len(groups), 'text')}: none can be held out "
            "to choose the model by",
            todo="Give more examples, or a development file with `--dev FILE`.",
        )
    sizes = np.bincount(group_of)
    wanted = max(round(SHARE * len(examples)), min(FEWEST, len(examples) // 3))
    shuffled = Permutation(len(groups), integer_key(_SEED, "held-out examples"))(np.arange(len(groups))).tolist()
    held = np.zeros(len(groups), dtype=bool)
    left = wanted
    for group in shuffled:
        if sizes[group] <= left:
            held[group] = True
            left -= int(sizes[group])
    if left == wanted:  # Every text has more examples than are wanted.
        held[min(shuffled, key=lambda group: sizes[group])] = True
    is_held = held[group_of].tolist()
    return (
        [example for example, out in zip(examples, is_held, strict=True) if not out],
        [example for example, out in zip(examples, is_held, strict=True) if out],
    )


def _text(example: Example) -> Hashable:
    """Return what examples that stay together have in common."""
    match example:
        case QuestionExample():
            return example.context or example.question
        case ChoiceExample():
            return example.context or (example.question, example.options)
        case TaggedExample():
            return example.words
    return example.texts
