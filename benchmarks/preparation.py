"""CPU time and disk of preparation, of workers and the leading process: `python -m benchmarks.preparation FILE ...`

Everything runs in one process, which pickles what would travel between processes; CPU time is counted, so other load on
the machine matters little. From it follow times for clusters: a stage takes as long as the slower of the two, the
leading process or all workers together.
"""

import argparse
import pickle
import resource
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from maskwright.data.cleaning.store import CleanCorpus, clean_corpus
from maskwright.data.engines import use_engine
from maskwright.data.shards.tokenize import tokenize_corpus
from maskwright.data.tokenizers.training import train_tokenizer
from maskwright.recipes.catalog import resolve

CORES = 16
"""Of a node."""
SHARD_TOKENS = 1 << 20
"""Small ones: encoded blocks are kept for a few shards, which are a small part of the text in large corpora."""


class _Counted(Executor):
    """Calls functions in this process and counts their CPU time, with the pickling that a worker would do.

    Attributes:
        seconds, measuring: CPU time of the functions, and of measuring the disk.
        disk: Bytes in `folder` at most; measured after each call, where the files that it replaces still exist.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.disk = folder, 0
        self.seconds = self.measuring = 0.0

    def measure_disk(self) -> None:
        """Update `disk`."""
        start = time.process_time()
        self.disk = max(self.disk, sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file()))
        self.measuring += time.process_time() - start

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **_: Any) -> "Future[Any]":
        sent = pickle.dumps((function, arguments))
        start = time.process_time()
        function, arguments = pickle.loads(sent)
        result = pickle.dumps(function(*arguments))
        self.seconds += time.process_time() - start
        self.measure_disk()
        future: Future[Any] = Future()
        future.set_result(pickle.loads(result))
        return future


class _Stages:
    """Divides the CPU time of the leading process and of the workers by stage, at each call of progress."""

    def __init__(self, engine: _Counted) -> None:
        self._engine = engine
        self.leading: dict[str, float] = defaultdict(float)
        self.workers: dict[str, float] = defaultdict(float)
        self.disk: dict[str, int] = defaultdict(int)
        self._last = self._times()

    def _times(self) -> tuple[float, float]:
        return time.process_time() - self._engine.measuring, self._engine.seconds

    def progress(self, name: str, done: int = 0, total: int | None = None) -> None:
        name = name.partition(" (")[0]
        now = self._times()
        whole, called = now[0] - self._last[0], now[1] - self._last[1]
        self.leading[name] += whole - called
        self.workers[name] += called
        self._engine.measure_disk()
        self.disk[name] = max(self.disk[name], self._engine.disk)
        self._engine.disk = 0
        self._last = self._times()


def _prepare(corpus: Sequence[Path], folder: Path, engine: _Counted) -> tuple[_Stages, CleanCorpus]:
    folder.mkdir()
    stages, recipe = _Stages(engine), resolve("bert/base")
    clean = clean_corpus(corpus, cache=folder, progress=stages.progress)
    stages.progress("deduplicating")  # What follows the last block.
    for _ in clean.sample(clean.num_bytes >> 6, seed=0):
        pass
    stages.progress("sampling")
    tokenizer = train_tokenizer(recipe.tokenizer, clean, seed=0, cache=folder)
    stages.progress("training")
    tokenize_corpus(
        clean, tokenizer, words=recipe.words, cache=folder, progress=stages.progress, shard_tokens=SHARD_TOKENS
    )
    stages.progress("tokenizing")
    return stages, clean


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the CPU time and disk of each stage, and the times that follow for clusters."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.preparation", description=__doc__)
    parser.add_argument("corpus", nargs="+", type=Path, help="text files, as for pretrain")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="maskwright-benchmarks-") as scratch:
        engine = _Counted(folder := Path(scratch) / "text")
        # Imports and other costs of the first call are not those of a gigabyte.
        (first := Path(scratch) / "first.txt").write_text(
            "\n\n".join(f"This is the short text {n}." * 9 for n in range(99))
        )
        with use_engine(engine):
            _prepare([first], Path(scratch) / "first", engine)
            stages, clean = _prepare(options.corpus, folder, engine)
    gigabytes, peak = clean.num_bytes / 1e9, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{clean.num_bytes:,} bytes of clean text; peak memory {peak:.0f} MB\n")
    print("| stage | leading process, s/GB | workers, core-hours/GB | disk, GB/GB |\n|---|---:|---:|---:|")
    del stages.leading["training"]  # On a sample of bounded size.
    rates = {name: (seconds / gigabytes, stages.workers[name] / gigabytes) for name, seconds in stages.leading.items()}
    for name, (leading, workers) in rates.items():
        print(f"| {name} | {leading:.1f} | {workers / 3600:.3f} | {stages.disk[name] / 1e9 / gigabytes:.2f} |")
    disk = max(stages.disk.values()) / clean.num_bytes
    print("\n| text, GB | nodes | hours | workers busy | core-hours of the nodes | disk, GB |")
    print("|---:|---:|---:|---:|---:|---:|")
    for amount in (160, 2000):
        for nodes in (1, 8, 64):
            seconds = [max(leading, workers / (nodes * CORES)) * amount for leading, workers in rates.values()]
            hours, busy = sum(seconds) / 3600, sum(each for _, each in rates.values()) * amount / 3600
            held = hours * nodes * CORES
            print(f"| {amount:,} | {nodes} | {hours:.2f} | {busy / held:.0%} | {held:,.0f} | {disk * amount:,.0f} |")


if __name__ == "__main__":
    main()
