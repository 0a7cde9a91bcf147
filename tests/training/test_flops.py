"""The FLOP formula counts what PyTorch's own counter does."""

import pytest
from test_batches import step
from test_every_recipe import model_of, teacher_of, toy
from torch.utils.flop_counter import FlopCounterMode

from maskwright.kernels.cpu import linear
from maskwright.kernels.setting import use_kernels
from maskwright.recipes.catalog import names
from maskwright.training.flops import step_flops
from maskwright.training.optimizer import Optimizer
from maskwright.training.step import take_step

# Recipes that are the same at toy size are tested once.
_WHAT_COSTS = ("encoder", "generator", "teacher", "objectives", "format", "masking", "replacement")
DIFFERENT = list({tuple(getattr(toy(name), part) for part in _WHAT_COSTS): name for name in names()}.values())


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_step_has_the_flops_that_pytorch_counts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Padding is not counted: no tokens are appended, and each micro-batch is one sequence, so no row has a gap.
    monkeypatch.setattr(linear, "_missing", lambda values: 0)
    recipe = toy(name)
    teacher = teacher_of(recipe, steps=0)
    batch, model = step(recipe, tokens_per_microbatch=1, count=8), model_of(recipe, teacher).train()
    optimizer = Optimizer(model.named_parameters(), recipe.training.optimizer)
    # The C kernel computes as many FLOPs as the sequences' lengths say, which the counter does not see.
    with use_kernels(False), FlopCounterMode(display=False) as counter:
        result = take_step(model, optimizer, batch, learning_rate=1e-3, clip_norm=1.0, step=0)
    config = None if teacher is None else teacher.config
    counted = step_flops(recipe, len(model.encoder.word_embeddings.weight), batch, config) - result.skipped_flops
    assert counted == pytest.approx(counter.get_total_flops(), rel=0.01)
