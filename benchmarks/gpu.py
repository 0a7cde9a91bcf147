"""Jobs for a GPU that is available for minutes only.

    python -m benchmarks.gpu factors+together tuned speed --corpus TEXT --data DATA --out OUT --minutes 8

A job is a list of cases. Jobs follow each other; those joined by "+" run side by side, and a probe after the run that
it measures. Each case runs in a process of its own and appends lines of JSON to OUT/results.jsonl, one for each part as
it is done; a case whose last part is there is skipped, so the same command continues. When the minutes are over,
running cases are killed. Cases of `speed`, a job to run alone, prepare side by side, then wait until nothing else
computes for their timed rounds. `--toy` runs every case at toy size.

DATA contains `blimp/`, the GLUE folders `SST-2`, `MRPC`, `STS-B`, `CoLA` and `RTE` in `glue/`, `wnut17_ner/` and
`synonyms_en_oewn/`. Runs with the same tokenizer share one, which is made first, with the tokenized text.
"""

import argparse
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

from benchmarks import suites
from benchmarks.runner import ROOT, Settings, peak_memory
from maskwright import finetune, load, pretrain
from maskwright.checkpoints.weight_files import WEIGHTS
from maskwright.core.spec import override, parse_overrides
from maskwright.data.cleaning.text import Cleaning
from maskwright.recipes.catalog import resolve
from maskwright.reporting.reporter import Reporter
from maskwright.study import probes
from maskwright.study.text import StudyText, prepare_text

MLM_ONLY = ("objectives=[{kind: mlm}]", "format={kind: doc_sentences}", "encoder.pooler=false")
GLUE = (
    *("sst-2=glue/SST-2", "mrpc=glue/MRPC", "sts-b=glue/STS-B", "cola=glue/CoLA", "rte=glue/RTE"),
    "wnut-17=wnut17_ner",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run.

    Attributes:
        name: Of the result; the cases of all jobs have different names.
        kind: "train", "prepare" (its tokenizer and text only), "probe" (a run of another case), "resume", "tests" or
            "speed".
        recipe, set, tokens, steps, seed: Of the run that is trained.
        probes: What is measured of it: "masked", "blimp", or a task and its folder, `sst-2=glue/SST-2`.
        run: Name of the case whose run is probed.
    """

    name: str
    kind: str = "train"
    recipe: str = ""
    set: tuple[str, ...] = ()
    tokens: float = 0.0
    steps: int = 0
    seed: int = 0
    probes: tuple[str, ...] = ("masked",)
    run: str = ""


def _checks() -> Iterator[Case]:
    """Run the GPU tests, every system for 60 steps with its kernels checked, and a killed run beside a whole one."""
    yield Case(name="tests", kind="tests")
    synonyms = "replacement.table.source=DATA/synonyms_en_oewn/oewn_synonyms.tsv"
    overrides = {"macbert": (synonyms,), "distilbert": ("teacher.model=TEACHER",)}
    systems = ("bert", "roberta", "albert", "electra", "spanbert", "bert-wwm", "ernie", "macbert", "distilbert")
    for system in (*systems, "modernbert", "maskwright"):
        recipe = f"{system}/tiny"
        yield Case(name=f"checks {system}", recipe=recipe, steps=60, set=overrides.get(system, ()), probes=())
    yield Case(name="checks resume", kind="resume", recipe="bert/small", steps=1500)


def _speed() -> Iterator[Case]:
    """Measure training speed beside transformers, compiled."""
    for case in ("modernbert-mini", "modernbert-base", "natural", "blocks-512", "electra", "albert", "blocks-128"):
        yield Case(name=f"speed {case}", kind="speed")


def _electra() -> Iterator[Case]:
    """Ask whether ELECTRA's generator needs short sequences first beyond 20 M tokens."""
    phases = {
        "128": "[{share: 1.0, max_length: 128}]",
        "32 first": "[{share: 0.8, max_length: 32}, {share: 0.2, max_length: 128}]",
    }
    for name, value in phases.items():
        for recipe, tokens in (("electra/tiny", 3e7), ("electra/small", 3e7)):
            yield Case(name=f"electra {recipe} {name}", recipe=recipe, tokens=tokens, set=(f"training.phases={value}",))


VOCABULARY = "tokenizer.vocab_size=16384"
BODY = (
    *("encoder.norm_placement=pre", "encoder.first_attention_norm=false", "encoder.positions=rotary"),
    *("encoder.feed_forward=gated", "encoder.intermediate_size=1344", "encoder.dense_bias=false"),
    "encoder.norm_bias=false",
)
"""ModernBERT's body at the width of bert/small; three matrices of 1,344 have about the parameters of two of 2,048."""


def _factors() -> Iterator[Case]:
    """Change one thing at a time in bert/small on masked words alone, 10 M tokens."""
    muon = "training.optimizer.kind=muon"
    single: Mapping[str, tuple[str, ...]] = {
        "masked words alone": (),
        "30 % masked": ("masking.rate=0.3",),
        "40 % masked": ("masking.rate=0.4",),
        "Muon": (muon,),
        "pre-norm": BODY[:1],
        "rotary positions": BODY[2:3],
        "gated": BODY[3:5],
        "no biases": BODY[5:],
        "body": BODY,
        "body, 30 % masked": (*BODY, "masking.rate=0.3"),
        "body, 40 % masked": (*BODY, "masking.rate=0.4"),
        "body, 30 % masked, Muon": (*BODY, "masking.rate=0.3", muon),
    }
    yield Case(name="factors bert", recipe="bert/small", tokens=1e7, set=(VOCABULARY,))
    for name, overrides in single.items():
        values = (VOCABULARY, *MLM_ONLY, "family=maskwright", *overrides)
        yield Case(name=f"factors {name}", recipe="bert/small", tokens=1e7, set=values)


_TOGETHER: Mapping[str, str] = {"maskwright": "maskwright/small", "bert": "bert/small"}


def _together() -> Iterator[Case]:
    """Train the recommended recipe and BERT for 140 M tokens, 11 passes over 10 M words."""
    for name, recipe in _TOGETHER.items():
        yield Case(name=f"together {name}", recipe=recipe, tokens=1.4e8, set=(VOCABULARY,))


PAIRS: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "NSP": ("objectives=[{kind: mlm}, {kind: nsp}]", "format=segment_pair"),
    "SOP": ("objectives=[{kind: mlm}, {kind: sop}]", "format={kind: segment_pair, second: next_or_swapped}"),
}


