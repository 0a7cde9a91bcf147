"""The FLOP formula counts what PyTorch's own counter does."""

import pytest
from test_batches import step
from test_every_recipe import SHRUNK, model_of, teacher_of, toy
from torch.utils.flop_counter import FlopCounterMode
from toy_models import take_steps

from maskwright.fitting.budget import Budget
from maskwright.fitting.flops import expected_tokens, planned_skipped_flops_per_token
from maskwright.kernels.cpu import linear
from maskwright.kernels.setting import use_kernels
from maskwright.recipes.catalog import get, names, resolve
from maskwright.recipes.sizing import training_flops_per_token
from maskwright.training.steps.workload import skipped_flops, step_flops

# Recipes that are the same at toy size are tested once.
_WHAT_COSTS = ("encoder", "generator", "teacher", "objectives", "format", "masking", "replacement")
_ABLATIONS = {
    "Replace MLM": resolve("electra/tiny", (*SHRUNK, "objectives=[mlm, replace_mlm]")),
    "All-Tokens MLM": resolve(
        "electra/tiny", (*SHRUNK, "objectives=[mlm, replace_mlm]", "objectives.replace_mlm.loss_at=everywhere")
    ),
    "relations": resolve("distilbert/tiny", (*SHRUNK, "objectives=[mlm, relations]")),
}
DIFFERENT = list({tuple(getattr(toy(name), part) for part in _WHAT_COSTS): name for name in names()}.values())


@pytest.mark.parametrize("name", [*DIFFERENT, *_ABLATIONS])
def test_a_step_has_the_flops_that_pytorch_counts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Padding is not counted: no tokens are appended, and each micro-batch is one sequence, so no row has a gap.
    monkeypatch.setattr(linear, "_missing", lambda values: 0)
    recipe = _ABLATIONS.get(name) or toy(name)
    teacher = teacher_of(recipe, steps=0)
    batch, model = step(recipe, tokens_per_microbatch=1, count=4), model_of(recipe, teacher).train()
    # The C kernel computes as many FLOPs as the sequences' lengths say, which the counter does not see.
    with use_kernels(False), FlopCounterMode(display=False) as counter:
        take_steps(recipe, model, batch, 1, learning_rate=1e-3)
    config = None if teacher is None else teacher.encoder.config
    counted = step_flops(recipe, len(model.encoder.word_embeddings.weight), batch, config)
    assert counted - skipped_flops(recipe, batch) == pytest.approx(counter.get_total_flops(), rel=0.01)


def test_a_budget_buys_tokens_in_each_phase() -> None:
    recipe = get("bert/tiny")
    lengths = (100.0, 400.0)
    costs = [training_flops_per_token(recipe, recipe.tokenizer.vocab_size, length=length) for length in lengths]
    width = recipe.encoder.hidden_size
    skipped = 3 * 0.85 * (2 * width**2 + 4 * width * 4 * width)
    assert expected_tokens(Budget("tokens", 1234), recipe, lengths) == 1234
    assert expected_tokens(Budget("steps", 10), recipe, lengths) == pytest.approx(2560 * (0.9 * 100 + 0.1 * 400))
    assert expected_tokens(Budget("flops", 1e12), recipe, lengths) == pytest.approx(
        1e12 * (0.9 / costs[0] + 0.1 / costs[1])
    )
    # Held-out evaluations: 20 forward passes over 5,000 tokens, the least, or 60,000, the most.
    for seconds, held_out in ((60, 5_000), (1e6, 60_000)):
        tokens = seconds * 1e9 * (0.9 / (costs[0] - skipped) + 0.1 / (costs[1] - skipped))
        planned = expected_tokens(Budget("seconds", seconds), recipe, lengths, 1e9)
        assert planned == pytest.approx(tokens / (1 + 20 * held_out / 3 / tokens))


def test_skipped_flops_are_those_of_tokens_without_output() -> None:
    recipe, detecting = get("bert/tiny"), get("electra/tiny")
    generator = detecting.generator.config(detecting.encoder)
    assert planned_skipped_flops_per_token(detecting) == pytest.approx(
        3 * 0.85 * (2 * generator.hidden_size**2 + 4 * generator.hidden_size * generator.intermediate_size)
    )
    unmasked = "replacement={kind: mask_random_keep, mask: 0, random: 0, keep: 1}"
    pairs = planned_skipped_flops_per_token(resolve("bert/tiny", ["objectives=[nsp]", unmasked]))
    assert pairs == pytest.approx(planned_skipped_flops_per_token(recipe) / 0.85)
