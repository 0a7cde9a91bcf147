import pytest
import torch

from maskwright.model.config import EncoderConfig
from maskwright.recipes.catalog import get, resolve
from maskwright.training import expectation
from maskwright.training.budget import Budget
from maskwright.training.contention import SpinControl
from maskwright.training.device import Machine
from maskwright.training.expectation import expected_tokens, measure_training_flops
from maskwright.training.flops import planned_flops_per_token, planned_skipped_flops_per_token

MACHINE = Machine(torch.device("cpu"), "a processor", 1, "default", 1e11, None)
SHAPE = EncoderConfig(hidden_size=32, num_layers=2, num_heads=2, intermediate_size=64, hidden_dropout=0.1)


class _Clock:
    """Every reading is as much later as the list says; then one second each."""

    def __init__(self, seconds):
        self.now, self.seconds = 0.0, iter(seconds)

    def __call__(self):
        self.now += next(self.seconds, 1.0)
        return self.now


@pytest.fixture(autouse=True)
def load(monkeypatch):
    """Replace the check of the load after each step; no other process competes at first."""
    states = []
    monkeypatch.setattr(SpinControl, "check", lambda _: bool(states) and states.pop(0))
    return states


def test_the_fastest_step_counts_and_the_median_beside_other_processes(monkeypatch, load):
    # Readings: begin; then for each step start, end, and one for the limit from the third step on.
    monkeypatch.setattr(expectation.time, "perf_counter", _Clock([0, 0, 0.5, 0, 0.1, 0, 0.9, 9]))
    fastest, is_busy = measure_training_flops(SHAPE, MACHINE)
    assert not is_busy
    # A step of 7 seconds before the other processes are noticed does not count; a reading follows it.
    monkeypatch.setattr(expectation.time, "perf_counter", _Clock([0, 0, 7, 0, 0, 0.5, 0, 0.1, 0, 0.9, 9]))
    load[:] = [True, True, True, True]
    median, is_busy = measure_training_flops(SHAPE, MACHINE)
    assert is_busy
    assert median / fastest == pytest.approx(0.1 / 0.5)


def test_measured_flops_are_those_of_the_formula(monkeypatch):
    monkeypatch.setattr(expectation.time, "perf_counter", _Clock([0, 0, 2, 0, 2, 0, 2]))
    # Per token and forward pass: 2 layers of 4 H H + 2 H F matmuls and attention over 64; then the head at 15 %.
    hidden, inner, length, vocabulary = 32, 64, 64, 4096
    layer = 2 * (4 * hidden**2 + 2 * hidden * inner) + 2 * 2 * length * hidden
    head = 2 * (hidden**2 + hidden * vocabulary)
    config = SHAPE.replace(pooler=False)
    # Behind its attention, the last layer computes the predicted tokens only.
    skipped = 0.85 * 2 * (hidden**2 + 2 * hidden * inner)
    needed = 2 * layer + 0.15 * head - skipped
    assert measure_training_flops(config, MACHINE)[0] == pytest.approx(1024 * 3 * needed / 2, rel=0.01)


def test_a_budget_buys_tokens_in_each_phase():
    recipe = get("bert/tiny")
    lengths = (100.0, 400.0)
    costs = [planned_flops_per_token(recipe, length) for length in lengths]
    width = recipe.encoder.hidden_size
    skipped = 3 * 0.85 * (2 * width**2 + 4 * width * 4 * width)
    assert expected_tokens(Budget("tokens", 1234), recipe, lengths) == 1234
    assert expected_tokens(Budget("steps", 10), recipe, lengths) == pytest.approx(2560 * (0.9 * 100 + 0.1 * 400))
    assert expected_tokens(Budget("flops", 1e12), recipe, lengths) == pytest.approx(
        1e12 * (0.9 / costs[0] + 0.1 / costs[1])
    )
    assert expected_tokens(Budget("seconds", 60), recipe, lengths, 1e9) == pytest.approx(
        60e9 * (0.9 / (costs[0] - skipped) + 0.1 / (costs[1] - skipped))
    )


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
