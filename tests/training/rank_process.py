"""One of several processes that do the jobs of a file: `python rank_process.py JOBS.json`, with RANK of torchrun.

A job is a call of `pretrain`, `finetune` or `compare` by the first `ranks` processes: its arguments, after how many
steps of a run the last of them gets SIGTERM (0: never), a free port, and a file for the keys of the samples that each
process trains on.
"""

import itertools
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import maskwright
from maskwright.finetuning import seed_run
from maskwright.training import loop, session
from maskwright.training.batches import Collator, StepBatch
from maskwright.training.distributed import rank, world_size
from maskwright.training.loop import StepReport
from maskwright.training.model import PretrainingModel
from maskwright.training.reporting import Silent
from maskwright.training.sampler import Rows

_collate, _placed, _train = Collator.collate, PretrainingModel.placed, loop.train


def do(job: dict[str, Any]) -> None:
    """Do a job; write the step, rank and samples of each micro-batch."""
    keys_of: dict[int, dict[str, Any]] = {}
    collated: list[StepBatch] = []  # Kept, so that no two micro-batches have one id.
    prepared: dict[int, list[dict[str, Any]]] = {}

    def collate(self: Collator, rows: Rows, step: int, share: slice = slice(None)) -> StepBatch:
        batch = _collate(self, rows, step, share)
        collated.append(batch)
        sizes = [each.batch.num_sequences for each in _collate(self, rows, step).micro_batches]
        parts = list(itertools.pairwise([0, *itertools.accumulate(sizes)]))[share]
        samples = list(zip(rows.mask_sample.tolist(), rows.index.tolist(), strict=True))
        for each, part in zip(batch.micro_batches, parts, strict=True):
            keys_of[id(each)] = {"step": step, "rank": rank(), "samples": samples[slice(*part)]}
        return batch

    def placed(self: PretrainingModel, batch: StepBatch) -> StepBatch:
        if own := [keys_of[id(each)] for each in batch.micro_batches if id(each) in keys_of]:
            prepared[own[0]["step"]] = own  # Where the length changes, the batch that was prepared ahead is dropped.
        return _placed(self, batch)

    def train(*arguments: Any, **named: Any) -> Iterator[StepReport]:
        for report in _train(*arguments, **named):
            if report.position.spent.steps == job["stop_after"] and rank() == world_size() - 1:
                os.kill(os.getpid(), signal.SIGTERM)
            yield report

    with (
        patch.object(Collator, "collate", collate),
        patch.object(PretrainingModel, "placed", placed),
        patch.object(session, "train", train),
        patch.object(seed_run, "train", train),
    ):
        run = getattr(maskwright, job["call"])(reporter=Silent(), **job["arguments"])
    if job["call"] != "pretrain":
        return
    # A batch is prepared ahead, and the run may end before it.
    lines = [json.dumps(line) + "\n" for step, own in prepared.items() if step < run.steps for line in own]
    Path(f"{job['log']}-{os.environ['RANK']}").write_text("".join(lines), encoding="utf-8")


def main(jobs: list[dict[str, Any]]) -> None:
    """Do all jobs in which this process takes part."""
    for job in jobs:
        if int(os.environ["RANK"]) < job["ranks"]:
            with patch.dict(os.environ, WORLD_SIZE=str(job["ranks"]), MASTER_PORT=job["port"]):
                do(job)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
