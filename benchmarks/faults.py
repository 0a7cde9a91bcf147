"""Faults: work that is killed and damaged at random until it ends, against undisturbed runs."""

import contextlib
import os
import random
import signal
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.elastic import elastic
from benchmarks.recording import record_steps, samples_learned, steps_recorded
from benchmarks.runner import Settings
from benchmarks.table import Table, number
from maskwright.core.storage.checksums import compare_files, read_record
from maskwright.core.storage.files import read_json
from maskwright.finetuning.finetune import finetune
from maskwright.reporting.metrics import read_rows
from maskwright.reporting.reporter import Reporter
from maskwright.study import compare as study
from maskwright.training.pretrain import pretrain
from maskwright.training.runs.run_directory import COPIES

SYSTEMS = ("bert", "roberta", "albert", "electra", "spanbert", "bert-wwm", "macbert", "ernie", "distilbert")
FAULTS = ("SIGKILL", "SIGTERM", "SIGHUP", "SIGKILL, then a flipped bit", "SIGKILL, then a file cut short")
_FEWEST = {**dict.fromkeys(SYSTEMS, 6), "fine-tuning": 10, "compare": 10}
"""A case is done again until there were so many faults."""
_MODULES = ("torch._dynamo", "torch.utils.tensorboard", "matplotlib.backends.backend_svg", "transformers", "sklearn")
"""Imported before processes are forked, which else import them again and again."""
_WORDS = ("小明", "老师", "船长"), ("喜欢", "看见", "记得"), ("人工智能", "上海", "长城", "大海")
_TOY = (
    *("encoder.hidden_size=32", "encoder.num_heads=2", "encoder.num_layers=2", "encoder.intermediate_size=64"),
    *("training.batch_sequences=8", "training.phases=[{share: 0.5, max_length: 16}, {share: 0.5, max_length: 32}]"),
)
_SETTINGS: Any = {"clean": ["min_document_bytes=1"], "workers": 1, "reporter": Reporter()}
_CHECKPOINTS: Any = {"checkpoint_minutes": 0.001}
_RESULTS = ("metrics.jsonl", "model.safetensors", "report.csv", "*_predictions.jsonl")


Fault = tuple[str, int, float | None]
"""A fault, steps that were lost, and seconds from the next command to its first step (None if it did none)."""


def faults(settings: Settings) -> Iterator[Table]:
    """Kill and damage runs at random until they end; compare them byte by byte with undisturbed ones.

    A fault comes after 0 to 10 new steps and up to 0.3 s later (`compare`: up to 1 s, so that it also comes while
    models are measured); damage hits a file of the newest checkpoint of two.
    """
    draw, scratch = random.Random(0), settings.scratch
    os.environ["MASKWRIGHT_CACHE"] = str(scratch / "cache")
    for module in _MODULES:
        with contextlib.suppress(ImportError):
            import_module(module)
    _write_data(scratch, draw)
    all_faults, rows = list[Fault](), []
    for name in filter(settings.wants, _FEWEST):
        expected = scratch / name
        for needed in ("bert", name) if name in ("distilbert", "fine-tuning") else (name,):
            if not (scratch / needed).exists():
                _until_ended(needed, scratch / needed)
        case_faults, counts, equal = list[Fault](), Counter[str](), "yes"
        while len(case_faults) < _FEWEST[name]:
            disturbed = scratch / f"{name}-disturbed-{counts['samples']}"
            case_faults += _disturb(name, disturbed, draw)
            learned, wanted = samples_learned(disturbed), samples_learned(expected)
            lost, repeated = (wanted - learned).total(), (learned - wanted).total()
            counts.update(samples=wanted.total(), lost=lost, repeated=repeated)
            equal = equal if _results(expected) == _results(disturbed) else "NO"
        all_faults += case_faults
        recovering = number(statistics.median([seconds for *_, seconds in case_faults if seconds] or [0.0]))
        rows.append((name, str(len(case_faults)), *map(str, counts.values()), recovering, equal))
    columns = ("samples", "samples lost", "samples repeated", "seconds to recover, median", "equal")
    if rows:
        yield Table("work", ("case", "faults", *columns), rows)
        lost_in = {name: [lost for each, lost, _ in all_faults if each == name] for name in FAULTS}
        losses = [(name, len(each), statistics.mean(each), max(each)) for name, each in lost_in.items() if each]
        cells = [(name, str(tries), number(mean), str(most)) for name, tries, mean, most in losses]
        yield Table("faults", ("fault", "tries", "steps lost, mean", "most"), cells)
    yield from elastic(settings)


def _write_data(folder: Path, draw: random.Random) -> None:
    sentences = [["".join(map(draw.choice, _WORDS)) + "。" for _ in range(draw.randint(4, 9))] for _ in range(60)]
    (folder / "corpus.txt").write_text("\n\n".join(map("".join, sentences)), encoding="utf-8")
    (folder / "synonyms.txt").write_text("喜欢 看见 记得\n上海 长城 大海\n", encoding="utf-8")
    table = [f"{text},{'喜欢' in text:d}" for each in sentences for text in each[:3]]
    (folder / "labeled.csv").write_text("\n".join(["text,label", *table]), encoding="utf-8")


