"""The plan of a budget: prediction, refusals, recommendation."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from toy_studies import write_corpus

from maskwright.core.errors import RecipeError
from maskwright.fitting.resolve import Speed
from maskwright.reporting.reporter import Reporter
from maskwright.study import plan as module
from maskwright.study.experiment import StoppedError
from maskwright.study.plan import PlannedRecipe, narrower, plan, predict, recommend, with_prediction

TOY = (
    *("encoder.hidden_size=32", "encoder.num_heads=2", "encoder.intermediate_size=64"),
    'training.phases=[{"share": 1.0, "max_length": 32}]',
)


TOKENS = np.array([1e5, 2e5, 4e5, 8e5])
RECIPE = PlannedRecipe(recipe="a", tokens=8e6, steps=1000, epochs=1.0, flops_per_second=1e9, memory=1)


def power_law(tokens: np.ndarray, irreducible: float = 3.0, exponent: float = 0.3) -> np.ndarray:
    return irreducible + 2.0 * (tokens / 1e5) ** -exponent


# LOG.md, 2026-11-26: losses of trials up to 2 M tokens, and of 20 M.
TRIES = [
    ((7.07, 6.75, 6.49, 6.26), 5.40),
    ((7.65, 7.33, 6.84, 6.39), 4.87),
    ((6.29, 5.51, 4.89, 4.36), 3.07),
    ((7.37, 6.93, 6.56, 6.28), 5.27),
]


def test_predictions_of_the_logged_tries_are_not_biased() -> None:
    errors = []
    for losses, reached in TRIES:
        loss, low, high = predict(TOKENS, np.array(losses), 8e6)
        assert low <= reached <= high
        errors.append(loss - reached)
    assert abs(np.mean(errors)) < 0.1
    assert min(errors) < 0 < max(errors)


def test_a_power_law_is_predicted_exactly_and_longer_trials_narrow_its_interval() -> None:
    losses = 7 * (TOKENS / 1e5) ** -0.08
    loss, low, high = predict(TOKENS, losses, 8e6)
    assert loss == pytest.approx(7 * 80**-0.08)
    assert low < loss < high
    actual = narrower(TOKENS, losses, 8e6)
    assert actual is not None
    times, half = actual
    assert 1 < times < 10
    assert 0.2 * (high - low) < half < 0.34 * (high - low)
    assert narrower(TOKENS, losses, 9e5) is None, "trials as long as the run"


@pytest.mark.slow
def test_the_interval_holds_the_loss_of_a_ten_times_longer_run_that_follows_the_law() -> None:
    random = np.random.default_rng(0)
    inside, widths = 0, []
    for exponent in np.linspace(0.1, 0.6, 6):
        losses = power_law(TOKENS, exponent=exponent) * (1 + 0.01 * random.standard_normal(4))
        loss, low, high = predict(TOKENS, losses, 8e6)
        assert low <= loss <= high
        inside += low <= power_law(np.array([8e6]), exponent=exponent)[0] <= high
        widths.append(high - low)
    assert inside >= 5
    assert max(widths) < 2.0, "the interval says something"


def test_trials_without_a_trend_give_no_prediction() -> None:
    flat = replace(RECIPE, trials=((1e5, 8.14), (2e5, 8.10), (4e5, 8.08), (8e5, 8.05)))
    assert with_prediction(flat).loss is None
    assert "plateau" in with_prediction(flat).note
    leaving = replace(RECIPE, trials=((63e3, 7.14), (126e3, 7.09), (251e3, 7.08), (5e5, 6.89)))
    assert (with_prediction(leaving).loss, with_prediction(leaving).note) == (None, with_prediction(flat).note)
    falling = replace(RECIPE, trials=tuple(zip(TOKENS.tolist(), power_law(TOKENS).tolist(), strict=True)))
    actual = with_prediction(falling, trial_minutes=3)
    law = power_law(np.array([8e6]))[0]
    assert actual.low < actual.loss < law <= actual.high + 0.01, "reaches up to the law with a constant"
    assert "--trial-minutes 12 would" in actual.note
    assert "guess" in with_prediction(replace(falling, tokens=1e8)).note


def test_the_lowest_expected_loss_is_recommended_and_overlaps_are_named() -> None:
    best = replace(RECIPE, loss=4.0, low=3.5, high=4.5)
    close, worse = replace(best, recipe="b", loss=4.6, low=4.4, high=4.8), replace(best, recipe="c", loss=6, low=5.9)
    hopeless = replace(best, recipe="d", loss=1.0, refused="hopeless")
    actual = recommend(60, (worse, close, best, hopeless))
    assert actual.recommended == "a"
    assert "the intervals of b overlap" in actual.reason
    nothing = recommend(60, (replace(RECIPE, note="too short"), replace(RECIPE, recipe="d", refused="hopeless")))
    assert (nothing.recommended, nothing.reason) == (None, "a: too short; d: hopeless")


def test_hopeless_settings_are_refused_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = write_corpus(tmp_path / "corpus.txt")
    options = {"set": TOY, "cache": tmp_path / "cache", "workers": 1, "reporter": Reporter()}
    monkeypatch.setattr(module, "measure_speed", lambda *_, **__: Speed(1e8))
    (short,) = plan(corpus, ["bert/tiny"], minutes=1, **options).recipes
    assert "steps fit" in short.refused
    set_by_user = [*TOY, "training.batch_sequences=512"]
    (large_batches,) = plan(corpus, ["bert/tiny"], minutes=1, **{**options, "set": set_by_user}).recipes
    assert large_batches.steps < short.steps / 2, "a batch size of the user's is not fitted to the budget"
    monkeypatch.setattr(module, "_memory", lambda *_: (2 << 30, 1 << 30))
    (large,) = plan(corpus, ["bert/tiny"], minutes=1, **options).recipes
    assert "2 GiB" in large.refused
    assert "1 GiB" in large.refused
    with pytest.raises(RecipeError, match="no budget"):
        plan(corpus, **options)
    with pytest.raises(RecipeError, match="trial-minutes"):
        plan(corpus, hours=1, trial_minutes=0, **options)


@pytest.mark.slow
def test_a_plan_trains_and_measures_its_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = write_corpus(tmp_path / "corpus.txt")
    monkeypatch.setattr(module, "measure_speed", lambda *_, **__: Speed(1e9))
    monkeypatch.setattr(module, "MIN_STEPS", 10)
    monkeypatch.setattr(module, "TRIAL_SHARES", (0.1, 0.2, 0.4))
    options = {"set": [*TOY, "tokenizer.vocab_size=400"], "clean": ["deduplicate=none"], "workers": 1}
    actual = plan(
        corpus, ["bert/tiny"], hours=2, trial_minutes=0.2, cache=tmp_path / "c", reporter=Reporter(), **options
    )
    (one,) = actual.recipes
    assert [tokens / one.trials[0][0] for tokens, _ in one.trials] == pytest.approx([1, 2, 4], rel=0.3)
    assert one.by == "head"
    assert one.epochs > module.MAX_EPOCHS
    assert "epochs of the text" in one.refused
    assert actual.recommended is None
    assert actual.to_json()["recipes"][0]["trials"] == one.trials


def test_a_stopped_plan_prints_what_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise StoppedError

    corpus = write_corpus(tmp_path / "corpus.txt")
    monkeypatch.setattr(module, "measure_speed", lambda *_, **__: Speed(1e9))
    monkeypatch.setattr(module, "MIN_STEPS", 10)
    monkeypatch.setattr(module.Experiment, "train_and_measure", stop)
    recipes, options = ["a=bert/tiny", "b=bert/tiny"], {"set": TOY, "cache": tmp_path / "cache", "workers": 1}
    stopped = plan(corpus, recipes, minutes=3, trial_minutes=3, reporter=Reporter(), **options)
    assert stopped.recommended is None
    assert [each.tokens > 0 and each.note for each in stopped.recipes] == ["stopped before its trials were done"] * 2
