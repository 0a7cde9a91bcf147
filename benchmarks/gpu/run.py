"""Run cases, each in a process of its own, and record their results."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks import suites
from benchmarks.gpu.jobs import JOBS, Case
from benchmarks.runner import ROOT, Settings, peak_memory
from maskwright import finetune, load, pretrain
from maskwright.checkpoints.weight_files import WEIGHTS
from maskwright.core.spec import fingerprint, override, parse_overrides
from maskwright.data.cleaning.text import Cleaning
from maskwright.recipes.catalog import resolve
from maskwright.reporting.reporter import Reporter
from maskwright.study import probes
from maskwright.study.intrinsic import intrinsic
from maskwright.study.text import StudyText, prepare_text

TOY = (
    *("encoder.num_layers=2", "encoder.hidden_size=32", "encoder.num_heads=2", "encoder.intermediate_size=64"),
    "training.batch_sequences=8",
)
TOY_BUDGETS: Mapping[str, float] = {"steps": 4, "tokens": 3000, "flops": 1e9, "minutes": 0.01}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Folders, device and scale that all cases share.

    Attributes:
        data: The folder of the texts and labeled sets.
        out: The folder of results.jsonl and log.txt.
        scratch: For the prepared text, tokenizers and runs, shared by all cases.
        corpora: Files of the pretraining text.
        device: "cuda" or, at toy size, "cpu".
        toy: Whether sizes are those of a test.
    """

    data: Path
    out: Path
    scratch: Path
    corpora: tuple[str, ...]
    device: str = "cuda"
    toy: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    def run_of(self, case: str) -> Path:
        """Return the run directory of a case."""
        return self.scratch / "runs" / "".join(each if each.isalnum() else "-" for each in case)

    @property
    def results(self) -> Path:
        """The file of the results."""
        return self.out / "results.jsonl"

    @property
    def cache(self) -> Path:
        """The cache directory of prepared text."""
        return self.scratch / "cache"


class _Messages(Reporter):
    """A reporter that keeps the last messages of some topics."""

    def __init__(self) -> None:
        self.lines: dict[str, list[str]] = {}

    def message(self, topic: str, text: str) -> None:
        if topic in ("kernels", "warning", "health", "machine"):
            self.lines[topic] = [*self.lines.get(topic, []), text][-3:]


def _text(setup: Setup) -> StudyText:
    folder = setup.scratch / f"text-{fingerprint(setup.corpora)[:8]}"
    return prepare_text(folder, setup.corpora, Cleaning(), cache=setup.cache)


def _overrides(case: Case, setup: Setup) -> list[str]:
    teacher = str(setup.run_of(case.run))
    values = [each.replace("DATA/", f"{setup.data}/").replace("TEACHER", teacher) for each in case.set]
    if setup.toy:
        values = [each for each in values if not each.startswith("tokenizer.vocab_size")] + [*TOY]
        values += ["encoder.embedding_size=16"] * case.recipe.startswith(("albert", "electra"))
        values += ["generator.size=0.5"] * case.recipe.startswith("electra")
    return values


def _pretrain(case: Case, setup: Setup, out: Path, **changes: Any) -> tuple[Any, dict[str, list[str]]]:
    reporter = _Messages()
    arguments = {
        "recipe": case.recipe,
        "set": _overrides(case, setup),
        "seed": case.seed,
        "device": setup.device,
        "cache": setup.cache,
        "workers": 1,
        "checkpoint_minutes": 1.0,
        **({unit: TOY_BUDGETS[unit] for unit in case.budget} if setup.toy else case.budget),
        **changes,
    }
    run = pretrain(_text(setup).train, out=out, reporter=reporter, **arguments)
    return run, reporter.lines


def prepare(case: Case, setup: Setup) -> Iterator[tuple[str, dict[str, Any]]]:
    """Make the tokenizer and the tokenized text of a case, which the cache keeps, on all cores."""
    with tempfile.TemporaryDirectory(dir=setup.scratch) as folder:
        _pretrain(replace(case, budget={"steps": 1}), setup, Path(folder) / "run", workers=None)
    yield "prepared", {}


