"""Speed measurement for time budgets: the loop of a run, on random text."""

import dataclasses
from collections.abc import Callable

import pytest
import torch
from test_every_recipe import OF_EACH_OBJECTIVE, toy

from maskwright.fitting.budget import Budget
from maskwright.machine.contention import SpinControl
from maskwright.recipes.catalog import resolve
from maskwright.training.ranks.device import Machine
from maskwright.training.start import speed
from maskwright.training.start.speed import measure_speed
from maskwright.training.steps import loop

MACHINE = Machine(torch.device("cpu"), "a processor", 1, "default", None)
MINUTE = Budget("seconds", 60)


@pytest.fixture(autouse=True)
def of_known_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Machine, "peak_flops", 1e9)


@pytest.mark.parametrize("name", OF_EACH_OBJECTIVE)
def test_recipes_of_every_objective_are_measured(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "_ROUNDS", ((0.01, 1),))
    assert 1e6 < measure_speed(toy(name), MINUTE, MACHINE).flops < 1e13


def count_steps(monkeypatch: pytest.MonkeyPatch, seconds_of: Callable[[int], float]) -> list[float]:
    """Let training steps take the seconds of their number, from 1 on, and 1e12 FLOPs; return the list of seconds."""
    seconds: list[float] = []

    class Clock:
        def perf_counter(self) -> float:
            return sum(seconds)

        monotonic = perf_counter

    def flops(*_: object) -> float:
        seconds.append(seconds_of(len(seconds) + 1))
        return 1e12

    monkeypatch.setattr(loop, "time", Clock())
    monkeypatch.setattr(speed, "step_flops", flops)
    return seconds


@pytest.mark.parametrize("is_busy", [False, True])
def test_the_typical_step_after_the_first_ones_counts(monkeypatch: pytest.MonkeyPatch, is_busy: bool) -> None:
    """Steps take a second, some much longer, and two seconds while other processes compete."""
    irregular = {2: 9.0, 15: 30.0}
    steps = count_steps(monkeypatch, lambda step: irregular.get(step, 2.0 if is_busy and step > 10 else 1.0))
    monkeypatch.setattr(speed, "_ROUNDS", ((80.0, 1),))
    monkeypatch.setattr(SpinControl, "check", lambda _: is_busy and len(steps) > 10)
    actual = measure_speed(toy("bert/tiny"), MINUTE, MACHINE)
    assert (actual.is_busy, actual.full_step_tokens) == (is_busy, 0)
    assert actual.flops == pytest.approx(1e12 / (2 if is_busy else 1), rel=0.01)


def test_a_single_first_step_is_no_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step of the process takes a minute, later ones a second."""
    count_steps(monkeypatch, lambda step: 60.0 if step == 1 else 1.0)
    monkeypatch.setattr(speed, "_ROUNDS", ((1.0, 1),))
    assert measure_speed(toy("bert/tiny"), MINUTE, MACHINE).flops == pytest.approx(1e12, rel=0.01)


def test_the_measured_recipe_is_fitted_to_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def measured(recipe, text, machine, seconds):
        seen.append((recipe, text.vocab_size))
        return speed._StepSpeed(1e9, 1.0, False)

    monkeypatch.setattr(speed, "_train_briefly", measured)
    measure_speed(resolve("bert/mini"), MINUTE, MACHINE)
    measure_speed(resolve("bert/mini"), Budget("seconds", 1e7), MACHINE, corpus_tokens=1e6)
    (_, (short, _), _, (long, vocabulary)) = seen
    assert short.training.batch_sequences < long.training.batch_sequences
    assert short.tokenizer.vocab_size < long.tokenizer.vocab_size == vocabulary
    assert (short.encoder.hidden_dropout, long.encoder.hidden_dropout) == (0.0, 0.1), "few epochs and many"


def test_a_measurement_takes_at_most_a_twentieth_of_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = []

    def measured(recipe, text, machine, seconds):
        limits.append(seconds)
        return speed._StepSpeed(1e6, 1.0, True)  # So slow that few steps fit into the budget.

    monkeypatch.setattr(speed, "_train_briefly", measured)
    measure_speed(resolve("bert/base"), Budget("seconds", 180), MACHINE)
    assert limits[0] <= 9.0
    assert limits[1] == 9.0


def test_steps_that_are_long_for_the_budget_are_measured_with_smaller_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = []

    def measured(recipe, text, machine, seconds):
        batches.append(recipe.training.batch_sequences)
        return speed._StepSpeed(1e9, 1.0, True)

    monkeypatch.setattr(speed, "_train_briefly", measured)
    fixed = resolve("bert/base", ["training.batch_sequences=256"])
    measure_speed(fixed, Budget("seconds", 180), MACHINE, fixed=("training.batch_sequences",))
    assert max(batches) <= 8


@pytest.mark.parametrize(
    ("free", "fixed", "expected"),
    [(100, (), 128), (10_000, (), 256), (1, (), 0), (128, (), 128), (10_000, ("training.batch_sequences",), 0)],
    ids=["some", "up to the published batch", "none", "not for a full GPU", "the user's batch"],
)
def test_on_a_gpu_steps_grow_while_that_costs_little_time(monkeypatch, free, fixed, expected):
    """Steps take 10 ms, and longer in proportion above `free` sequences."""

    def measured(recipe, text, machine, seconds):
        batch = recipe.training.batch_sequences
        took = 0.01 * max(1.0, batch / free)
        return speed._StepSpeed(1e6 * batch / took, took, False)

    monkeypatch.setattr(speed, "_train_briefly", measured)
    monkeypatch.setattr(Machine, "peak_flops", 1e13)
    gpu = dataclasses.replace(MACHINE, device=torch.device("cuda", 0))
    actual = measure_speed(resolve("bert/mini"), MINUTE, gpu, fixed=fixed)
    assert actual.full_step_tokens / 32 == pytest.approx(expected, rel=0.1)
    assert measure_speed(resolve("bert/mini"), MINUTE, gpu, fixed=fixed, tries_larger_steps=False).full_step_tokens == 0
