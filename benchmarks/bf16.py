"""The step in bfloat16 (autocast, fp32 weights) on documents of natural length, dropout off, against the peer's own."""

from benchmarks import contest
from benchmarks.contest import Case
from benchmarks.goals import BF16, HF
from benchmarks.machine import has_bf16
from benchmarks.report import Report
from benchmarks.settings import Settings
from benchmarks.shapes import chosen

LOSS = 2e-3
"""Share of the loss by which one batch may differ: the rounding of bfloat16 (8 bits) through twelve layers."""

GRADIENT = 0.1
"""Share of a weight's largest gradient by which any entry may differ, both sides in bfloat16: twice the most that was
seen in four models (.048, the bias of the head's LayerNorm in tiny). Loose: it tells a wrong gradient, not a rough one;
how far training drifts is measured by `trajectory`."""


def run(settings: Settings) -> Report:
    """Compare every size in bfloat16; gradients are checked loosely (`GRADIENT`)."""
    if not has_bf16():
        return Report(tables=(), notes=("This processor does not multiply bfloat16 matrices by itself.",))
    outcomes = [contest.hold(Case(shape=shape, peers=(HF, BF16), bf16=True), settings) for shape in chosen(settings)]
    return contest.report("bf16", outcomes, [contest.PADDING_NOTE], loss=LOSS, gradient=GRADIENT)
