"""`python -m benchmarks SUITE`: see the package's docstring."""

import argparse
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.runner import ROOT, Settings
from benchmarks.suites import SIZES, SUITES
from maskwright.core.storage.files import write_text

_PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "onnxruntime", "openvino", "datasets")
_QUIET = 0.15  # load per core


def main(arguments: Sequence[str] | None = None) -> int:
    """Run suites, print their tables as Markdown and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure the speed of maskwright.")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(SUITES))
    parser.add_argument("--list", action="store_true", help="describe the suites")
    parser.add_argument("--cases", default="", help="only these cases, separated by commas")
    parser.add_argument("--sizes", default="", help=f"only these models: {','.join(SIZES)}")
    parser.add_argument(
        "--contenders", default="", help="only contenders with one of these parts in their names (not finetune --model)"
    )
    parser.add_argument("--rounds", type=int, help="timed rounds (each suite has its own number)")
    parser.add_argument("--threads", type=int, help="threads of every contender (default: all cores)")
    parser.add_argument(
        "--against", metavar="REV", help="also measure this git revision (train, inference, gpu, latency)"
    )
    parser.add_argument("--corpus", type=Path, metavar="PATH", help="real text (quality)")
    parser.add_argument("--model", type=Path, metavar="FOLDER", help="a model of the hub (latency, finetune)")
    parser.add_argument(
        "--minutes", type=float, default=5.0, help="minutes that maskwright trains (quality; default: 5)"
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of the datasets (finetune --model)")
    parser.add_argument("--results", type=Path, metavar="DIR", help="keep finished runs, to resume (finetune --model)")
    parser.add_argument("--set", action="append", default=[], metavar="F=V", help="a setting (finetune --model)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the tables to a file too")
    parser.add_argument("--quick", action="store_true", help="toy sizes: shows that it works, measures nothing")
    parser.add_argument("--in-process", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.list:
        for name, suite in SUITES.items():
            print(f"{name:10} {(suite.__doc__ or '').splitlines()[0]}")
        return 0
    sizes = tuple(filter(None, options.sizes.split(",")))
    for names, known, kind in ((options.suites, SUITES, "suite"), (sizes, SIZES, "size")):
        for name in names:
            if name not in known:
                parser.error(f"no {kind} {name!r}; known: {', '.join(known)}")
    if not options.suites:
        parser.error(f"name a suite: {', '.join(SUITES)}")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if not options.in_process:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # Contenders and worktrees are then cleaned up.
    if options.threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(options.threads)
    page, code = f"{_machine(quick=options.quick)}\n", 0
    print(page)
    with (
        tempfile.TemporaryDirectory(prefix="maskwright-benchmarks-") as scratch,
        _revision(options.against) as against,
    ):
        for name in options.suites:
            folder = Path(scratch) / name
            folder.mkdir(exist_ok=True)
            settings = Settings(
                scratch=folder,
                quick=options.quick,
                rounds=options.rounds,
                cases=tuple(filter(None, options.cases.split(","))),
                sizes=sizes,
                contenders=tuple(filter(None, options.contenders.split(","))),
                against=against,
                in_process=options.in_process,
                corpus=options.corpus,
                minutes=options.minutes,
                model=options.model and options.model.absolute(),
                data=options.data and options.data.absolute(),
                results=options.results and options.results.absolute(),
                set=tuple(options.set),
            )
            before = page
            try:
                for table in SUITES[name](settings):
                    print(table.markdown() + "\n", flush=True)
                    page += f"\n{table.markdown()}\n"
                    if options.out is not None:
                        write_text(options.out, page)
                if page == before:
                    raise RuntimeError(f"no case is named {options.cases!r}")
            except RuntimeError as error:
                print(f"{name}: {error}", file=sys.stderr)
                code = 1
    return code


@contextmanager
def _revision(name: str | None) -> Iterator[tuple[str, Path] | None]:
    """Check out another revision beside this one while the block runs."""
    if name is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="maskwright-revision-") as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", tree, name], cwd=ROOT, check=True)
        try:
            yield name, tree / "src"
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)


def _machine(*, quick: bool) -> str:
    """Describe the machine in a line, with a warning where it is not quiet."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    versions = []
    for package in _PACKAGES:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    line = f"{_processor()}; {cores} cores; Python {platform.python_version()}; {', '.join(versions)}; {_commit()}"
    if quick:
        return f"TOY SIZES, not a measurement. {line}"
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return f"NOT QUIET (load {load:.1f}). {line}" if load > _QUIET * cores else line


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return f"commit {done.stdout.strip() or 'unknown'}"


if __name__ == "__main__":
    sys.exit(main())