def _work(name: str, out: Path) -> None:
    """Do a case, or continue it."""
    scratch, settings = out.parent, dict(_SETTINGS)
    if name == "fine-tuning":
        data: dict[str, Any] = {
            "train": scratch / "labeled.csv",
            "test": scratch / "labeled.csv",
            "reporter": Reporter(),
        }
        chosen = ["epochs=3", "batch_size=8", "learning_rate=0.001"]
        finetune(scratch / "bert", task="classification", out=out, seeds=2, set=chosen, **data, **_CHECKPOINTS)
    elif name == "compare":
        study.pretrain, study.finetune = partial(pretrain, **_CHECKPOINTS), partial(finetune, **_CHECKPOINTS)  # type: ignore[attr-defined]
        tasks = ("masked", f"classification={scratch / 'labeled.csv'}")
        arguments: dict[str, Any] = {
            "set": [*_TOY, "tokenizer.vocab_size=300"],
            "finetune_set": ["epochs=2", "batch_size=8"],
            **settings,
        }
        recipes = ["bert/tiny", "electra/tiny"]
        study.compare(scratch / "corpus.txt", recipes, out=out, tokens=8000, seeds=2, tasks=tasks, **arguments)
    else:
        teacher = scratch / "bert" if name == "distilbert" else None
        chosen = [*_TOY, *([] if teacher else [f"tokenizer.vocab_size={400 if name == 'roberta' else 300}"])]
        chosen += [f"replacement.table.source={scratch / 'synonyms.txt'}"] if name == "macbert" else []
        arguments = {"steps": 60, "set": chosen, "teacher": teacher, **settings, **_CHECKPOINTS}
        pretrain(scratch / "corpus.txt", out=out, recipe=f"{name}/tiny", **arguments)


def _start(name: str, out: Path) -> Any:
    def work() -> None:
        os.dup2(os.open(out.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
        record_steps(out.with_suffix(".steps"))
        _work(name, out)

    (process := get_context("fork").Process(target=work)).start()
    return process


def _until_ended(name: str, out: Path, process: Any = None) -> None:
    (process := process or _start(name, out)).join()
    assert not process.exitcode, f"{name} failed: {out.with_suffix('.log').read_text()[-2000:]}"


def _disturb(name: str, out: Path, draw: random.Random) -> Iterator[Fault]:
    """Start or resume until the work has ended, and yield the faults."""
    last: tuple[str, int] | None = None
    before: dict[Path, tuple[int, int]] = {}
    while True:
        begun, known, fault = time.monotonic(), len(steps_recorded(out)), draw.choice(FAULTS)
        process, wanted = _start(name, out), known + draw.randint(0, 10)
        while process.is_alive() and len(steps_recorded(out)) < wanted:
            time.sleep(0.02)
        process.join((1.0 if name == "compare" else 0.3) * draw.random())
        if is_alive := process.is_alive():
            os.kill(process.pid, getattr(signal, fault.partition(",")[0]))
            process.join()
            if "then" in fault:
                _damage(out, fault, draw)
        else:
            _until_ended(name, out, process)
        if last:
            new = steps_recorded(out)[known:]
            yield (*last, new[0]["time"] - begun if new else None)
        if not is_alive:
            return
        runs = [each.parent for each in out.rglob("metrics.jsonl") if each.parent.name != COPIES]
        after = {run: (_last_step(run / "metrics.jsonl"), _saved(run)) for run in runs}
        lost = 0
        for run, (done, saved) in after.items():
            # Steps that an earlier fault lost and that no session has repeated since are not counted again.
            counted = before[run][0] - before[run][1] if run in before and before[run][0] == done else 0
            lost += max(0, done - saved - counted)
        last, before = (fault, lost), after


def _damage(out: Path, fault: str, draw: random.Random) -> None:
    checkpoints = [sorted(folder.glob("step-*")) for folder in out.rglob("checkpoints")]
    if newest := max((each[-1] for each in checkpoints if len(each) > 1), key=os.path.getmtime, default=None):
        file = draw.choice(sorted(path for path in newest.rglob("*") if path.is_file()))
        data, place = bytearray(file.read_bytes()), draw.randrange(file.stat().st_size)
        data[place] ^= 1 << draw.randrange(8)
        file.write_bytes(data if "bit" in fault else data[:place])


def _last_step(metrics: Path) -> int:
    return max([0, *(int(row["step"]) for row in read_rows(metrics) if "loss" in row)])


def _saved(run: Path) -> int:
    for folder in sorted((run / "checkpoints").glob("step-*"), reverse=True):
        with contextlib.suppress(ValueError):
            checksums = read_record(folder / "state.json")["checksums"]
            compare_files(folder, {name: checksums[name] for name in checksums if not name.startswith(COPIES)})
            return int(folder.name.removeprefix("step-"))
    return _last_step(run / "metrics.jsonl") if (run / "model").exists() and (run / "run.json").exists() else 0


def _results(out: Path) -> dict[str, Any]:
    """Return everything that training determines: all but times and paths."""
    files = [file for pattern in _RESULTS for file in out.rglob(pattern) if file.parent.name != COPIES]
    contents: dict[str, Any] = {str(file.relative_to(out)): file.read_bytes() for file in files}
    for file in (*out.rglob("results.json"), *out.glob("report.json")):
        data = read_json(file)
        contents[str(file.relative_to(out))] = {key: data[key] for key in data.keys() - {"model", "made_by"}}
    return contents
