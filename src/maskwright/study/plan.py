"""`maskwright.plan`: what fits a budget of time on this machine, and the held-out loss to expect.

A few short runs of each recipe, made and measured as in `study.compare`, give the power law

    L(D) = B (D / D_max)^-beta

of the loss per masked word over the tokens D, at a fixed model, as Kaplan et al. 2020; D_max is the longest run's.
Hoffmann et al. 2022 (equation 2) add a constant, which four short runs do not determine: it took up most of the gains
to come, so predictions were too high (docs/plan.md). It bounds the interval from above only.
"""

import math
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import optimize, stats

from maskwright.core.errors import RecipeError
from maskwright.core.text.amounts import pluralize, size_in_bytes
from maskwright.data.engines import Engine, check_workers, use_engine
from maskwright.fitting.budget import Budget
from maskwright.recipes.recipe import Recipe
from maskwright.recipes.sizing import sizes
from maskwright.reporting.console import ConsoleReporter
from maskwright.reporting.reporter import Reporter
from maskwright.study.experiment import MASKED, Experiment, StoppedError, fit_variant
from maskwright.study.record import StudyRecord
from maskwright.study.request import Variant, variants_of
from maskwright.study.statistics import Floats
from maskwright.study.text import StudyText
from maskwright.training.doctor import read_hardware
from maskwright.training.ranks.device import Machine, Precision, prepare_machine, pretraining_microbatch, use_machine
from maskwright.training.start.speed import measure_speed

