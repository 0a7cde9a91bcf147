import pytest

from maskwright.recipes.catalog import get, resolve
from maskwright.recipes.sizing import training_flops_per_token
from maskwright.training.budget import Budget
from maskwright.training.flops import expected_tokens, planned_skipped_flops_per_token


def test_a_budget_buys_tokens_in_each_phase():
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


def test_skipped_flops_are_those_of_tokens_without_output():
    recipe, detecting = get("bert/tiny"), get("electra/tiny")
    generator = detecting.generator.config(detecting.encoder)
    assert planned_skipped_flops_per_token(detecting) == pytest.approx(
        3 * 0.85 * (2 * generator.hidden_size**2 + 4 * generator.hidden_size * generator.intermediate_size)
    )
    sequences_only = resolve(
        "bert/tiny", ["objectives=[nsp]", "replacement={kind: mask_random_keep, mask: 0, random: 0, keep: 1}"]
    )
    assert planned_skipped_flops_per_token(sequences_only) == pytest.approx(
        planned_skipped_flops_per_token(recipe) / 0.85
    )
