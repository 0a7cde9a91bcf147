"""`python -m benchmarks`: see the package's docstring."""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.catalog import ROWS, load
from maskwright.cli import output
from maskwright.core.errors import MaskwrightError, unknown_name

RESULTS = Path(__file__).parent / "results"
RENDER = "render"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return the exit code: 1 where a check failed, 2 where nothing could be run.

    Args:
        arguments: Words after the program's name; None takes those of this process.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(words)
    if options.threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(options.threads)  # Before torch is imported, and for every process.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        if options.list:
            output.table(
                ("row", "measures", "minutes"),
                [(name, row.title, f"{row.minutes:g}") for name, row in ROWS.items()],
                right=(2,),
            )
            return 0
        names = _checked(options.names)
        if names == [RENDER]:
            return _render(options)
        if len(names) == 1:
            return _run(names[0], options)
        return _run_each(names, options, words)
    except MaskwrightError as error:
        output.fail(str(error))
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure how fast maskwright is, against transformers and the machine."
    )
    parser.add_argument("names", nargs="*", metavar="ROW", help="rows to run (see --list), or `render`; all by default")
    parser.add_argument("--list", action="store_true", help="say what the rows are")
    parser.add_argument("--quick", action="store_true", help="tiny settings: shows that it works, measures nothing")
    parser.add_argument("--rounds", type=int, help="timed rounds (each row has its own number)")
    parser.add_argument("--sizes", default="", help="only these models: tiny,small,base,albert")
    parser.add_argument("--vocabulary", type=int, help="entries of the vocabulary (each model has its own)")
    parser.add_argument("--corpus", type=Path, help="a text file to measure on (texts are made by default)")
    parser.add_argument("--labelled", type=Path, help="folder of labelled sets to fine-tune on (made by default)")
    parser.add_argument("--model", type=Path, help="a pretrained model to fine-tune (drawn weights by default)")
    parser.add_argument("--threads", type=int, help="threads of every side (all cores by default)")
    parser.add_argument(
        "--allocator",
        choices=("kept", "plain"),
        default="kept",
        help="whether the C library keeps freed memory, on every side (kept), or does as it always does",
    )
    parser.add_argument("--seed", type=int, default=0, help="keys weights, texts and masks")
    parser.add_argument("--results", type=Path, help="folder for the JSON files (benchmarks/results)")
    parser.add_argument("--page", type=Path, help="the page to render into (docs/performance.md)")
    return parser


def _checked(names: Sequence[str]) -> list[str]:
    for name in names:
        if name not in (*ROWS, RENDER):
            problem, allowed, todo = unknown_name("row", name, (*ROWS, RENDER))
            raise MaskwrightError(problem, allowed=allowed, todo=todo)
    return list(names) or list(ROWS)


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else path.expanduser().resolve()


def _results(options: argparse.Namespace) -> Path:
    # Figures of tiny settings never lie among real ones.
    folder: Path = options.results or (RESULTS / "quick" if options.quick else RESULTS)
    return folder


def _run(name: str, options: argparse.Namespace) -> int:
    """Run one row in this process."""
    from benchmarks.machine import facts, told
    from benchmarks.report import keep, show
    from benchmarks.settings import Settings
    from maskwright.training.allocator import keep_freed_memory
    from maskwright.training.hardware import busy_cores

    # Before the first large tensor, and for every side: it is the machine that is set, not a program.
    keeps_memory = options.allocator == "kept" and keep_freed_memory()
    begun, busy = datetime.now(UTC), busy_cores(0.2 if options.quick else 2.0)
    output.heading(name, ROWS[name].title)
    with tempfile.TemporaryDirectory(prefix="maskwright-benchmarks-") as scratch:
        settings = Settings(
            scratch=Path(scratch),
            quick=options.quick,
            rounds=options.rounds,
            sizes=tuple(filter(None, options.sizes.split(","))),
            vocabulary=options.vocabulary,
            corpus=_absolute(options.corpus),
            labelled=_absolute(options.labelled),
            model=_absolute(options.model),
            seed=options.seed,
            keeps_memory=keeps_memory,
        )
        try:
            report = load(name)(settings)
        except ImportError as error:
            raise MaskwrightError(
                f"row {name!r} needs {error.name}, which is not installed",
                todo="Run `pip install 'maskwright[bench]'`.",
            ) from error
        found = facts(settings, begun, busy)
    show(report)
    output.note(told(found))
    folder = _results(options)
    if not report.measured:
        # What another machine found, or this one with a GPU, is worth more than that there is none now.
        output.note(f"nothing was measured: what lies in {folder} is left as it is")
        return 0
    path = keep(report, folder, name, {"title": ROWS[name].title, **found})
    if not found["quiet"]:
        output.warn(f"the machine was not quiet when this began ({busy:.1f} cores were busy): measure again")
    output.note(f"kept in {path}")
    return 0 if report.sound else 1


def _run_each(names: Sequence[str], options: argparse.Namespace, words: Sequence[str]) -> int:
    """Run each row in a process of its own, so that none inherits another's memory; then render the page."""
    rest = [word for word in words if word not in names]
    failed = []
    for name in (each for each in names if each != RENDER):
        if subprocess.run([sys.executable, "-m", "benchmarks", name, *rest]).returncode:
            failed.append(name)
    if failed:
        output.warn(f"rows with a failure: {', '.join(failed)}")
    if RENDER in names or (len(names) == len(ROWS) and not options.quick):
        _render(options)
    return 1 if failed else 0


def _render(options: argparse.Namespace) -> int:
    from benchmarks.render import PAGE, render

    page = options.page or PAGE
    written = render(_results(options), page)
    output.note(f"wrote {', '.join(written) or 'nothing: there are no results'} into {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
