"""The same step with dropout 0.1 everywhere, as the papers train."""

from benchmarks import contest
from benchmarks.contest import Case
from benchmarks.goals import FLAG, HF
from benchmarks.report import Report
from benchmarks.settings import Settings
from benchmarks.shapes import BASE, SMALL, TINY, chosen


def run(settings: Settings) -> Report:
    """Compare tiny, small and base with dropout on both sides."""
    shapes = chosen(settings, (TINY, SMALL, BASE))
    outcomes = [contest.hold(Case(shape=shape, peers=(HF, FLAG), dropout=0.1), settings) for shape in shapes]
    return contest.report("dropout", outcomes, [contest.PADDING_NOTE, contest.DROPOUT_NOTE])