def train(case: Case, setup: Setup) -> Iterator[tuple[str, dict[str, Any]]]:
    """Train a model and probe it."""
    out = setup.run_of(case.name)
    run, messages = _pretrain(case, setup, out)
    timing = (out / "timing.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    yield (
        "run",
        {
            "messages": messages,
            "run": {**run.to_json(), "fitted": {each["field"]: each["chosen"] for each in run.fitted}},
            "timing": json.loads(timing[-1]) if timing else {},
            "curve": [each for each in rows if any("held_out" in name for name in each)],
        },
    )
    yield from probe(replace(case, run=case.name), setup)


def probe(case: Case, setup: Setup) -> Iterator[tuple[str, dict[str, Any]]]:
    """Probe the run of a case, or fine-tune it with three seeds."""
    run = setup.run_of(case.run)
    for name in case.probes:
        task, _, folder = name.partition("=")
        if not folder:
            model = load(run, device=setup.device)
            match name:
                case "masked":
                    scores = probes.masked_words(model, _text(setup))
                case "intrinsic":
                    scores = intrinsic(model, _text(setup))
                case _:
                    scores = probes.minimal_pairs(model, setup.data / "blimp")
            yield name, {"scores": {key: each.value for key, each in scores.items()}}
            continue
        done = finetune(
            run,
            task=task,
            data=setup.data / folder,
            out=setup.scratch / "tuned" / f"{run.name}-{task}",
            seeds=1 if setup.toy else 3,
            set=["epochs=1"] if setup.toy else [],
            device=setup.device,
            reporter=_Messages(),
        )
        if done.results is not None:
            split = "test" if done.results.spread("test") else "dev"
            values = {metric: asdict(each) for metric, each in done.results.spread(split).items()}
            about = {"split": split, "examples": done.results.data[split]["examples"]}
            yield task, {**about, "metric": done.results.main_metric, "seeds": len(done.results.rows), "scores": values}


def resume(case: Case, setup: Setup) -> Iterator[tuple[str, dict[str, Any]]]:
    """Train a run whole and once more with a kill in the middle, and compare the bytes of the weights."""
    name = case.name.replace("/", "-").replace(" ", "_")
    whole = setup.scratch / "runs" / f"{name}-whole"
    begun = time.monotonic()
    _pretrain(case, setup, whole)
    seconds = time.monotonic() - begun
    killed = setup.scratch / "runs" / f"{name}-killed"
    command = [
        *(sys.executable, "-m", "benchmarks.gpu", "--case", json.dumps({**asdict(case), "kind": "part"})),
        *("--setup", json.dumps(_plain(setup) | {"options": {"out": str(killed)}})),
    ]
    kills = 0
    while kills < 3:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(timeout=max(2.0, 0.6 * seconds))
            break
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
    list(part(case, replace(setup, options={"out": str(killed)})))
    digests = [hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest() for run in (whole, killed)]
    yield "resume", {"seconds": seconds, "kills": kills, "equal": digests[0] == digests[1], "digests": digests}


def part(case: Case, setup: Setup) -> Iterator[tuple[str, dict[str, Any]]]:
    """Train or resume the run that `resume` kills; it writes many checkpoints."""
    run, _ = _pretrain(case, setup, Path(setup.options["out"]), checkpoint_minutes=0.02)
    yield "part", {"steps": run.steps}


def tests(case: Case, setup: Setup) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run the tests that need a GPU."""
    arguments = (
        ["tests/kernels/test_gpu_kernels.py", "--collect-only"]
        if setup.toy
        else ["-m", "gpu", "tests/kernels", "tests/training"]
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    yield "tests", {"exit_code": done.returncode, "output": done.stdout[-6000:]}


def speed(case: Case, setup: Setup) -> Iterator[tuple[str, dict[str, Any]]]:
    """Measure a case of the suite `gpu`; at toy size, of the suite `train`, on a CPU."""
    with tempfile.TemporaryDirectory(dir=setup.scratch) as folder:
        name = "natural" if setup.toy else case.name.removeprefix("speed ")
        lock = setup.scratch / "speed.lock"
        settings = Settings(
            scratch=Path(folder), quick=setup.toy, rounds=2, cases=(name,), in_process=setup.toy, lock=lock
        )
        suite = suites.train if setup.toy else suites.gpu
        for table in suite(settings):
            yield table.title, asdict(table)


END, ERROR, CALL = "end", "error", "call"
"""The last part of a case, of one that failed, and the line of a call, which is of no case."""
_KINDS = {
    "train": train,
    "probe": probe,
    "prepare": prepare,
    "resume": resume,
    "part": part,
    "tests": tests,
    "speed": speed,
}


def _tokenizer_of(case: Case) -> str:
    """Return what decides the tokenizer and the words of a case's text."""
    recipe = override(resolve(case.recipe), parse_overrides(case.set))
    return repr((recipe.tokenizer, recipe.words))


