"""A search tries settings on the development examples, resumes where it stopped, and trains with the best ones."""

import json
import math

import pytest
import toy_tasks
from toy_tasks import Heard

from maskwright.core.errors import RecipeError
from maskwright.finetuning.finetune import finetune
from maskwright.finetuning.hyperparameters import Hyperparameters
from maskwright.finetuning.search import SettingsSearch
from maskwright.training.runs import run

pytest.importorskip("optuna")


@pytest.fixture
def tune(bert_folder, tmp_path):
    def tuned(out="out", set=(), **asked):
        file = toy_tasks.texts(tmp_path)
        settings = ("batch_size=8", "max_length=32", *set)
        asked = {"search": 3, "reporter": Heard(), **asked}
        return finetune(
            bert_folder, task="classification", train=file, out=tmp_path / out, device="cpu", set=settings, **asked
        )

    return tuned


def test_the_best_trial_is_what_is_kept(tune, tmp_path, monkeypatch):
    results = tune(set=["epochs=2"], test=toy_tasks.texts(tmp_path, "test.csv", offset=7)).results
    scores = [trial["score"] for trial in results.trials]
    assert len(scores) == 3
    assert results.best.dev["accuracy"] == max(scores)
    best = results.trials[scores.index(max(scores))]["settings"]
    assert {name: results.settings[name] for name in best} == best
    assert best.keys() == {"learning_rate"}
    assert "## Search" in (tmp_path / "out" / "results.md").read_text()
    assert not list((tmp_path / "out" / "search").glob("trial-*"))
    trained = json.loads((tmp_path / "out" / "runs" / "seed-0" / "run.json").read_text())
    monkeypatch.setattr(run, "train", lambda *_, **__: pytest.fail("nothing is left to train"))
    assert tune(set=["epochs=2"], test=tmp_path / "test.csv").results == results
    assert json.loads((tmp_path / "out" / "runs" / "seed-0" / "run.json").read_text()) == trained


def test_test_examples_change_no_trial(tune, tmp_path):
    with_test = tune(set=["epochs=1"], test=toy_tasks.texts(tmp_path, "test.csv", offset=7)).results
    assert with_test.best.test
    assert tune("other", set=["epochs=1"]).results.trials == with_test.trials


def test_a_stopped_search_resumes_to_the_same_trials(tune, tmp_path, monkeypatch):
    whole = tune("whole", set=["epochs=1"]).results
    finish, count = SettingsSearch.finish, iter(range(9))

    def killed(search):
        finish(search)
        if next(count) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(SettingsSearch, "finish", killed)
    with pytest.raises(KeyboardInterrupt):
        tune(set=["epochs=1"])
    monkeypatch.setattr(SettingsSearch, "finish", finish)
    assert len(json.loads((tmp_path / "out" / "search" / "trials.json").read_text())["trials"]) == 2
    resumed = tune(set=["epochs=1"]).results
    assert (resumed.trials, resumed.best.dev) == (whole.trials, whole.best.dev)


def test_ranges_surround_the_fitted_settings(tmp_path):
    settings = Hyperparameters(epochs=6, learning_rate=1e-4)
    search = SettingsSearch(tmp_path, settings, trials=30, fixed=(), seed=0)
    assert search.begin() == (0, settings)
    suggested = [search._suggest([{"settings": search._first, "score": 0.0}] * number) for number in range(1, 9)]
    assert all(2.5e-5 <= each["learning_rate"] <= 4e-4 and 3 <= each["epochs"] <= 12 for each in suggested)
    assert len({math.log(each["learning_rate"]) for each in suggested}) == 8


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"search": 1}, "--search is 1"),
        ({"set": ["learning_rate=1e-3", "steps=3"]}, "nothing to search"),
    ],
)
def test_searches_without_a_choice_are_refused(options, problem, tune):
    with pytest.raises(RecipeError, match=problem):
        tune(**options)