def _pairs() -> Iterator[Case]:
    """Ask whether pairs of segments in pretraining help tasks of pairs, and what they cost elsewhere."""
    for name, overrides in PAIRS.items():
        if overrides:
            overrides = (*overrides, "family=maskwright", "encoder.type_vocab_size=2", "encoder.pooler=true")
        case = Case(name=f"pairs {name}", recipe="maskwright/small", tokens=5e7, set=(VOCABULARY, *overrides))
        yield case
        for each in ("blimp", *GLUE):
            yield Case(name=f"{case.name} {each.partition('=')[0]}", kind="probe", run=case.name, probes=(each,))


def _muon() -> Iterator[Case]:
    """Train the recommended recipe with each optimizer."""
    for name, optimizer in {"AdamW": "adamw", "Muon": "muon"}.items():
        overrides = (VOCABULARY, f"training.optimizer.kind={optimizer}")
        yield Case(name=f"muon {name}", recipe="maskwright/small", tokens=3e7, set=overrides)


def _tuned() -> Iterator[Case]:
    """Measure minimal pairs of these runs, and fine-tune them."""
    for name in _TOGETHER:
        for each in ("blimp", *GLUE):
            yield Case(
                name=f"tuned {name} {each.partition('=')[0]}", kind="probe", run=f"together {name}", probes=(each,)
            )


JOBS: Mapping[str, tuple[Case, ...]] = {
    "checks": tuple(_checks()),
    "speed": tuple(_speed()),
    "electra": tuple(_electra()),
    "factors": tuple(_factors()),
    "together": tuple(_together()),
    "tuned": tuple(_tuned()),
    "pairs": tuple(_pairs()),
    "muon": tuple(_muon()),
}
TOY = ("encoder.num_layers=2", "encoder.hidden_size=32", "encoder.num_heads=2", "encoder.intermediate_size=64")


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
    return prepare_text(setup.scratch / "text", setup.corpora, Cleaning(), cache=setup.cache)


def _overrides(case: Case, setup: Setup) -> list[str]:
    teacher = setup.scratch / "teacher"
    values = [each.replace("DATA/", f"{setup.data}/").replace("TEACHER", str(teacher)) for each in case.set]
    if setup.toy:
        values = [each for each in values if not each.startswith("tokenizer.vocab_size")]
        values += TOY
        values += ["encoder.embedding_size=16"] * case.recipe.startswith(("albert", "electra"))
        values += ["generator.size=0.5"] * case.recipe.startswith("electra")
    return values


