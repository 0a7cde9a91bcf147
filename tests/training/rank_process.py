"""One of several processes that do the jobs of a file: `python rank_process.py JOBS.json`, with RANK of torchrun.

A job is a call of `pretrain`, `finetune` or `compare` by the first `ranks` processes: its arguments, after how many
steps of a run the last of them gets SIGTERM (0: never), a free port, and a file for the keys of the samples that each
process trains on. A job with a slow process has its rank (`slow`) and a file for the messages of the run; one with slow
uploads has the seconds of each (`upload`) and the time limit of messages (`timeout`).
"""

import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

from torch.distributed import distributed_c10d

import maskwright
from maskwright.training.ranks import gradients
from maskwright.training.ranks.distributed import rank, world_size
from maskwright.training.runs import run as training_run
from maskwright.training.runs.mirror import Mirror
from maskwright.training.steps import loop
from maskwright.training.steps.batches import Collator, StepBatch
from maskwright.training.steps.loop import StepReport
from maskwright.training.steps.model import PretrainingModel
from maskwright.training.steps.sampler import Rows
from recording import Recorder

_collate, _train = Collator.collate, loop.train
_losses, _upload = PretrainingModel.losses, Mirror.upload


def do(job: dict[str, Any]) -> None:
    """Do a job; write the step, rank and samples of each micro-batch."""
    prepared: dict[int, list[dict[str, Any]]] = {}

    def collate(self: Collator, rows: Rows, step: int, share: slice = slice(None)) -> StepBatch:
        batch = _collate(self, rows, step, share)
        if share == slice(None):  # Held-out text.
            return batch
        sizes = [each.batch.num_sequences for each in _collate(self, rows, step).micro_batches]
        parts = list(itertools.pairwise([0, *itertools.accumulate(sizes)]))[share]
        samples = list(zip(rows.mask_sample.tolist(), rows.index.tolist(), strict=True))
        # Where the length changes, the batch that was prepared ahead is dropped, and this is another one.
        prepared[step] = [{"step": step, "rank": rank(), "samples": samples[slice(*part)]} for part in parts]
        return batch

    def losses(self: PretrainingModel, micro_batch: Any) -> Any:
        begun = time.perf_counter()
        terms = _losses(self, micro_batch)
        if rank() == job.get("slow"):  # Slower than the others by a factor, however busy the machine is.
            time.sleep(0.02 + 8 * (time.perf_counter() - begun))
        return terms

    def upload(self: Mirror) -> None:
        time.sleep(job.get("upload", 0))
        _upload(self)

    def train(*args: Any, **kwargs: Any) -> Iterator[StepReport]:
        for report in _train(*args, **kwargs):
            if report.position.spent.steps == job["stop_after"] and rank() == world_size() - 1:
                os.kill(os.getpid(), signal.SIGTERM)
            yield report

    with (
        patch.object(Collator, "collate", collate),
        patch.object(PretrainingModel, "losses", losses),
        patch.object(training_run, "train", train),
        patch.object(Mirror, "upload", upload),
        patch.object(distributed_c10d, "default_pg_timeout", timedelta(seconds=job.get("timeout", 1800))),
        patch.object(gradients, "_BUCKET_NUMBERS", 1000),  # Several buckets in toy models.
    ):
        run = getattr(maskwright, job["call"])(reporter=(recorder := Recorder()), **job["arguments"])
    if "slow" in job and os.environ["RANK"] == "0":
        Path(job["messages"]).write_text(json.dumps(recorder.messages), encoding="utf-8")
    if job["call"] != "pretrain":
        return
    # A batch is prepared ahead, and the run may end before it.
    lines = [json.dumps(line) + "\n" for step, of_step in prepared.items() if step < run.steps for line in of_step]
    Path(f"{job['log']}-{os.environ['RANK']}").write_text("".join(lines), encoding="utf-8")


def main(jobs: list[dict[str, Any]]) -> None:
    """Do all jobs in which this process takes part."""
    for job in jobs:
        if int(os.environ["RANK"]) < job["ranks"]:
            with patch.dict(os.environ, WORLD_SIZE=str(job["ranks"]), MASTER_PORT=job["port"]):
                do(job)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
