"""Whether both sides of the row `finetuning` end with equally good models: the same seeds, mean and standard deviation.

Each seed begins with a new head on the same model, on both sides the same one; orders and dropout masks differ between
the sides, as between any two seeds. Answers are found in the scores by the same code.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.goals import OWN, TRAINER
from benchmarks.labelled import NAMES, Name, Prepared, labelled_set, prepare
from benchmarks.progress import tell
from benchmarks.report import Check, Report, Table
from benchmarks.settings import Settings
from benchmarks.shapes import TINY, Shape, chosen
from benchmarks.tuning_sides import OwnTuning, TrainerTuning, settings_of
from maskwright.finetuning.tasks.base import Scores

_SEEDS = 5
_SIZES: dict[Name, tuple[int, int]] = {"SST-2": (2000, 872), "SQuAD": (400, 300)}
_EPOCHS = 3.0
_LEARNING_RATE = 5e-4
"""What `finetune` fits to a model of width 256 that saw few tokens."""
_NOISE = 3.0
"""Standard errors that the means may be apart; with five seeds a side, one equal pair in sixty is further apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A set's main metric, seed by seed, by side."""

    name: Name
    metric: str
    made: bool
    values: dict[str, list[float]]


def run(settings: Settings) -> Report:
    """Fine-tune five seeds on both sides; `--rounds` sets another number."""
    (shape, *_) = chosen(settings, (TINY,)) or [TINY]
    found = [_both(shape, name, settings) for name in NAMES]
    return Report(
        tables=(
            Table(
                title="",
                columns=("set", "metric", "side", "seeds", "mean", "standard deviation", "each"),
                rows=tuple(line for each in found for line in _lines(each)),
                words=(0, 1, 2),
            ),
        ),
        measurements=tuple(
            {"set": each.name, "metric": each.metric, "made": each.made, "side": side, "values": values}
            for each in found
            for side, values in each.values.items()
        ),
        checks=tuple(_check(each) for each in found),
        notes=(
            f"{_EPOCHS:g} epochs, rate {_LEARNING_RATE:g}, batches of 32, dropout 0.1; "
            + ("made examples" if any(each.made for each in found) else "a part of the published examples")
            + (", drawn weights." if settings.model is None else f", from {settings.model.name}."),
        ),
    )


def _both(shape: Shape, name: Name, settings: Settings) -> _Found:
    train, dev = (64, 32) if settings.quick else _SIZES[name]
    labelled = labelled_set(name, settings, train=train, dev=dev)
    values: dict[str, list[float]] = {TRAINER: [], OWN: []}
    metric = ""
    seeds = settings.rounds_or(_SEEDS)
    for seed in range(seeds):
        tell(f"  {name}: seed {seed + 1} of {seeds}")
        prepared = prepare(labelled, shape, settings, seed)
        asked = settings_of(prepared, learning_rate=_LEARNING_RATE, epochs=_EPOCHS)
        own, peer = OwnTuning(prepared), TrainerTuning(prepared, settings.scratch)
        peer.train(prepared.train, asked, seed)
        metric, score = _measured(prepared, peer.score(prepared.scored))
        values[TRAINER].append(score)
        with own.around():
            own.train(prepared.train, asked, seed)
            values[OWN].append(_measured(prepared, own.score(prepared.scored))[1])
    tell("")
    return _Found(name=name, metric=metric, made=labelled.made, values=values)


def _measured(prepared: Prepared, scores: Sequence[Scores]) -> tuple[str, float]:
    labelled = prepared.labelled
    predictions = labelled.task.predictions(scores, prepared.scored, labelled.dev, prepared.tokenizer)
    return next(iter(labelled.task.measure(predictions, labelled.dev).items()))


def _lines(found: _Found) -> list[tuple[str, ...]]:
    digits = 2 if found.name == "SQuAD" else 4
    return [
        (
            found.name if place == 0 else "",
            found.metric if place == 0 else "",
            side,
            str(len(values)),
            f"{statistics.fmean(values):.{digits}f}",
            f"{statistics.stdev(values):.{digits}f}" if len(values) > 1 else "",
            ", ".join(f"{value:.{digits}f}" for value in values),
        )
        for place, (side, values) in enumerate(found.values.items())
    ]


def _check(found: _Found) -> Check:
    ours, theirs = found.values[OWN], found.values[TRAINER]
    apart = statistics.fmean(ours) - statistics.fmean(theirs)
    if len(ours) < 2:
        return Check(f"{found.name}: means apart", f"{apart:+.3g}", "told of one seed only", True)
    error = math.sqrt(statistics.variance(ours) / len(ours) + statistics.variance(theirs) / len(theirs))
    return Check(
        f"{found.name}: means apart", f"{apart:+.3g}", f"{_NOISE:g} standard errors ({_NOISE * error:.3g})",
        abs(apart) <= _NOISE * error,
    )  # fmt: skip
