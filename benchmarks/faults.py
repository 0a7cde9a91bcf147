"""Faults: runs of the nine systems that are killed and damaged at random until they end, against undisturbed runs."""

import contextlib
import os
import random
import signal
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.runner import Settings
from benchmarks.table import Table, number
from maskwright.core.checksums import compare_files, read_record
from maskwright.training.metrics import read_rows
from maskwright.training.pretrain import pretrain
from maskwright.training.reporting import Reporter

SYSTEMS = ("bert", "roberta", "albert", "electra", "spanbert", "bert-wwm", "macbert", "ernie", "distilbert")
FAULTS = ("SIGKILL", "SIGTERM", "SIGHUP", "SIGKILL, then a flipped bit", "SIGKILL, then a file cut short")
_WORDS = ("小明", "老师", "船长"), ("喜欢", "看见", "记得"), ("人工智能", "上海", "长城", "大海")
_TOY = (
    *("encoder.hidden_size=32", "encoder.num_heads=2", "encoder.num_layers=2", "encoder.intermediate_size=64"),
    *("training.batch_sequences=8", "training.phases=[{share: 0.5, max_length: 16}, {share: 0.5, max_length: 32}]"),
)
_SETTINGS: Any = {"steps": 60, "clean": ["min_document_bytes=1"], "workers": 1, "checkpoint_minutes": 0.001}


def faults(settings: Settings) -> Iterator[Table]:
    """Kill and damage runs at random until they end; compare them byte by byte with undisturbed ones.

    A fault comes after 0 to 10 new steps and up to 0.3 s later; damage hits a file of the newest checkpoint of two.
    """
    draw, scratch = random.Random(0), settings.scratch
    lines = ["".join("".join(map(draw.choice, _WORDS)) + "。" for _ in range(draw.randint(4, 9))) for _ in range(60)]
    (scratch / "corpus.txt").write_text("\n\n".join(lines), encoding="utf-8")
    (scratch / "synonyms.txt").write_text("喜欢 看见 记得\n上海 长城 大海\n", encoding="utf-8")
    lost_in: dict[str, list[int]] = defaultdict(list)
    rows = []
    for name in filter(settings.wants, SYSTEMS):
        expected, disturbed, seconds = scratch / name, scratch / f"{name}-disturbed", list[float]()
        _start(name, expected).join()
        while found := _until_fault(name, disturbed, fault := draw.choice(FAULTS), draw):
            lost_in[fault].append(found[0])
            seconds.append(found[1])
        files = [expected / "metrics.jsonl", *expected.rglob("model.safetensors")]
        pairs = [(file.read_bytes(), (disturbed / file.relative_to(expected)).read_bytes()) for file in files]
        equal = "yes" if all(one == other for one, other in pairs) else "NO"
        recovering = number(statistics.median([each for each in seconds if each] or [0.0]))
        rows.append((name, str(len(seconds)), recovering, equal))
    columns = ("system", "faults", "seconds to recover, median", "equal bytes")
    yield Table("systems", columns, rows)
    losses = [(name, str(len(each)), number(statistics.mean(each)), str(max(each))) for name, each in lost_in.items()]
    yield Table("faults", ("fault", "tries", "steps lost, mean", "most"), losses)


def _start(name: str, out: Path) -> Any:
    (process := get_context("fork").Process(target=_train, args=(name, out))).start()
    return process


def _train(name: str, out: Path) -> None:
    class Resuming(Reporter):
        def say(self, topic: str, text: str) -> None:
            if topic in ("plan", "resuming"):
                out.with_suffix(".resumed").write_text(str(time.monotonic()))

    os.dup2(os.open(out.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    scratch, teacher = out.parent, out.parent / "bert" if name == "distilbert" else None
    settings = [*_TOY, *([] if teacher else [f"tokenizer.vocab_size={400 if name == 'roberta' else 300}"])]
    settings += [f"replacement.table.source={scratch / 'synonyms.txt'}"] if name == "macbert" else []
    given = {"cache": scratch / "cache", "reporter": Resuming(), **_SETTINGS}
    pretrain(scratch / "corpus.txt", out=out, recipe=f"{name}/tiny", set=settings, teacher=teacher, **given)


def _until_fault(name: str, out: Path, fault: str, draw: random.Random) -> tuple[int, float] | None:
    """Start or resume a run, inject a fault; return steps lost and seconds to resume (or 0), None if it has ended."""
    begun, known, lost_before = time.monotonic(), _last_step(out), _last_step(out) - _saved(out)
    process, wanted, later = _start(name, out), known + draw.randint(0, 10), 0.3 * draw.random()
    while process.is_alive() and _last_step(out) < wanted:
        time.sleep(0.005)
    process.join(later)
    if not process.is_alive():
        assert not process.exitcode, f"{name} failed: {out.with_suffix('.log').read_text()[-500:]}"
        return None
    os.kill(process.pid, getattr(signal, fault.partition(",")[0]))
    process.join()
    checkpoints = sorted((out / "checkpoints").glob("step-*"))
    if "then" in fault and len(checkpoints) > 1:
        file = draw.choice(sorted(checkpoints[-1].iterdir()))
        data, place = bytearray(file.read_bytes()), draw.randrange(file.stat().st_size)
        data[place] ^= 1 << draw.randrange(8)
        file.write_bytes(data if "bit" in fault else data[:place])
    resumed = out.with_suffix(".resumed")
    lost = _last_step(out) - _saved(out) - (lost_before if _last_step(out) == known else 0)
    return lost, max(0.0, float(resumed.read_text()) - begun) if resumed.exists() else 0.0


def _saved(out: Path) -> int:
    for folder in sorted((out / "checkpoints").glob("step-*"), reverse=True):
        with contextlib.suppress(ValueError):
            compare_files(folder, read_record(folder / "state.json")["checksums"])
            return int(folder.name.removeprefix("step-"))
    return 0


def _last_step(out: Path) -> int:
    return max([0, *(int(row["step"]) for row in read_rows(out / "metrics.jsonl") if "sequences" in row)])