DEFAULT_RECIPES = ("maskwright/tiny", "maskwright/mini", "maskwright/small")
TRIAL_MINUTES = 4.0
TRIAL_SHARES = (1 / 15, 2 / 15, 4 / 15, 8 / 15)
"""Lengths of a recipe's trial runs, as shares of its trial time."""
MIN_STEPS = 500
"""With fewer steps, the warmup (10 %) is shorter than the 50 steps over which second moments are averaged."""
MAX_EPOCHS = 40
"""Muennighoff et al. 2023: 4 epochs are as good as new text, and the value of more decays to zero."""
MAX_EXTRAPOLATION = 10
"""Times the longest trial; beyond them a prediction is noted as a guess."""
CONFIDENCE = 0.95
MIN_NOISE = 0.01
"""Least standard deviation of a loss between seeds, as a share of it: four points say little about it."""
_LARGEST_GROWTH = 2.0
"""Most that the last doubling of the tokens may gain, as a multiple of the best earlier one."""
_LONGER_AFTER_PLATEAU = 4
"""Times as long trials as those that stayed on the plateau: three of five tiny models did with 0.5 M tokens, none with
2 M (LOG.md)."""
_BYTES_PER_TOKEN = 4
"""Of the text, before it is tokenized."""
_ACTIVATION_BYTES = {"fp32": 60, "bf16": 36}
"""Bytes kept for the backward pass, per token, layer and unit of hidden size (LOG.md, "memory of a layer on a CPU")."""
_STEEPEST, _ON_LINE, _NARROWER = 1.0, 3, 2 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRecipe:
    """Training of a recipe under the budget, as predicted.

    Attributes:
        tokens, steps, epochs: What fits.
        flops_per_second: Measured in a training loop.
        memory: Bytes: weights, gradients, moments, and an estimate of activations.
        trials: Tokens and loss of the short runs.
        loss, low, high: Expected nats per masked word and its prediction interval; None if there is no prediction.
        by: "head" or "generator": what predicted the masked words.
        refused: Why the recipe is hopeless, or "".
        note: Why there is no prediction, or why it is a guess, or "".
    """

    recipe: str
    tokens: float
    steps: int
    epochs: float
    flops_per_second: float
    memory: int
    trials: tuple[tuple[float, float], ...] = ()
    loss: float | None = None
    low: float | None = None
    high: float | None = None
    by: str = ""
    refused: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The recipes under a budget, the one to train (None without a prediction), and why."""

    seconds: float
    recipes: tuple[PlannedRecipe, ...]
    recommended: str | None
    reason: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def plan(
    corpus: str | Path | Sequence[str | Path],
    recipes: Sequence[str | Recipe] = DEFAULT_RECIPES,
    *,
    hours: float | None = None,
    minutes: float | None = None,
    trial_minutes: float = TRIAL_MINUTES,
    set: Sequence[str] = (),
    clean: Sequence[str] = (),
    device: str = "auto",
    precision: Precision = "auto",
    workers: int | None = None,
    engine: Engine | None = None,
    cache: str | Path | None = None,
    reporter: Reporter | None = None,
) -> Plan:
    """Say what fits a budget of time: tokens, epochs, memory and expected loss of each recipe.

    Args:
        corpus, clean, device, precision, workers, engine, cache, reporter: As for `pretrain`.
        recipes, set: As for `compare`.
        hours: Hours of a run. Give one budget.
        minutes: Minutes of a run.
        trial_minutes: Training time of all short runs together, in minutes.

    Raises:
        MaskwrightError: If an argument is invalid.
    """
    check_workers(workers)
    budget = Budget.of(hours=hours, minutes=minutes)
    if budget is None:
        raise RecipeError("no budget was given", hint="Give the time of a run: --hours or --minutes.")
    if not trial_minutes > 0:
        raise RecipeError(f"--trial-minutes is {trial_minutes:g}", allowed="more than 0")
    variants = variants_of(recipes, {}, set)
    sources = (str(corpus),) if isinstance(corpus, str | Path) else tuple(map(str, corpus))
    cached = None if cache is None else Path(cache).expanduser()
    with (
        use_engine(engine),
        reporter or ConsoleReporter() as reporter,
        tempfile.TemporaryDirectory(prefix="maskwright-plan-") as temporary,
    ):
        folder = Path(temporary)
        experiment = Experiment(
            record=StudyRecord(folder, {"format": 1}),
            vocabulary_tokens=0.0,  # Known after the speeds.
            clean=tuple(clean),
            options={"device": device, "precision": precision},
            prepare={"cache": cached, "workers": workers},
            reporter=reporter,
        )
        text = experiment.prepare_text(sources)
        corpus_tokens = sum(path.stat().st_size for path in (folder / "text" / "train").iterdir()) / _BYTES_PER_TOKEN
        machine = prepare_machine(device, cache=cached, precision=precision)
        reporter.message("speed", f"measuring the training speed of {pluralize(len(variants), 'recipe')}")
        with use_machine(machine):
            planned = {name: _planned(each, budget, machine, corpus_tokens) for name, each in variants.items()}
        tried = [variant for name, variant in variants.items() if not planned[name].refused]
        if tried:
            runs = f"{len(tried) * len(TRIAL_SHARES)} short runs"
            reporter.message("trials", f"{runs}, about {trial_minutes:g} minutes of training in all")
        experiment.vocabulary_tokens = next((planned[each.label].tokens for each in tried), 0.0)
        stopped = False
        for variant in tried:
            one = planned[variant.label]
            tokens = one.tokens * min(60 * trial_minutes / len(tried) / budget.amount, 1.0)
            try:
                if not stopped:
                    one = _with_trials(one, experiment, variant, tokens, text, trial_minutes)
            except StoppedError:
                stopped = True
            planned[variant.label] = replace(one, note="stopped before its trials were done") if stopped else one
    return recommend(budget.amount, tuple(map(_refuse_if_repeated, planned.values())))


def _planned(variant: Variant, budget: Budget, machine: Machine, corpus_tokens: float) -> PlannedRecipe:
    """Measure a recipe's speed and return what fits; a recipe that does not fit into memory is not measured."""
    recipe = variant.recipe
    memory, available = _memory(recipe, machine)
    if memory > available:
        return PlannedRecipe(
            recipe=variant.label, tokens=0, steps=0, epochs=0, flops_per_second=0, memory=memory,
            refused=f"needs {size_in_bytes(memory)} of memory; {size_in_bytes(available)} available",
        )  # fmt: skip
    # The trials have a budget of tokens, so steps that do not depend on the machine; their curve predicts such a run.
    speed = measure_speed(
        recipe, budget, machine, corpus_tokens=corpus_tokens, fixed=variant.fixed, tries_larger_steps=False
    )
    fitted = fit_variant(variant, budget, speed, corpus_tokens)
    steps, refused = fitted.recipe.training.steps, ""
    if steps < MIN_STEPS:
        refused = f"{steps} steps fit, and with less than {MIN_STEPS} the warmup is too short; choose a smaller size"
    return PlannedRecipe(
        recipe=variant.label,
        tokens=fitted.expected_tokens,
        steps=steps,
        epochs=fitted.expected_tokens / corpus_tokens,
        flops_per_second=speed.flops,
        memory=memory,
        refused=refused,
    )


