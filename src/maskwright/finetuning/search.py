"""A search over learning rate and epochs on the development examples, by Optuna's tree of Parzen estimators.

OUT/runs/trials.json   the settings and the score of each trial: null if it diverged, none while it trains
OUT/runs/trial-N/      the training run of the trial in progress, and that of the best one so far (`seed_run`); of the
                       others what trackers wrote

All trials have the same seed. A trial's settings depend on the trials before it and the seed only, so that an
interrupted search ends as it would have.
"""

import contextlib
import math
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from maskwright.core.errors import RecipeError, TrainingError
from maskwright.core.extras import require
from maskwright.core.storage.files import read_if_exists, write_json
from maskwright.finetuning.hyperparameters import Hyperparameters, fitted_patience
from maskwright.finetuning.seed_run import read_result
from maskwright.reporting.trackers import TRACKER_FOLDERS

_RATE_FACTOR, _EPOCHS_FACTOR = 4.0, 2.0
"""The ranges are the fitted values, divided and multiplied by these."""
_RANDOM_TRIALS = 4
"""Trials before the estimators choose."""
_DIVERGED = -1e9
"""The score of a trial without one, for the estimators."""


class Trial(TypedDict):
    """The searched settings of a trial and its main metric on the development examples, None if it has none."""

    settings: dict[str, Any]
    score: NotRequired[float | None]


def check_search(trials: int, fixed: Collection[str]) -> None:
    """Raise MaskwrightError if there is nothing to search, or no Optuna."""
    require("--search", "search", "optuna")
    if trials < 2:
        raise RecipeError(f"--search is {trials}", allowed="2 or more trials")
    if "learning_rate" in fixed and {"epochs", "steps"} & {*fixed}:
        raise RecipeError(
            "--search has nothing to search: learning_rate and the length of training are set",
            hint="Leave one of them out of --set.",
        )


class SettingsSearch:
    """The trials of a search in a folder of runs; `settings` are the first trial's.

    Fields that are `fixed` are not searched; `patience` follows the epochs unless it is fixed.
    """

    def __init__(
        self, folder: Path, settings: Hyperparameters, *, trials: int, fixed: Collection[str], seed: int
    ) -> None:
        from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution

        self.folder, self._settings, self._num_trials, self._seed = folder, settings, trials, seed
        self._file = folder / "trials.json"
        self.trials: list[Trial] = read_if_exists(self._file).get("trials", [])
        """Those that were begun; up to date on rank 0."""
        self._fits_patience = "patience" not in fixed
        rate, epochs = settings.learning_rate, max(1, round(settings.epochs))
        self._ranges: dict[str, BaseDistribution] = {}
        self._first: dict[str, Any] = {}
        if "learning_rate" not in fixed:
            self._ranges["learning_rate"] = FloatDistribution(rate / _RATE_FACTOR, rate * _RATE_FACTOR, log=True)
            self._first["learning_rate"] = rate
        if settings.steps is None and "epochs" not in fixed:
            shortest = max(1, round(epochs / _EPOCHS_FACTOR))
            self._ranges["epochs"] = IntDistribution(shortest, round(epochs * _EPOCHS_FACTOR))
            self._first["epochs"] = epochs

    def begin(self) -> tuple[int, Hyperparameters] | None:
        """Return the number and the settings of the next trial, or of the one in progress; None after the last."""
        if not self.trials or "score" in self.trials[-1]:
            if len(self.trials) == self._num_trials:
                return None
            self.trials.append({"settings": self._suggest(self.trials)})
            self._write()
        return len(self.trials) - 1, self._settings_of(self.trials[-1])

    def finish(self, *, diverged: bool = False) -> None:
        """Note the score of the trial in progress, and keep its run only if it is the best."""
        result = None if diverged else read_result(self.trial_folder(len(self.trials) - 1))
        assert diverged or result is not None, "a trial that did not diverge is finished"
        score = -math.inf if result is None else result.chosen.main
        self.trials[-1]["score"] = score if math.isfinite(score) else None
        self._write()
        for number in range(len(self.trials)):
            if number != self.best:
                _remove_run(self.trial_folder(number))

    @property
    def best(self) -> int:
        """The number of the trial with the highest score; of equal ones the first; -1 if none has a score."""
        trials = enumerate(self.trials)
        scores = [(score, -number) for number, trial in trials if (score := trial.get("score")) is not None]
        return -max(scores)[1] if scores else -1

    @property
    def chosen(self) -> Hyperparameters:
        """The settings of the best trial; TrainingError if no trial has a score."""
        if self.best < 0:
            raise TrainingError(
                f"none of the {self._num_trials} trials has a score on dev",
                hint="Lower the learning rates: `--set learning_rate=...` with a new --out folder.",
            )
        return self._settings_of(self.trials[self.best])

    def describe(self, settings: Hyperparameters) -> str:
        return ", ".join(f"{name} {getattr(settings, name):.3g}" for name in self._ranges)

    def trial_folder(self, number: int) -> Path:
        return self.folder / f"trial-{number}"

    def _settings_of(self, trial: Trial) -> Hyperparameters:
        settings = self._settings.replace(**trial["settings"])
        if self._fits_patience and "epochs" in trial["settings"]:
            return settings.replace(patience=fitted_patience(settings.epochs))
        return settings

    def _suggest(self, finished: list[Trial]) -> dict[str, Any]:
        if not finished:
            return self._first
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        # A sampler for each trial: its random state is not stored.
        sampler = optuna.samplers.TPESampler(seed=self._seed + len(finished), n_startup_trials=_RANDOM_TRIALS)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for trial in finished:
            score = trial.get("score")
            value = _DIVERGED if score is None else score
            study.add_trial(
                optuna.trial.create_trial(params=trial["settings"], distributions=self._ranges, value=value)
            )
        return dict(study.ask(self._ranges).params)

    def _write(self) -> None:
        self.folder.mkdir(exist_ok=True)
        write_json(self._file, {"trials": self.trials})


def _remove_run(folder: Path) -> None:
    """Remove a run, but not what trackers wrote: W&B may have yet to upload it."""
    for item in folder.glob("*"):
        if item.name in TRACKER_FOLDERS:
            continue
        if item.is_dir():
            shutil.rmtree(item, ignore_errors=True)
        else:
            item.unlink()
    with contextlib.suppress(OSError):  # It is not empty.
        folder.rmdir()
