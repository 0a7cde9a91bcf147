"""The training step in fp32, dropout off, on documents of natural length."""

from benchmarks import contest
from benchmarks.contest import Case
from benchmarks.goals import FLAG, FLAG_GROUPED, GROUPED, HF, TRAINER
from benchmarks.report import Report
from benchmarks.settings import Settings
from benchmarks.shapes import chosen

PEERS = (HF, GROUPED, TRAINER, FLAG, FLAG_GROUPED)


def run(settings: Settings) -> Report:
    """Compare every size with transformers' step, tuned and untuned, and with `Trainer`."""
    outcomes = [contest.hold(Case(shape=shape, peers=PEERS), settings) for shape in chosen(settings)]
    return contest.report("natural", outcomes, [contest.PADDING_NOTE, contest.GROUPED_NOTE, contest.TRAINER_NOTE])