def _memory(recipe: Recipe, machine: Machine) -> tuple[int, int]:
    """Return the bytes that training needs, and those of the device."""
    encoder = recipe.encoder
    activations = _ACTIVATION_BYTES[machine.precision] * encoder.hidden_size * encoder.num_layers
    needed = sum(sizes(recipe).memory.values()) + activations * pretraining_microbatch(machine, recipe)
    if machine.device.type == "cuda":
        return needed, torch.cuda.get_device_properties(machine.device).total_memory
    return needed, read_hardware().memory


def _with_trials(
    planned: PlannedRecipe,
    experiment: Experiment,
    variant: Variant,
    tokens: float,
    text: StudyText,
    trial_minutes: float,
) -> PlannedRecipe:
    """Add the trials of a recipe, `TRIAL_SHARES` of so many tokens, and the loss to expect.

    Raises StoppedError if the user stopped a run.
    """
    steps = fit_variant(variant, Budget("tokens", TRIAL_SHARES[-1] * tokens)).recipe.training.steps
    if steps < MIN_STEPS:
        # Steps grow with the square root of the tokens.
        enough = math.ceil(trial_minutes * (MIN_STEPS / max(1, steps)) ** 2)
        return replace(planned, note=f"its longest trial would have {steps} steps; --trial-minutes {enough} would do")
    trials, by, epochs = run_trials(experiment, variant, [share * tokens for share in TRIAL_SHARES], text)
    planned = with_prediction(replace(planned, trials=trials, by=by), trial_minutes)
    return replace(planned, epochs=planned.tokens * epochs / trials[-1][0])


def run_trials(
    experiment: Experiment, variant: Variant, tokens: Sequence[float], text: StudyText
) -> tuple[tuple[tuple[float, float], ...], str, float]:
    """Train a recipe for several numbers of tokens and measure each run as `compare` does.

    Return the tokens and the loss per masked word of each run; what predicted ("head" or "generator"); and the epochs
    of the last run. Raises StoppedError if the user stopped a run.
    """
    trials, by, epochs = [], "", 0.0
    for number, amount in enumerate(tokens, 1):
        trial = replace(variant, label=f"{variant.label} trial {number} of {len(tokens)}")
        outcome = experiment.train_and_measure(trial, 0, Budget("tokens", amount), text, (MASKED,))
        measured = outcome.metrics.get("word_loss")
        if measured is None:
            raise RecipeError(f"{variant.label} predicts no masked words, so there is no loss to plan")
        trials.append((float(outcome.run.tokens), float(measured["value"])))
        by, epochs = measured["by"], outcome.run.epochs
    return tuple(trials), by, epochs


def with_prediction(planned: PlannedRecipe, trial_minutes: float = TRIAL_MINUTES) -> PlannedRecipe:
    """Add the loss to expect, if the trials show a trend, and what longer trials would do."""
    tokens, losses = np.array(planned.trials).T
    gains = -np.diff(losses)
    # A doubling of the tokens gains less each time by the law; where it gains far more, the plateau is just ending.
    if losses[0] - losses[-1] < 3 * MIN_NOISE * losses[-1] or gains[-1] > _LARGEST_GROWTH * gains[:-1].max():
        note = "its trials did not get beyond the plateau at the start of training; "
        note += f"try --trial-minutes {_LONGER_AFTER_PLATEAU * trial_minutes:g}"
        return replace(planned, note=note)
    loss, low, high = predict(tokens, losses, planned.tokens)
    times = planned.tokens / tokens.max()
    notes = [f"a guess, {times:.0f} times as long as the longest trial"] if times > MAX_EXTRAPOLATION else []
    if (longer := narrower(tokens, losses, planned.tokens)) is not None:
        minutes, margin = longer[0] * trial_minutes, longer[1]
        notes.append(f"--trial-minutes {minutes:g} would narrow it to about \N{PLUS-MINUS SIGN} {margin:.2f}")
    note = "; ".join(notes)
    return replace(planned, loss=loss, low=low, high=high, note=note)


