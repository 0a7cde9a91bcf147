"""Development examples where there is no file of them: a stated, keyed share of the training examples."""

from collections.abc import Sequence

import numpy as np

from maskwright.core.errors import DataError
from maskwright.core.randomness import Permutation, integer_key
from maskwright.evaluation.examples import ChoiceExample, E, Example, QuestionExample

SHARE = 0.1
"""Share of the training examples held out."""
_SEED = 0


def hold_out(examples: Sequence[E], name: str) -> tuple[list[E], list[E]]:
    """Split examples into training and development ones, the same way for every seed.

    Questions about one text stay together, so that no text is seen in both parts.

    Args:
        examples: All labelled examples.
        name: The file, for messages.

    Returns:
        Training and development examples, each in the order of the file.

    Raises:
        DataError: If there are too few.
    """
    groups: dict[str, int] = {}
    group_of = np.array(
        [groups.setdefault(_text(example, number), len(groups)) for number, example in enumerate(examples)]
    )
    if len(groups) < 2:
        raise DataError(
            f"{name} has {len(examples)} examples of {len(groups)} texts: none can be held out to choose the model by",
            todo="Give more examples, or a development file with `--dev FILE`.",
        )
    shuffled = Permutation(len(groups), integer_key(_SEED, "held-out examples"))(np.arange(len(groups)))
    held = np.zeros(len(groups), dtype=bool)
    held[shuffled[: max(1, round(SHARE * len(groups)))]] = True
    is_held = held[group_of].tolist()
    return (
        [example for example, out in zip(examples, is_held, strict=True) if not out],
        [example for example, out in zip(examples, is_held, strict=True) if out],
    )


def _text(example: Example, number: int) -> str:
    if isinstance(example, QuestionExample | ChoiceExample) and example.context:
        return example.context
    return f"{number}"
