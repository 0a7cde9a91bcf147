"""What rows run in processes of their own, to know the memory of one thing alone: `python -m benchmarks.children`.

A child gets its task as JSON and prints what it found as JSON. It imports what its task needs and nothing else.
"""

import contextlib
import json
import resource
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_UNIT = 1 if sys.platform == "darwin" else 1024
"""Bytes in which the system counts `ru_maxrss`."""


def peak(process: int | str = "self") -> int:
    """Return the largest resident size of a process so far, in bytes; 0 if it is gone.

    Linux counts into `ru_maxrss` what the parent had when it started the process, so its own mark is read instead;
    other systems know `ru_maxrss` of this process only.

    Args:
        process: Its number, or "self".
    """
    try:
        with open(f"/proc/{process}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT
        return own if process == "self" and sys.platform != "linux" else 0


class WorkerPeaks(threading.Thread):
    """Watches the processes that this one starts, and remembers the peak of each (Linux only; 0 elsewhere)."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._peaks: dict[str, int] = {}
        self._done = threading.Event()

    def run(self) -> None:
        while not self._done.wait(0.05):
            for listed in Path("/proc/self/task").glob("*/children"):
                with contextlib.suppress(OSError):
                    for process in listed.read_text().split():
                        self._peaks[process] = max(self._peaks.get(process, 0), peak(process))

    def stop(self) -> int:
        """Return the largest peak of any worker, in bytes."""
        self._done.set()
        self.join()
        return max(self._peaks.values(), default=0)


def step(task: dict[str, Any]) -> dict[str, Any]:
    """Take some training steps on one side and report the peak."""
    from benchmarks.goals import OWN

    if task["settings"]["keeps_memory"]:
        from maskwright.training.allocator import keep_freed_memory

        keep_freed_memory()
    take = _own if task["side"] == OWN else _peer
    before, losses = take(task)
    return {"peak": peak(), "grown": peak() - before, "losses": losses}


def _peer(task: dict[str, Any]) -> tuple[int, list[float]]:
    import safetensors.torch
    import torch
    import transformers.models.albert.modeling_albert
    import transformers.models.bert.modeling_bert  # noqa: F401  # before the peak of the imports is read

    from benchmarks import peers
    from benchmarks.goals import FLAG

    before, folder = peak(), Path(task["folder"])
    if task["side"] == FLAG:
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"  # type: ignore[attr-defined]  # set up at run time
    hf_step = peers.HuggingFaceStep(peers.load(folder, dropout=0.1))
    batches = [safetensors.torch.load_file(folder / f"batch-{number}.safetensors") for number in range(task["steps"])]
    return before, [hf_step.step(batch) for batch in batches]


def _own(task: dict[str, Any]) -> tuple[int, list[float]]:
    import torch._dynamo  # noqa: F401  # torch's optimizers import it at their first use; the peer's have done so

    from benchmarks.own import OwnStep
    from benchmarks.settings import Settings
    from benchmarks.shapes import chosen
    from benchmarks.workloads import Source, mlm_recipe, text_for
    from maskwright.huggingface.huggingface import load_model
    from maskwright.training.device import matmul_library

    before, given = peak(), dict(task["settings"])
    settings = Settings(
        **{
            **given,
            "scratch": Path(given["scratch"]),
            "sizes": tuple(given["sizes"]),
            "corpus": None if given["corpus"] is None else Path(given["corpus"]),
        }
    )
    (shape,) = chosen(settings)
    text = text_for(shape, settings)
    source = Source(mlm_recipe(shape, dropout=0.1, batch=shape.documents), text)
    own = OwnStep(source.recipe, text)
    own.model.load(load_model(task["folder"]).state, task["folder"])
    with matmul_library(task["matmul"]):
        return before, [own.step(batch) for batch in source.typical_steps(task["steps"], settings.seed)]


def build(task: dict[str, Any]) -> dict[str, Any]:
    """Make shards of a text file; report the seconds and the peak of this process and of the largest worker."""
    from maskwright.data.cleaning.store import clean_corpus
    from maskwright.data.shards.tokenize import tokenize_corpus
    from maskwright.data.tokenizers.tokenizer import Tokenizer

    workers = WorkerPeaks()
    workers.start()
    cache, begun = Path(task["cache"]), time.perf_counter()
    clean = clean_corpus([task["file"]], cache=cache)
    between = time.perf_counter()
    corpus = tokenize_corpus(clean, Tokenizer.from_folder(task["tokenizer"]), cache=cache)
    ended = time.perf_counter()
    return {
        "cleaning": between - begun,
        "tokenizing": ended - between,
        "tokens": corpus.num_tokens,
        "peak": peak(),
        "worker": workers.stop(),
    }


TASKS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {"step": step, "build": build}

if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]](json.loads(sys.argv[2]))))
