"""`compare --tune-rate`: try multiples of each recipe's fitted learning rate, on a seed that is not compared."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from maskwright.core.errors import RecipeError, TrainingError
from maskwright.core.storage.checksums import read_record, record_problem, write_record
from maskwright.fitting.budget import Budget
from maskwright.fitting.rules import round_digits
from maskwright.recipes.catalog import resolve
from maskwright.reporting.metrics import read_rows
from maskwright.study.experiment import MASKED, Experiment, flops_per_token
from maskwright.study.request import TUNING_SEED, Variant
from maskwright.study.text import StudyText
from maskwright.training.ranks.distributed import on_rank_zero

_RATE = "training.learning_rate"
FACTORS = (1.0, 0.5, 2.0)
"""Of the fitted learning rate, as they are tried."""
MIN_GAIN = 0.01
"""Share by which a loss must be lower than that of the fitted rate. Its standard deviation between seeds is 0.1 to
0.5 % (docs/studies/english-mini: 0.010 to 0.036 of 7.3 to 8.4 nats)."""


def best_factor(losses: Mapping[float, float | None]) -> float | None:
    """Return the factor with the lowest finite loss; 1 where none is lower by `MIN_GAIN`, None if no loss is finite."""
    finite = {factor: loss for factor, loss in losses.items() if loss is not None and math.isfinite(loss)}
    best = min(finite, key=lambda factor: finite[factor], default=None)
    if best is not None and 1.0 in finite and finite[best] > (1 - MIN_GAIN) * finite[1.0]:
        return 1.0
    return best


@dataclass(frozen=True, slots=True)
class RateTuning:
    """The trials of learning rates of a study."""

    experiment: Experiment
    budget: Budget

    def trials(self, variant: Variant) -> list[Variant]:
        """Return the trials of a recipe: the fitted rate first, from whose run the others take their rate."""
        trials = {factor: replace(variant, label=f"{variant.label} rate x{factor:g}") for factor in FACTORS}
        fitted = trials[1.0].run_folder(self.experiment.folder, TUNING_SEED) / "recipe.json"
        if fitted.is_file():
            rate = resolve(str(fitted)).training.learning_rate
            for factor in FACTORS[1:]:
                trials[factor] = trials[factor].with_override(f"{_RATE}={round_digits(rate * factor, 3)!r}")
        return list(trials.values())

    def file(self, variant: Variant) -> Path:
        return self.experiment.folder / "measurements" / variant.folder / "rates.json"

    def tuned(self, variant: Variant) -> Variant:
        """Return a recipe with its best learning rate, if that is known and not the fitted one."""
        file = self.file(variant)
        if not file.is_file() or record_problem(file):
            return variant
        tried = read_record(file)
        if tried["best"] == 1.0:
            return variant
        return variant.with_override(f"{_RATE}={tried['rates'][str(tried['best'])]['rate']!r}")

    def tune(self, variant: Variant, text: StudyText) -> None:
        """Train a recipe at each rate, unless that has been done, and write which is best.

        That is the rate with the least held-out loss of the recipe's own objectives, on text of the run that is not the
        study's held-out text. Raises StoppedError if the user stopped a run.
        """
        file = self.file(variant)
        if on_rank_zero(lambda: file.is_file() and not record_problem(file)):
            return
        tried: dict[float, dict[str, Any]] = {}
        for number, factor in enumerate(FACTORS):
            trial = self.trials(variant)[number]  # Anew, since the first run has the fitted rate.
            self.experiment.reporter.message("rates", f"{trial.label}: {number + 1} of {len(FACTORS)}")
            tried[factor] = self._try(trial, text)
        best = best_factor({factor: result["loss"] for factor, result in tried.items()})
        if best is None:
            raise RecipeError(
                f"no rate of {variant.label} has a held-out loss to choose by",
                hint="Give more text, or a lower `--set training.learning_rate=`; or leave --tune-rate out.",
            )
        rates = {str(factor): result for factor, result in tried.items()}
        on_rank_zero(partial(write_record, file, {"best": best, "rates": rates}))

    def _try(self, trial: Variant, text: StudyText) -> dict[str, Any]:
        """Train and measure one trial. The FLOPs of one that diverged are estimated from the tokens in its log."""
        folder = trial.run_folder(self.experiment.folder, TUNING_SEED)
        loss: float | None = None
        metrics: dict[str, float] = {}
        try:
            outcome = self.experiment.train_and_measure(trial, TUNING_SEED, self.budget, text, (MASKED,))
        except TrainingError as error:  # It has diverged.
            self.experiment.reporter.message("warning", f"{trial.label}: {error}")
            tokens = max((row.get("tokens", 0) for row in read_rows(folder / "metrics.jsonl")), default=0)
            flops = tokens * flops_per_token(resolve(str(folder)))
        else:
            run, flops = outcome.run, outcome.run.flops
            weights: dict[str, float] = {each.kind: each.weight for each in trial.recipe.objectives}
            if run.held_out:
                loss = sum(weights[kind] * each.loss for kind, each in run.held_out.items())
            for name in ("word_loss", "word_accuracy"):
                if name in outcome.metrics:
                    metrics[name] = outcome.metrics[name]["value"]
        return {"rate": resolve(str(folder)).training.learning_rate, "loss": loss, "flops": flops, **metrics}
