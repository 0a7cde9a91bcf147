"""Peak memory of a training step, each side in a process of its own, on the same texts and weights.

What counts is what a user sees: the largest resident size of the whole process, the libraries included. Beside it
stands the part that grew after the libraries were imported.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import safetensors.torch

from benchmarks import peers
from benchmarks.goals import FLAG, GOALS, HF, OWN
from benchmarks.machine import own_machine
from benchmarks.own import OwnStep
from benchmarks.progress import tell
from benchmarks.report import Report, Table
from benchmarks.settings import Settings
from benchmarks.shapes import SHAPES, Shape, chosen
from benchmarks.timing import Spread
from benchmarks.workloads import Source, examples_of, mlm_recipe, text_for
from maskwright.core.amounts import size_in_bytes

_ROUNDS, _STEPS = 3, 3


def run(settings: Settings) -> Report:
    """Measure every size on documents of natural length, dropout 0.1, fp32."""
    wanted = GOALS["memory", HF]["peak"]
    rows, measurements = [], []
    for shape in chosen(settings, SHAPES):
        peaks = _peaks(shape, settings)
        (hf, hf_own), (flag, flag_own), (own, own_own) = (
            tuple(Spread.of([each[part] for each in peaks[name]]).median for part in ("peak", "grown"))
            for name in (HF, FLAG, OWN)
        )
        rows += [
            (shape.told(), HF, size_in_bytes(hf), size_in_bytes(hf_own), "", ""),
            ("", FLAG, size_in_bytes(flag), size_in_bytes(flag_own), "", ""),
            ("", OWN, size_in_bytes(own), size_in_bytes(own_own), f"{own / hf:.0%}", f"<= {wanted:.0%}"),
        ]
        measurements += [{"model": shape.name, "side": name, "peaks": each} for name, each in peaks.items()]
    columns = ("model", "side", "peak", "of it after importing", "of transformers' peak", "goal")
    return Report(
        tables=(Table(title="", columns=columns, rows=tuple(rows), words=(0, 1)),),
        measurements=tuple(measurements),
        notes=("Each process loads the same weights, takes three steps on the same texts and reports its peak.",),
    )


def _peaks(shape: Shape, settings: Settings) -> dict[str, list[dict[str, Any]]]:
    folder = settings.scratch / "measured"
    text = text_for(shape, settings)
    source = Source(mlm_recipe(shape, dropout=0.1, batch=shape.documents), text)
    OwnStep(source.recipe, text, seed=settings.seed).save(folder)
    for number, texts in enumerate(examples_of(source.typical_steps(_STEPS, settings.seed))):
        safetensors.torch.save_file(peers.padded(texts), folder / f"batch-{number}.safetensors")
    task = {
        "folder": str(folder),
        "steps": _STEPS,
        "settings": {
            "scratch": str(settings.scratch),
            "quick": settings.quick,
            "sizes": [shape.name],
            "vocabulary": settings.vocabulary,
            "corpus": None if settings.corpus is None else str(settings.corpus),
            "seed": settings.seed,
            "keeps_memory": settings.keeps_memory,
        },
    }
    found: dict[str, list[dict[str, Any]]] = {HF: [], FLAG: [], OWN: []}
    rounds = settings.rounds or (1 if settings.quick else _ROUNDS)
    for number in range(rounds):
        for side in found:
            tell(f"  {shape.name}, round {number + 1} of {rounds}: {side}")
            found[side].append(_in_process({**task, "side": side, "matmul": own_machine().matmul}))
    tell("")
    shutil.rmtree(folder)
    return found


def _in_process(task: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.children", "step", json.dumps(task)]
    done = subprocess.run(command, cwd=Path(__file__).parent.parent, check=True, stdout=subprocess.PIPE, text=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer
