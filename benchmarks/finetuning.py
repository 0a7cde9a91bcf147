"""Fine-tuning and scoring, fp32, against transformers' `Trainer` as its users write it.

Both sides begin with the same weights, learn from the same sequences in batches of 32, with the same rate, schedule,
optimizer, clipping and dropout, and are timed in turns in one process. What is measured of the peer is what
`Trainer.train` and `Trainer.predict` take; of ours, the loop of `maskwright finetune` and its scoring. Reading and
tokenizing, which are done once, and the search for answers in the scores are left out on both sides.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.goals import OWN, TRAINER, TRAINER_FLAG_GROUPED, TRAINER_GROUPED, goal
from benchmarks.labelled import NAMES, Name, Prepared, labelled_set, prepare, spread
from benchmarks.report import Check, Report, Table
from benchmarks.settings import Settings
from benchmarks.shapes import BASE, SMALL, TINY, Shape, chosen
from benchmarks.timing import Side, Spread, interleave, ratios, speeds
from benchmarks.tuning_sides import OwnTuning, TrainerTuning, settings_of

LEARNING_RATE = 5e-5
LOSS_APART = 2e-6
SCORES_APART = 1e-4
_ROUNDS = 5
_POOL = 8
_COLUMNS = ("model", "set", "work", "side", "examples/s", "fill", "faster than Trainer by", "goal")
_SIZES: dict[tuple[str, Name], tuple[int, int]] = {
    # (model, set): sequences learnt from and scored in a timed pass. Whole batches of 32.
    ("tiny", "SST-2"): (960, 872),
    ("tiny", "SQuAD"): (128, 128),
    ("small", "SST-2"): (480, 480),
    ("small", "SQuAD"): (64, 64),
    ("base", "SST-2"): (128, 128),
    ("base", "SQuAD"): (32, 32),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """What one set on one model gave: seconds of each round by work and side, and how far the sides were apart."""

    shape: Shape
    prepared: Prepared
    seconds: dict[str, dict[str, list[float]]]
    counts: dict[str, int]
    fill: dict[str, dict[str, float]]
    loss: float
    scores: float


def run(settings: Settings) -> Report:
    """Measure SST-2 and SQuAD on each model."""
    # Base is measured where it is asked for: its round of SQuAD takes two minutes.
    shapes = chosen(settings, (TINY, SMALL, BASE) if "base" in settings.sizes else (TINY, SMALL))
    if settings.model is not None:
        shapes = shapes[:1]
    outcomes = [_hold(shape, name, settings) for shape in shapes for name in NAMES]
    made = any(outcome.prepared.labelled.made for outcome in outcomes)
    return Report(
        tables=(
            Table(
                title="",
                columns=_COLUMNS,
                rows=tuple(line for outcome in outcomes for line in _lines(outcome, settings)),
                words=(0, 1, 2, 3),
            ),
        ),
        measurements=tuple(each for outcome in outcomes for each in _measurements(outcome)),
        checks=tuple(check for outcome in outcomes for check in _checks(outcome)),
        notes=(
            "Made texts, as long as SST-2's training phrases and SQuAD's paragraphs are in tokens."
            if made
            else "The published texts of SST-2 and SQuAD 1.1, a part of each.",
            "Trainer: SST-2 padded to the longest of a batch, SQuAD to 384 tokens, as in transformers' example "
            "scripts. Grouped: train_sampling_strategy='group_by_length' and padding to the longest, in both works.",
            "Dropout 0.1 on both sides; losses and scores are compared with dropout off, sequence by sequence.",
        ),
    )


def _sizes(shape: Shape, name: Name, settings: Settings) -> tuple[int, int]:
    return (64, 32) if settings.quick else _SIZES[shape.name, name]


def _hold(shape: Shape, name: Name, settings: Settings) -> _Outcome:
    """Set both sides up with the same weights, compare what they compute, and time them in turns."""
    count, scored = _sizes(shape, name, settings)
    # More than is timed, so that the vocabulary learnt on the texts is not one of a few paragraphs.
    labelled = labelled_set(name, settings, train=_POOL * count, dev=_POOL * scored)
    prepared = prepare(labelled, shape, settings)
    train, dev = spread(prepared.train, count), spread(prepared.scored, scored)
    own, peer = OwnTuning(prepared), TrainerTuning(prepared, settings.scratch)
    some = spread(train, 32)
    with own.around():
        loss = own.loss(some) / peer.loss(some) - 1
        ours = own.score(some)
    apart = _apart(ours, peer.score(some))
    asked = settings_of(prepared, learning_rate=LEARNING_RATE)
    training = [
        Side(TRAINER, lambda: peer.train(train, asked)),
        Side(TRAINER_GROUPED, lambda: peer.train(train, asked, sampling="group_by_length")),
        Side(TRAINER_FLAG_GROUPED, lambda: peer.train(train, asked, sampling="group_by_length"), peers.onednn_flag),
        Side(OWN, lambda: own.train(train, asked), own.around),
    ]
    scoring = [
        Side(TRAINER, _untold(lambda: peer.predict(dev))),
        Side(TRAINER_GROUPED, _untold(lambda: peer.predict(dev, grouped=True))),
        Side(TRAINER_FLAG_GROUPED, _untold(lambda: peer.predict(dev, grouped=True)), peers.onednn_flag),
        Side(OWN, _untold(lambda: own.score(dev)), own.around),
    ]
    rounds = settings.rounds_or(_ROUNDS)
    return _Outcome(
        shape=shape,
        prepared=prepared,
        seconds={"training": interleave(training, rounds), "scoring": interleave(scoring, rounds)},
        counts={"training": train.num_units, "scoring": dev.num_units},
        fill={
            "training": {TRAINER: peer.fill(train), OWN: own.fill(train)},
            "scoring": {TRAINER: peer.fill(dev), OWN: own.fill(dev, scoring=True)},
        },
        loss=loss,
        scores=apart,
    )


def _untold(work: Callable[[], object]) -> Callable[[], None]:
    """Make of a call that returns something one that is timed from outside."""

    def run() -> None:
        work()

    return run


def _apart(ours: Sequence[Any], theirs: Sequence[Any]) -> float:
    """Return the largest difference of any score, as a share of the largest score."""
    largest = max(float(np.abs(scores).max()) for scores in theirs)
    return max(float(np.abs(own - their).max()) for own, their in zip(ours, theirs, strict=True)) / largest


def _speed(outcome: _Outcome, work: str, side: str) -> list[float]:
    return speeds(outcome.seconds[work][side], outcome.counts[work])


def _lines(outcome: _Outcome, settings: Settings) -> list[tuple[str, ...]]:
    name = outcome.prepared.labelled.name
    told = outcome.shape.told() if settings.model is None else settings.model.name
    lines = list[tuple[str, ...]]()
    for work, sides in outcome.seconds.items():
        for place, side in enumerate(sides):
            first = not lines
            ratio = ratios(_speed(outcome, work, OWN), _speed(outcome, work, side)).told()
            fill = outcome.fill[work].get(side)
            lines.append(
                (
                    told if first else "",
                    name if first else "",
                    work if place == 0 else "",
                    side,
                    Spread.of(_speed(outcome, work, side)).told(),
                    "" if fill is None else f"{fill:.2f}",
                    "" if side == OWN else ratio,
                    goal("finetuning", f"{name}, {work}", side),
                )
            )
    return lines


def _measurements(outcome: _Outcome) -> list[dict[str, Any]]:
    return [
        {
            "model": outcome.shape.name,
            "set": outcome.prepared.labelled.name,
            "made": outcome.prepared.labelled.made,
            "work": work,
            "side": side,
            "seconds": seconds,
            "examples": outcome.counts[work],
            "ratio": ratios(_speed(outcome, work, OWN), _speed(outcome, work, side)).median,
        }
        for work, sides in outcome.seconds.items()
        for side, seconds in sides.items()
    ]


def _checks(outcome: _Outcome) -> list[Check]:
    name = f"{outcome.shape.name}, {outcome.prepared.labelled.name}"
    return [
        Check(
            f"{name}: losses apart",
            f"{outcome.loss:+.1e}",
            f"{LOSS_APART:.0e}",
            abs(outcome.loss) <= LOSS_APART,
        ),
        Check(
            f"{name}: scores apart",
            f"{outcome.scores:.1e}",
            f"{SCORES_APART:.0e}",
            outcome.scores <= SCORES_APART,
        ),
    ]
