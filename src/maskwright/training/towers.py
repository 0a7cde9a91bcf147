"""Which objectives sit on which tower: the encoder, or a generator beside it."""

from collections.abc import Iterable

from maskwright.pretext.objectives.base import Objective


def objectives_by_tower(
    objectives: Iterable[Objective], *, generator: bool
) -> tuple[tuple[Objective, ...], tuple[Objective, ...]]:
    """Return the objectives whose heads sit on the encoder, and those on the generator, each in their order.

    Args:
        objectives: What is asked back.
        generator: Whether there is one; without it all are on the encoder.
    """
    asked = tuple(objectives)
    on_generator = tuple(objective for objective in asked if generator and objective.on_generator)
    return tuple(objective for objective in asked if not (generator and objective.on_generator)), on_generator
