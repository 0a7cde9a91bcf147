"""A search tries settings on the development examples, resumes where it stopped, and trains with the best ones."""

import json
import math
import shutil
from functools import partial

import pytest
import toy_tasks

from maskwright.core.errors import CheckpointError, RecipeError, TrainingError
from maskwright.finetuning.finetune import finetune
from maskwright.finetuning.hyperparameters import Hyperparameters
from maskwright.finetuning.search import SettingsSearch
from maskwright.reporting.trackers import Trackers
from maskwright.training.runs import run
from recording import Recorder

pytest.importorskip("optuna")


def search_settings(model, folder, out="out", set=(), **options):
    file = toy_tasks.texts(folder)
    settings = ("batch_size=8", "max_length=32", *set)
    options = {"search": 3, "reporter": Recorder(), **options}
    return finetune(model, task="classification", train=file, out=folder / out, device="cpu", set=settings, **options)


@pytest.fixture
def tune(bert_folder, tmp_path):
    return partial(search_settings, bert_folder, tmp_path)


@pytest.fixture(scope="module")
def whole(bert_folder, tmp_path_factory):
    """The results of an undisturbed search of one epoch."""
    return search_settings(bert_folder, tmp_path_factory.mktemp("whole"), set=["epochs=1"]).results


def test_the_best_trial_is_what_is_kept(tune, tmp_path, monkeypatch):
    results = tune(set=["epochs=2"], test=toy_tasks.texts(tmp_path, "test.csv", offset=7)).results
    scores = [trial["score"] for trial in results.trials]
    assert len(scores) == 3
    assert results.best.dev["accuracy"] == max(scores)
    best = results.trials[scores.index(max(scores))]["settings"]
    assert {name: results.settings[name] for name in best} == best
    assert best.keys() == {"learning_rate"}
    assert "## Search" in (tmp_path / "out" / "results.md").read_text()
    assert not list((tmp_path / "out" / "runs").glob("trial-*"))
    assert json.loads((tmp_path / "out" / "run.json").read_text())["chosen_settings"] == results.settings
    trained = json.loads((tmp_path / "out" / "runs" / "seed-0" / "run.json").read_text())
    monkeypatch.setattr(run, "train", lambda *_, **__: pytest.fail("nothing is left to train"))
    assert tune(set=["epochs=2"], test=tmp_path / "test.csv").results == results
    assert json.loads((tmp_path / "out" / "runs" / "seed-0" / "run.json").read_text()) == trained


def test_test_examples_change_no_trial(tune, whole, tmp_path):
    with_test = tune(set=["epochs=1"], test=toy_tasks.texts(tmp_path, "test.csv", offset=7)).results
    assert with_test.best.test
    assert with_test.trials == whole.trials


def test_a_stopped_search_resumes_to_the_same_trials(tune, whole, tmp_path, monkeypatch):
    finish, count = SettingsSearch.finish, iter(range(9))

    def killed(search, **trial):
        finish(search, **trial)
        if next(count) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(SettingsSearch, "finish", killed)
    with pytest.raises(KeyboardInterrupt):
        tune(set=["epochs=1"])
    monkeypatch.setattr(SettingsSearch, "finish", finish)
    assert len(json.loads((tmp_path / "out" / "runs" / "trials.json").read_text())["trials"]) == 2
    resumed = tune(set=["epochs=1"]).results
    assert (resumed.trials, resumed.best.dev) == (whole.trials, whole.best.dev)


@pytest.mark.parametrize("method", ["begin", "finish"])
def test_an_interrupted_search_is_not_mixed_with_another(method, tune, monkeypatch):
    real = getattr(SettingsSearch, method)

    def killed(search, **trial):
        real(search, **trial)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SettingsSearch, method, killed)
        with pytest.raises(KeyboardInterrupt):
            tune(set=["epochs=1"])
    with pytest.raises(CheckpointError, match="holds another run: "):
        tune(set=["epochs=2"])


def test_the_best_run_is_trained_again_if_it_is_missing(tune, tmp_path):
    done = tune(set=["epochs=1"], search=2).results
    shutil.rmtree(tmp_path / "out" / "runs" / "seed-0")
    again = tune(set=["epochs=1"], search=2).results
    assert (again.best.dev, again.trials) == (done.best.dev, done.trials)


def test_a_search_continues_after_trials_that_diverge(tune, tmp_path, monkeypatch):
    names = []

    class Recording(Trackers):
        def __init__(self, trackers, tracked, reporter):
            super().__init__(trackers, tracked, reporter)
            names.append(tracked.name)
            (tracked.folder / "wandb").mkdir(parents=True)

    rates = iter([1e30, 1e-3, 1e30, 1e30])
    monkeypatch.setattr(run, "Trackers", Recording)
    monkeypatch.setattr(SettingsSearch, "_suggest", lambda *_: {"learning_rate": next(rates)})
    results = tune(set=["epochs=1", "clip_norm=0"], search=2).results
    assert [trial["score"] for trial in results.trials] == [None, results.best.dev["accuracy"]]
    assert results.search_table().rows[0][-1] == "-"
    assert names == ["out-trial-0", "out-trial-1"]
    assert [each.name for each in (tmp_path / "out" / "runs" / "trial-0").iterdir()] == ["wandb"]
    with pytest.raises(TrainingError, match="none of the 2 trials"):
        tune("other", set=["epochs=1", "clip_norm=0"], search=2)


def test_patience_follows_the_epochs_of_a_trial_unless_it_is_set(tmp_path):
    settings = Hyperparameters(epochs=12, patience=7)
    for fixed, patience in (((), 6), (("patience",), 7)):
        search = SettingsSearch(tmp_path, settings, trials=2, fixed=fixed, seed=0)
        search.trials.append({"settings": {"epochs": 24}, "score": 0.5})
        assert (search.chosen.epochs, search.chosen.patience) == (24, patience)


def test_ranges_surround_the_fitted_settings(tmp_path):
    settings = Hyperparameters(epochs=6, learning_rate=1e-4, patience=3)
    search = SettingsSearch(tmp_path, settings, trials=30, fixed=(), seed=0)
    assert search.begin() == (0, settings)
    suggested = [search._suggest([{"settings": search._first, "score": 0.0}] * number) for number in range(1, 9)]
    assert all(2.5e-5 <= each["learning_rate"] <= 4e-4 and 3 <= each["epochs"] <= 12 for each in suggested)
    assert len({math.log(each["learning_rate"]) for each in suggested}) == 8


@pytest.mark.parametrize(
    ("options", "problem"),
    [({"search": 1}, "--search is 1"), ({"set": ["learning_rate=1e-3", "steps=3"]}, "nothing to search")],
)
def test_searches_without_a_choice_are_refused(options, problem, tune):
    with pytest.raises(RecipeError, match=problem):
        tune(**options)
