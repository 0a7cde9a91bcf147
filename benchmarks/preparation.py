"""CPU time of preparation, of workers and the leading process: `python -m benchmarks.preparation FILE ...`

Everything runs in one process, which pickles what would travel between processes; CPU time is counted, so other load on
the machine matters little. From it follow times for clusters: a stage takes as long as the slower of the two, the
leading process or all workers together.
"""

import argparse
import pickle
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import maskwright
from maskwright.data.cleaning.store import clean_corpus
from maskwright.reporting.reporter import Reporter

CORES = 16
"""Of a node."""


class _Counted(Executor):
    """Calls functions in this process and counts their CPU time, less that of pickling."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **_: Any) -> "Future[Any]":
        sent = pickle.loads(pickle.dumps((function, arguments)))
        start = time.process_time()
        result = sent[0](*sent[1])
        self.seconds += time.process_time() - start
        future: Future[Any] = Future()
        future.set_result(pickle.loads(pickle.dumps(result)))
        return future


class _Stages(Reporter):
    """Divides the CPU time of the leading process and of the workers by stage, at each call of progress."""

    def __init__(self, engine: _Counted) -> None:
        self._engine, self._last = engine, (time.process_time(), engine.seconds)
        self.leading: dict[str, float] = defaultdict(float)
        self.workers: dict[str, float] = defaultdict(float)

    def stage(self, name: str, done: int, total: int | None) -> None:
        now = (time.process_time(), self._engine.seconds)
        whole, called = now[0] - self._last[0], now[1] - self._last[1]
        self.leading[name] += whole - called
        self.workers[name] += called
        self._last = now


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the CPU time of each stage, and the times that follow for clusters."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.preparation", description=__doc__)
    parser.add_argument("corpus", nargs="+", help="text files, as for pretrain")
    options = parser.parse_args(arguments)
    engine = _Counted()
    with tempfile.TemporaryDirectory(prefix="maskwright-benchmarks-") as scratch:
        out = Path(scratch) / "text"
        # Imports and other costs of the first call are not those of a gigabyte.
        (first := Path(scratch) / "first.txt").write_text(
            "\n\n".join(f"This is the short text {n}." * 9 for n in range(99))
        )
        maskwright.prepare(first, out=Path(scratch) / "first", recipe="bert/base", engine=engine, reporter=Reporter())
        stages = _Stages(engine)
        maskwright.prepare(options.corpus, out=out, recipe="bert/base", engine=engine, workers=1, reporter=stages)
        gigabytes = clean_corpus([out], cache=out).num_bytes / 1e9
    print("| stage | leading process, s/GB | workers, core-hours/GB |\n|---|---:|---:|")
    rates = {name: (stages.leading[name] / gigabytes, stages.workers[name] / gigabytes) for name in stages.leading}
    for name, (leading, workers) in rates.items():
        print(f"| {name} | {leading:.1f} | {workers / 3600:.3f} |")
    rates = {name: rate for name, rate in rates.items() if name != "training the tokenizer"}  # On a sample.
    print("\n| text, GB | nodes | hours | workers busy | core-hours of the nodes |\n|---:|---:|---:|---:|---:|")
    for amount in (160, 2000):
        for nodes in (1, 8, 64):
            seconds = [max(leading, workers / (nodes * CORES)) * amount for leading, workers in rates.values()]
            hours, busy = sum(seconds) / 3600, sum(each for _, each in rates.values()) * amount / 3600
            held = hours * nodes * CORES
            print(f"| {amount:,} | {nodes} | {hours:.1f} | {busy / held:.0%} | {held:,.0f} |")


if __name__ == "__main__":
    main()
