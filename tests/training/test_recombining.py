"""Combinations of recipes in the documentation: trained, saved and read again, not only accepted."""

from pathlib import Path

import numpy as np
import pytest
from test_batches import step
from test_every_recipe import SHRUNK, WHOLE, assert_saved_bit_equal, model_of
from toy_models import take_step

from docs_pages import Command, commands, page, section
from maskwright.recipes.catalog import resolve
from maskwright.training.runs.checkpoint import check_savable
from maskwright.training.steps.update_rules import build_optimizer
from maskwright.training.steps.weights import all_weights

RECOMBINED = commands(section(page("systems.md"), "Recombining"))
STEPS, FALLING = 80, 20


def _rate(number: int) -> float:
    """Return a step's learning rate: it falls in the end, since at the full one a loss is left to rounding."""
    return 0.005 * min(1.0, (STEPS - number) / FALLING)


def test_the_page_recombines_every_axis_of_a_task() -> None:
    changed = {setting.partition("=")[0].partition(".")[0] for command in RECOMBINED for setting in command.settings}
    assert changed >= {"format", "masking", "masks", "objectives", "replacement", "encoder"}


@pytest.mark.slow
@pytest.mark.parametrize("command", RECOMBINED, ids=lambda command: " ".join([command.recipe, *command.settings]))
def test_recombined_recipes_learn_and_are_saved_and_read_again_bit_equal(command: Command, tmp_path: Path) -> None:
    recipe = resolve(command.recipe, (*command.settings, *SHRUNK))
    assert recipe != resolve(command.recipe, SHRUNK)
    check_savable(recipe, recipe.tokenizer.pad)
    batch, model = step(recipe, WHOLE, count=8), model_of(recipe).train()
    optimizer = build_optimizer(model.named_parameters(), recipe.training.optimizer)
    results = [
        take_step(model, optimizer, batch, learning_rate=_rate(number), clip_norm=1.0, step=number)
        for number in range(STEPS)
    ]
    for objective in recipe.objectives:
        losses = [result.objectives[objective.kind].loss for result in results]
        assert np.mean(losses[-5:]) < 0.9 * np.mean(losses[:5]), (objective.kind, losses)
    assert {name.split(".")[1] for name in all_weights(model) if name.startswith("heads.")} == {
        objective.kind for objective in recipe.objectives
    }
    assert_saved_bit_equal(recipe, model, tmp_path)
