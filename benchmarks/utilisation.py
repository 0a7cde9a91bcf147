"""The share of this machine's own matrix-product peak that training uses: useful operations only, filler not counted.

The peak is the fastest exact fp32 product that the machine can do (the better of both libraries), measured between the
passes; the best of all these measurements is the denominator.
"""

from typing import Any

from benchmarks.goals import OWN, goal
from benchmarks.machine import fp32_peak
from benchmarks.own import OwnStep
from benchmarks.report import Report, Table
from benchmarks.settings import Settings
from benchmarks.shapes import SHAPES, Shape, chosen
from benchmarks.timing import Side, Spread, number
from benchmarks.turns import MET_NOTE, Turns, filled, real_tokens
from benchmarks.workloads import Source, mlm_recipe, text_for
from maskwright.training.probe import probe_matmul


def run(settings: Settings) -> Report:
    """Measure every size on documents of natural length and on whole blocks, fp32, dropout off."""
    rows, measurements = [], []
    for shape in chosen(settings, SHAPES):
        for blocks in (False, True):
            found = _measure(shape, blocks, settings)
            measurements.append(found)
            rounds = list(zip(found["seconds"], found["tokens"], found["flops"], strict=True))
            shares = Spread.of([flops / took / found["peak"] for took, _, flops in rounds])
            rows.append(
                (
                    shape.told() if not blocks else "",
                    "blocks" if blocks else "natural",
                    Spread.of([tokens / took for took, tokens, _ in rounds]).told(),
                    number(sum(found["flops"]) / sum(found["tokens"]) / 1e6),
                    number(found["peak"] / 1e9),
                    f"{shares.median:.1%} ({shares.low:.1%}-{shares.high:.1%})",
                    "" if blocks else goal("utilisation", shape.name, "peak"),
                    f"{found['fill']:.2f}",
                )
            )
    columns = ("model", "texts", "tokens/s", "MFLOP a token", "peak, GFLOP/s", "of the peak", "goal", "fill")
    return Report(
        tables=(Table(title="", columns=columns, rows=tuple(rows), words=(0, 1)),),
        measurements=tuple(measurements),
        notes=(
            "Operations are those of encoder/sizes.py and the heads at their targets, times real tokens; "
            "what the last layer leaves out of tokens that nobody reads is not counted.",
            MET_NOTE,
        ),
    )


def _measure(shape: Shape, blocks: bool, settings: Settings) -> dict[str, Any]:
    batch = shape.blocks if blocks else shape.documents
    text = text_for(shape, settings, blocks=blocks)
    source = Source(mlm_recipe(shape, dropout=0.0, batch=batch), text)
    rounds = settings.rounds_or(shape.rounds)
    turns = Turns.of(rounds)
    steps = source.typical_steps(shape.steps * turns.lots, settings.seed)
    timed = turns.dealt(steps)
    own, peaks = OwnStep(source.recipe, text, seed=settings.seed), list[float]()

    def probe() -> None:
        peaks.append(fp32_peak(probe_matmul(seconds=0.0 if settings.quick else 0.5)))

    sides = [Side(OWN, turns.each(timed, own.take), own.around), Side("peak", probe)]
    seconds = turns.timed(sides)
    return {
        "model": shape.name,
        "texts": "blocks" if blocks else "natural",
        "seconds": seconds[OWN],
        "tokens": turns.counted(timed, real_tokens),
        "fill": filled(steps),
        "flops": turns.counted(timed, own.flops),
        "peak": max(peaks),
    }
