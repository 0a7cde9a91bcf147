"""A record of the samples of every training step, written while a program trains."""

import json
import math
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from maskwright.finetuning.seed_run import SeedRun
from maskwright.pretext.replacement.base import corrupt
from maskwright.training.pretraining_run import PretrainingRun
from maskwright.training.ranks.distributed import all_reduce_max, broadcast_object, world_size
from maskwright.training.runs import run as training_run
from maskwright.training.steps import loop
from maskwright.training.steps.batches import StepBatch
from maskwright.training.steps.loop import RowCollator, StepReport


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A collator that keeps the samples of this process's share of each step: (epoch, number) each."""

    collator: RowCollator
    samples: dict[int, list[tuple[int, int]]]

    def collate(self, rows: Any, step: int, share: slice) -> StepBatch:
        if hasattr(rows, "numbers"):  # Fine-tuning, by one process.
            self.samples[step] = [(math.ceil(rows.epochs), number) for number in rows.numbers.tolist()]
            return self.collator.collate(rows, step, share)

        def noted(instances: Any, masking: Any, replacement: Any, rng: Any, vocabulary: Any) -> Any:
            self.samples[step] = list(zip(rng.epoch.tolist(), rng.index.tolist(), strict=True))
            return corrupt(instances, masking, replacement, rng, vocabulary)

        with patch("maskwright.training.steps.batches.corrupt", noted):
            return self.collator.collate(rows, step, share)


def record_steps(file: Path, pause: float = 0.0) -> None:
    """Append a line for each step that this process trains from now on: its run, session, number, time and samples.

    A line is written before the step can be part of a checkpoint. Each step takes `pause` seconds longer.
    """
    lines, folders = open(file, "a", encoding="utf-8", buffering=1), list[Path]()  # noqa: SIM115 (as long as the process)

    def train(model: Any, optimizer: Any, phases: Any, position: Any, **named: Any) -> Iterator[StepReport]:
        samples: dict[int, list[tuple[int, int]]] = {}
        phases = [replace(phase, collator=_Recorded(phase.collator, samples)) for phase in phases]
        begun = broadcast_object(time.monotonic())
        about = {"run": str(folders[-1]), "session": begun, "process": os.getpid(), "ranks": world_size()}
        for report in loop.train(model, optimizer, phases, position, **named):
            step = report.position.spent.steps
            record = {"step": step, "time": time.monotonic(), "samples": samples.pop(step - 1)}
            lines.write(json.dumps({**about, **record}) + "\n")
            time.sleep(pause)
            all_reduce_max(0.0)  # Of all processes, before any of them can write a checkpoint.
            yield report

    def in_folder(run: Any) -> Any:
        def noted(self: Any, *arguments: Any) -> Any:
            folders.append(self.folder)
            return run(self, *arguments)

        return noted

    for kind in (PretrainingRun, SeedRun):
        kind.run = in_folder(kind.run)  # type: ignore[method-assign]
    training_run.train = train  # type: ignore[attr-defined]


def steps_recorded(out: Path) -> list[dict[str, Any]]:
    """Return the lines that all processes of `out` have recorded, "run" relative to `out`."""
    text = "".join(file.read_text(encoding="utf-8") for file in sorted(out.parent.glob(f"{out.name}.steps*")))
    lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return [{**line, "run": str(Path(line["run"]).relative_to(out))} for line in lines]


def samples_learned(out: Path) -> Counter[tuple[str, int, int]]:
    """Count the samples that the final weights have learned from: of each step, those of the last session that did it.

    Steps that a session repeats after a fault are computed from an earlier checkpoint, which has not seen them.
    """
    lines, last = steps_recorded(out), dict[tuple[str, int], float]()
    for line in lines:
        step = line["run"], line["step"]
        last[step] = max(line["session"], last.get(step, 0.0))
    kept = (line for line in lines if line["session"] == last[line["run"], line["step"]])
    return Counter((line["run"], *sample) for line in kept for sample in line["samples"])


def whole_epochs(samples: Counter[tuple[str, int, int]]) -> int:
    """Count the epochs of which each sample occurs exactly once."""
    epochs: dict[tuple[str, int], list[int]] = defaultdict(list)
    for run, epoch, sample in samples.elements():
        epochs[run, epoch].append(sample)
    return sum(sorted(each) == list(range(len(each))) for each in epochs.values())
