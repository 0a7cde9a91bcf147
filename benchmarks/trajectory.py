"""Whether training goes the same way: 200 steps from the same weights on the same batches, loss by loss.

fp32 is compared with transformers in fp32 and, for scale, with transformers through oneDNN; bf16 with our own fp32.
"""

import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import torch

from benchmarks import peers
from benchmarks.goals import FLAG, GOALS, HF, OWN, OWN_BF16
from benchmarks.machine import has_bf16
from benchmarks.own import LEARNING_RATE, OwnStep
from benchmarks.report import Check, Curve, Report, Table
from benchmarks.settings import Settings
from benchmarks.shapes import SHAPES, TINY, Shape, chosen
from benchmarks.workloads import Source, examples_of, mlm_recipe, text_for

Batch = TypeVar("Batch")

STEPS, LAST = 200, 20
PEAK_RATE = 5 * LEARNING_RATE
FP32_APART = 1e-4
"""Nats; training multiplies rounding errors, so this is far above the 2e-6 of a single step."""


def run(settings: Settings) -> Report:
    """Train tiny (or the sizes asked for) four times, dropout off."""
    shapes = chosen(settings, SHAPES if settings.sizes else (TINY,))
    rows, checks, curves, measurements = [], list[Check](), [], []
    for shape in shapes:
        losses = _trajectories(shape, settings)
        last = {name: statistics.fmean(each[-LAST:]) for name, each in losses.items()}
        for name in losses:
            reference = OWN if name == OWN_BF16 else HF
            apart = max(abs(mine - theirs) for mine, theirs in zip(losses[name], losses[reference], strict=True))
            is_first = name == HF
            rows.append(
                (
                    shape.told() if is_first else "",
                    name,
                    f"{last[name]:.4f}",
                    "" if is_first else reference,
                    "" if is_first else f"{last[name] - last[reference]:+.1e}",
                    "" if is_first else f"{apart:.1e}",
                )
            )
        checks += _checks(shape.name, losses, last)
        curves.append(
            Curve(
                name=f"trajectory-{shape.name}",
                title=f"Loss over {len(losses[HF])} steps, {shape.told()}",
                x="step",
                y="loss, nats",
                series={name: tuple(enumerate(each, start=1)) for name, each in losses.items()},
            )
        )
        measurements.append({"model": shape.name, "losses": losses})
    columns = ("model", "side", f"loss, last {LAST} steps", "against", "apart there", "farthest apart")
    return Report(
        tables=(Table(title="", columns=columns, rows=tuple(rows), words=(0, 1, 3)),),
        measurements=tuple(measurements),
        checks=tuple(checks),
        curves=tuple(curves),
        notes=("Made texts follow frequencies only; with --corpus FILE the loss falls as it does on that text.",),
    )


def _trajectories(shape: Shape, settings: Settings) -> dict[str, list[float]]:
    count = 6 if settings.quick else STEPS
    text = text_for(shape, settings, count=max(4096, count * shape.documents))
    source = Source(mlm_recipe(shape, dropout=0.0, batch=shape.documents), text)
    steps = source.steps(count, seed=settings.seed)
    padded = [peers.padded(texts) for texts in examples_of(steps)]
    own = OwnStep(source.recipe, text, seed=settings.seed)
    folder = settings.scratch / "start"
    own.save(folder)
    with peers.onednn_flag():
        flagged = _train(_peer(folder), padded)
    found = {HF: _train(_peer(folder), padded), FLAG: flagged}
    shutil.rmtree(folder)
    with own.around():
        found[OWN] = _train(own.step, steps)
        if has_bf16():
            half = OwnStep(source.recipe, text, seed=settings.seed, autocast=torch.bfloat16)
            found[OWN_BF16] = _train(half.step, steps)
    return found


def _peer(folder: Path) -> Callable[[peers.Batch, float], float]:
    return peers.HuggingFaceStep(peers.load(folder)).step


def _train(step: Callable[[Batch, float], float], batches: Sequence[Batch]) -> list[float]:
    """Take all steps with a linear warm-up over a tenth and a linear decay; return the losses."""
    warm = max(1, len(batches) // 10)
    rates = [
        PEAK_RATE * min((number + 1) / warm, (len(batches) - number) / max(1, len(batches) - warm))
        for number in range(len(batches))
    ]
    return [step(batch, rate) for batch, rate in zip(batches, rates, strict=True)]


def _checks(model: str, losses: Mapping[str, list[float]], last: Mapping[str, float]) -> list[Check]:
    fp32 = abs(last[OWN] - last[HF])
    checks = [
        Check(
            f"{model}: {OWN} against {HF} after {len(losses[OWN])} steps",
            f"{fp32:.1e}",
            f"{FP32_APART:.0e}",
            fp32 <= FP32_APART,
        )
    ]
    if OWN_BF16 in last:
        half, allowed = abs(last[OWN_BF16] - last[OWN]), GOALS["trajectory", "fp32"]["bf16"]
        of = f"{model}: bf16 against fp32 after {len(losses[OWN])} steps"
        checks.append(Check(of, f"{half:.1e}", f"{allowed:g}", half <= allowed))
    return checks