def predict(tokens: Floats, losses: Floats, target: float, *, longer: float = 1.0) -> tuple[float, float, float]:
    """Extrapolate a loss: the value of the power law and its prediction interval.

    The law L = B (D / D_max)^-beta is a line through the logarithms of the last three trials. The noise about it is
    their residuals' standard deviation, at least `MIN_NOISE`, and the interval is the normal one of a linear
    regression. It reaches up to the law with a constant, E + B (D / D_max)^-beta through all trials, by which gains
    shrink; trials of real text do not show that yet (docs/plan.md).

    `longer` gives the interval as if the trials had been so many times as long, on the same line.
    """
    x, y = np.log(tokens[-_ON_LINE:] / tokens[-1]), np.log(losses[-_ON_LINE:])
    slope, last = np.polyfit(x, y, 1)
    residuals = y - (last + slope * x)
    noise = max(float(np.sqrt((residuals**2).sum() / max(1, len(x) - 2))), MIN_NOISE)
    at = math.log(target / tokens[-1])
    spread = math.sqrt(1 + 1 / len(x) + (at - math.log(longer) - x.mean()) ** 2 / float(((x - x.mean()) ** 2).sum()))
    loss = math.exp(last + slope * at)
    noise *= float(stats.norm.ppf((1 + CONFIDENCE) / 2))
    low, high = loss * math.exp(-noise * spread), loss * math.exp(noise * spread)
    if longer > 1:
        return loss, low, high
    # Twice the variance: the law and one more run.
    return loss, low, max(high, _with_constant(tokens, losses, target) * math.exp(math.sqrt(2) * noise))


def _with_constant(tokens: Floats, losses: Floats, target: float) -> float:
    def curve(x: Floats, irreducible: float, scale: float, exponent: float) -> Floats:
        return irreducible + scale * x**-exponent

    start, bounds = (0.5 * losses.min(), 0.5 * losses.min(), 0.2), ((0.0, 0.0, 0.0), (losses.min(), np.inf, _STEEPEST))
    share = tokens / tokens.max()
    fitted = optimize.least_squares(lambda law: curve(share, *law) - losses, start, bounds=bounds, max_nfev=10_000).x
    return float(curve(np.array([target / tokens.max()]), *fitted)[0])


def narrower(tokens: Floats, losses: Floats, target: float) -> tuple[int, float] | None:
    """Return how many times as long trials narrow the interval to `_NARROWER` of its width, and its half then.

    None if that takes trials as long as the run.
    """

    def half(longer: float) -> float:
        _, low, high = predict(tokens, losses, target, longer=longer)
        return (high - low) / 2

    times, now = 2, half(1 + 1e-9)  # Not the law with a constant, which longer trials would change.
    while times * tokens[-1] < target:
        if half(times) <= _NARROWER * now:
            return times, half(times)
        times *= 2
    return None


def _refuse_if_repeated(planned: PlannedRecipe) -> PlannedRecipe:
    if planned.refused or planned.epochs <= MAX_EPOCHS:
        return planned
    return replace(
        planned,
        refused=f"{planned.epochs:.0f} epochs of the text, more than the limit of {MAX_EPOCHS}; give more "
        "text, or choose a larger size",
    )


def recommend(seconds: float, planned: tuple[PlannedRecipe, ...]) -> Plan:
    """Choose the recipe with the lowest expected loss."""
    predicted = sorted(
        (each for each in planned if each.loss is not None and not each.refused), key=lambda each: each.loss or 0.0
    )
    if not predicted:
        reason = "; ".join(f"{each.recipe}: {each.refused or each.note}" for each in planned)
        return Plan(seconds=seconds, recipes=planned, recommended=None, reason=reason)
    best = predicted[0]
    reason = "the lowest expected loss"
    if equal := [each.recipe for each in predicted[1:] if (each.low or 0.0) <= (best.high or 0.0)]:
        reason += f"; the intervals of {', '.join(equal)} overlap with its own, so a longer trial may decide otherwise"
    return Plan(seconds=seconds, recipes=planned, recommended=best.recipe, reason=reason)
