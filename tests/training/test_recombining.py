"""What the documentation recombines is trained, saved and read again, not only accepted."""

from pathlib import Path

import numpy as np
import pytest
import torch
from test_batches import SPECIAL, step
from test_every_recipe import PAD_SECOND, SHRUNK, model_of
from toy_models import take_step

from docs_pages import Command, commands, page, section
from maskwright.huggingface.huggingface import load_model
from maskwright.recipes.catalog import get, resolve
from maskwright.training.checkpoint import check_savable, save_models
from maskwright.training.optimizer import Optimizer
from maskwright.training.run_directory import GENERATOR

RECOMBINED = commands(section(page("systems.md"), "Recombining"))
STEPS, FALLING = 80, 20


def _rate(number: int) -> float:
    """Return a step's learning rate: it falls in the end, since at the full one a loss is left to rounding."""
    return 0.005 * min(1.0, (STEPS - number) / FALLING)


def test_the_page_recombines_every_axis_of_a_task() -> None:
    changed = {setting.partition("=")[0].partition(".")[0] for command in RECOMBINED for setting in command.settings}
    assert changed >= {"format", "masking", "masks", "objectives", "replacement", "encoder"}


@pytest.mark.parametrize("command", RECOMBINED, ids=lambda command: " ".join([command.recipe, *command.settings]))
def test_recombined_recipes_learn_and_are_saved_and_read_again_bit_equal(command: Command, tmp_path: Path) -> None:
    recipe = resolve(command.recipe, (*command.settings, *SHRUNK))
    assert recipe != resolve(command.recipe, SHRUNK)
    check_savable(recipe, recipe.tokenizer.pad)
    batch, model = step(recipe, count=8), model_of(recipe).train()
    optimizer = Optimizer(model.named_parameters(), recipe.training.optimizer)
    results = [
        take_step(model, optimizer, batch, learning_rate=_rate(number), clip_norm=1.0, step=number)
        for number in range(STEPS)
    ]
    kinds = {objective.kind for objective in recipe.objectives}
    for kind in kinds:
        losses = [result.losses[kind] for result in results]
        assert np.mean(losses[-5:]) < 0.9 * np.mean(losses[:5]), (kind, losses)
    special = PAD_SECOND if get(command.recipe).family == "roberta" else SPECIAL
    save_models(tmp_path, recipe, model, special)
    written = [(tmp_path, model.encoder_weights())]
    if model.generator is not None:
        written.append((tmp_path / GENERATOR, model.generator_weights()))
    assert {name.split(".")[1] for _, state in written for name in state if name.startswith("heads.")} == kinds
    for folder, state in written:
        loaded = load_model(folder)
        assert loaded.state.keys() == state.keys()
        assert [name for name, value in state.items() if not torch.equal(loaded.state[name], value)] == []