def _pretrain(case: Case, setup: Setup, out: Path, **changes: Any) -> tuple[Any, dict[str, list[str]]]:
    steps = min(case.steps, 4) if setup.toy else case.steps
    tokens = case.tokens / 1e4 if setup.toy else case.tokens
    budget: dict[str, Any] = {"steps": steps} if steps else {"tokens": tokens}
    reporter = _Messages()
    arguments = {
        "recipe": case.recipe,
        "set": _overrides(case, setup),
        "seed": case.seed,
        "device": setup.device,
        "cache": setup.cache,
        "workers": 1,
        "checkpoint_minutes": 1.0,
        **budget,
        **changes,
    }
    run = pretrain(_text(setup).train, out=out, reporter=reporter, **arguments)
    return run, reporter.lines


def prepare(case: Case, setup: Setup) -> Iterator[tuple[str, dict[str, Any]]]:
    """Make the tokenizer and the tokenized text of a case, which the cache keeps, on all cores."""
    with tempfile.TemporaryDirectory(dir=setup.scratch) as folder:
        _pretrain(replace(case, steps=1), setup, Path(folder) / "run", workers=None)
    yield "prepared", {}


def train(case: Case, setup: Setup) -> Iterator[tuple[str, dict[str, Any]]]:
    """Train a model and probe it."""
    if "teacher.model=TEACHER" in case.set:
        _pretrain(replace(case, recipe="bert/tiny", set=()), setup, setup.scratch / "teacher")
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
            scores = (
                probes.masked_words(model, _text(setup))
                if name == "masked"
                else probes.minimal_pairs(model, setup.data / "blimp")
            )
            yield name, {key: each.value for key, each in scores.items()}
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
            part = "test" if done.results.spread("test") else "dev"
            values = {name: asdict(each) for name, each in done.results.spread(part).items()}
            yield task, {"part": part, "examples": done.results.data[part]["examples"], **values}


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


_END = "end"
"""The last part of a case."""
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


def _run_case(case: Case, setup: Setup) -> int:
    """Run a case in this process; return 1 if it ends with an error, which is then its last part."""
    begun = time.monotonic()

    def write(part: str, content: Mapping[str, Any]) -> None:
        line = {"case": case.name, "part": part, "seconds": round(time.monotonic() - begun, 1), **content}
        with open(setup.results, "a", encoding="utf-8") as file:
            file.write(json.dumps(line, default=str) + "\n")

    try:
        for part, content in _KINDS[case.kind](case, setup):
            write(part, content)
    except Exception:  # Its line says so; other cases do not depend on it.
        write("error", {"error": traceback.format_exc()[-3000:]})
        return 1
    write(_END, {"peak_memory": peak_memory()})
    return 0


def run_jobs(names: Sequence[str], setup: Setup, *, ends: float, workers: int) -> int:
    """Run the cases that have not ended yet, until a time; return how many failed or were killed."""
    lines = setup.results.read_text(encoding="utf-8").splitlines() if setup.results.exists() else []
    done = {line["case"] for line in map(json.loads, lines) if line["part"] == _END}
    cases = [case for name in names for case in JOBS[name] if case.name not in done]

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

    trained = {_tokenizer_of(case): case for case in cases if case.kind in ("train", "resume")}
    if trained:
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
                if not (setup.run_of(case.run) / WEIGHTS).exists():
                    return 1
            return run(case)

        # A probe waits for its run: runs come first, so that probes cannot occupy all workers.
        for case in sorted(cases, key=lambda case: case.kind == "probe"):
            runs[case.name] = pool.submit(wait_and_run, case)
        return sum(each.result() for each in runs.values())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run jobs, or one case, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", help=f"in this order: {', '.join(JOBS)}; side by side: `A+B`")
    parser.add_argument("--corpus", type=Path, action="append", help="pretraining text")
    parser.add_argument("--data", type=Path, help="labeled sets")
    parser.add_argument("--out", type=Path, help="results.jsonl and log.txt")
    parser.add_argument("--scratch", type=Path, help="prepared text and runs (default: OUT/scratch)")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--workers", type=int, default=12, help="cases side by side")
    parser.add_argument("--toy", action="store_true", help="toy sizes on the CPU: shows that the jobs run")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--setup", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.case:
        case, setup = json.loads(options.case), json.loads(options.setup)
        tuples: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in case.items()
        }
        setup |= {name: Path(setup[name]) for name in ("data", "out", "scratch")}
        setup["corpora"] = tuple(setup["corpora"])
        return _run_case(Case(**tuples), Setup(**setup))
    if not options.jobs or not options.corpus or options.data is None or options.out is None:
        parser.error("name jobs, --corpus, --data and --out")
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
