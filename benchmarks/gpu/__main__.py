"""`python -m benchmarks.gpu`: see the package's docstring."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import benchmarks.gpu
from benchmarks.gpu.jobs import JOBS, Case
from benchmarks.gpu.report import report
from benchmarks.gpu.run import Setup, run_case, run_jobs


def main(arguments: Sequence[str] | None = None) -> int:
    """Run jobs, or one case, or report results, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu",
        description=benchmarks.gpu.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("jobs", nargs="*", help=f"in this order: {', '.join(JOBS)}; side by side: `A+B`")
    parser.add_argument("--corpus", type=Path, action="append", help="pretraining text")
    parser.add_argument("--data", type=Path, help="labeled sets")
    parser.add_argument("--out", type=Path, help="results.jsonl and log.txt")
    parser.add_argument("--scratch", type=Path, help="prepared text and runs (default: OUT/scratch)")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--workers", type=int, default=12, help="cases side by side")
    parser.add_argument("--toy", action="store_true", help="toy sizes on the CPU: shows that the jobs run")
    parser.add_argument("--report", type=Path, nargs="+", metavar="FILE", help="print results.jsonl files as Markdown")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--setup", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.report:
        print(report([file.read_text(encoding="utf-8") for file in options.report]))
        return 0
    if options.case:
        case, setup = json.loads(options.case), json.loads(options.setup)
        tuples: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in case.items()
        }
        setup |= {name: Path(setup[name]) for name in ("data", "out", "scratch")}
        setup["corpora"] = tuple(setup["corpora"])
        return run_case(Case(**tuples), Setup(**setup))
    if not options.jobs or not options.corpus or options.data is None or options.out is None:
        parser.error("name jobs, --corpus, --data and --out; or --report FILE")
    setup = Setup(
        data=options.data.resolve(),
        out=options.out.resolve(),
        scratch=(options.scratch or options.out / "scratch").resolve(),
        device="cpu" if options.toy else "cuda",
        toy=options.toy,
        corpora=tuple(str(each.resolve()) for each in options.corpus),
    )
    stages = [stage.split("+") for stage in options.jobs]
    if unknown := [name for stage in stages for name in stage if name not in JOBS]:
        parser.error(f"no job {unknown[0]!r}; known: {', '.join(JOBS)}")
    setup.scratch.mkdir(parents=True, exist_ok=True)
    setup.out.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + 60 * options.minutes
    return int(sum(run_jobs(stage, setup, ends=ends, workers=options.workers) for stage in stages) > 0)


if __name__ == "__main__":
    sys.exit(main())