def _plain(setup: Setup) -> dict[str, Any]:
    return {name: str(value) if isinstance(value, Path) else value for name, value in asdict(setup).items()}


def run_case(case: Case, setup: Setup) -> int:
    """Run a case in this process; return 1 if it ends with an error, which is then its last part."""
    begun = time.monotonic()

    def write(part: str, content: Mapping[str, Any]) -> None:
        _append(setup, {"case": case.name, "part": part, "seconds": round(time.monotonic() - begun, 1), **content})

    try:
        for part, content in _KINDS[case.kind](case, setup):
            write(part, content)
    except Exception:  # Its line says so; other cases do not depend on it.
        write(ERROR, {"error": traceback.format_exc()[-3000:]})
        return 1
    write(END, {"peak_memory": peak_memory()})
    return 0


def _append(setup: Setup, line: Mapping[str, Any]) -> None:
    with open(setup.results, "a", encoding="utf-8") as file:
        file.write(json.dumps(line, default=str) + "\n")


def run_jobs(names: Sequence[str], setup: Setup, *, ends: float, workers: int) -> int:
    """Run the cases of jobs that have not ended yet, until a time; return how many failed or were killed."""
    lines = setup.results.read_text(encoding="utf-8").splitlines() if setup.results.exists() else []
    done = {line.get("case") for line in map(json.loads, lines) if line["part"] == END}
    cases = [case for name in names for case in JOBS[name].cases if case.name not in done]
    if not cases:
        return 0
    begun = time.monotonic()
    failed = _run_cases(cases, setup, ends=ends, workers=workers)
    device = torch.cuda.get_device_name() if setup.device == "cuda" else "CPU"
    date, minutes = time.strftime("%Y-%m-%d"), round((time.monotonic() - begun) / 60, 2)
    counts = {"cases": len(cases), "not_ended": failed}
    _append(setup, {"part": CALL, "jobs": names, "date": date, "device": device, "minutes": minutes, **counts})
    return failed


def _run_cases(cases: Sequence[Case], setup: Setup, *, ends: float, workers: int) -> int:
    def run(case: Case) -> int:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
        begun, left = time.monotonic(), ends - time.monotonic()
        if left <= 0:
            return 1
        command = [sys.executable, "-m", "benchmarks.gpu", "--case", json.dumps(asdict(case))]
        with open(setup.results.with_name("log.txt"), "ab") as log:
            process = subprocess.Popen(
                [*command, "--setup", json.dumps(_plain(setup))],
                cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
            try:
                code = process.wait(timeout=left)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                code = process.wait()
        print(f"{case.name}: exit code {code} after {time.monotonic() - begun:.0f} s", flush=True)
        return int(code != 0)

    # A student has its teacher's tokenizer.
    trained = {_tokenizer_of(case): case for case in cases if case.kind in ("train", "resume") and not case.run}
    if any(case.kind in ("train", "probe", "resume") for case in cases):
        _text(setup)
    for case in trained.values():
        if run(replace(case, name=f"prepare {case.name}", kind="prepare")):
            print("the first run of a tokenizer failed; see results.jsonl and log.txt", flush=True)
            return len(cases)
    with ThreadPoolExecutor(workers) as pool:
        runs = dict[str, Future[int]]()

        def wait_and_run(case: Case) -> int:
            if case.run in runs:
                runs[case.run].result()
            if case.run and not (setup.run_of(case.run) / WEIGHTS).exists():
                print(f"{case.name}: not run, there is no run of the case {case.run!r} in {setup.scratch}", flush=True)
                return 1
            return run(case)

        # A case that needs a run begins after it, so that waiting cases cannot occupy all workers.
        for case in sorted(cases, key=lambda case: (case.kind == "probe", bool(case.run))):
            runs[case.name] = pool.submit(wait_and_run, case)
        return sum(each.result() for each in runs.values())
