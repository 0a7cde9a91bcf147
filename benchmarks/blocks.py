"""Whole blocks of 128 tokens, dropout 0.1: nobody pads, so this is the engine alone."""

from benchmarks import contest
from benchmarks.contest import Case
from benchmarks.goals import FLAG, HF
from benchmarks.report import Report
from benchmarks.settings import Settings
from benchmarks.shapes import BASE, SMALL, TINY, chosen


def run(settings: Settings) -> Report:
    """Compare tiny, small and base on full sequences."""
    shapes = chosen(settings, (TINY, SMALL, BASE))
    cases = [Case(shape=shape, peers=(HF, FLAG), dropout=0.1, blocks=True) for shape in shapes]
    return contest.report("blocks", [contest.hold(case, settings) for case in cases], [contest.DROPOUT_NOTE])
