"""`maskwright.examine`: what is wrong with a run, from its records, checkpoints and metrics."""

import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from maskwright.checkpoints.weight_files import WEIGHTS
from maskwright.core.errors import CheckpointError, ConversionError
from maskwright.core.storage.checksums import compare_files, read_record
from maskwright.core.storage.tensor_files import read_tensors
from maskwright.reporting.metrics import read_rows
from maskwright.training.runs.monitor import Spikes
from maskwright.training.runs.run_directory import COPIES, ONE_SEED

_SERIES = {"loss": "loss", "gradient norm": "gradient_norm"}


class Finding(NamedTuple):
    """One fact about a run, and what to do about it ("" if nothing)."""

    topic: str
    text: str
    hint: str = ""


_RESUME = "Repeat the command of the run to resume it."


def examine(run: str | Path) -> list[Finding]:
    """Explain the state of a run directory of `pretrain` or `finetune`; raise CheckpointError if there is no run."""
    folder = Path(run).expanduser()
    if not (folder / "run.json").is_file():
        raise CheckpointError(f"{folder} holds no run (there is no run.json)", hint="Name the --out folder of a run.")
    return [*_record(folder), *_checkpoints(folder), *_metrics(folder), *_model(folder)]


def _record(folder: Path) -> Iterator[Finding]:
    try:
        record = read_record(folder / "run.json")
        compare_files(folder, {**record.get("files", {}), **record.get("outputs", {})})
    except ValueError as error:
        yield Finding("record", f"damaged: {error}", "Repeat the command of the run to restore that file.")
        return
    work = record.get("work", ONE_SEED)
    result: dict[str, Any] = record.get("result") or {}
    if record.get("finished") or result.get("finished"):
        yield Finding("record", f"{work}, finished")
    elif problem := record.get("problem"):
        yield Finding("record", f"{work}, stopped by an error: {problem}")
    else:
        stopped = result.get("stopped_by")
        how = f"stopped by {stopped}" if stopped else "not finished: it is running, or was killed"
        yield Finding("record", f"{work}, {how}", _RESUME)


def _checkpoints(folder: Path) -> Iterator[Finding]:
    for checkpoints in sorted(folder.glob("**/checkpoints")):
        newest, folders = "", sorted(checkpoints.glob("step-*"), reverse=True)
        for checkpoint in folders:
            try:
                record = read_record(checkpoint / "state.json")
                compare_files(checkpoint, record["checksums"])
                newest = newest or checkpoint.name
            except (ValueError, KeyError) as error:
                if not checkpoint.exists():  # The run has replaced it by a newer one meanwhile.
                    continue
                yield Finding("checkpoint", f"{checkpoint.name} is damaged: {error}")
        if folders and not newest:
            yield Finding("checkpoint", "none is intact", "Start again with another --out.")
        if newest:
            yield Finding("checkpoint", f"{checkpoints.relative_to(folder) / newest} is the newest that is intact")


def _metrics(folder: Path) -> Iterator[Finding]:
    for path in sorted(path for path in folder.glob("**/metrics.jsonl") if path.parent.name != COPIES):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            rows = [row for row in read_rows(path) if _is_number(row.get("loss"))]
        for warning in caught:
            yield Finding("metrics", str(warning.message), "A disk or another program has changed the file.")
        if not rows:
            continue
        spikes = Spikes()
        for row in rows:
            numbers = {name: row[key] for name, key in _SERIES.items() if _is_number(row.get(key))}
            for spike in spikes.find(row.get("phase", 0), numbers):
                yield Finding("spike", f"step {row['step']:,}: {spike}", "Several: lower the learning rate.")
        first, last = rows[0]["loss"], float(np.mean([row["loss"] for row in rows[-20:]]))
        fell = math.isfinite(last) and last < first
        yield Finding(
            "loss",
            f"{path.relative_to(folder)}: {first:.3f} in step {rows[0]['step']:,}, {last:.3f} in the last, up to step "
            f"{rows[-1]['step']:,}",
            "" if fell or len(rows) < 20 else "It has not fallen: train longer, or with a lower learning rate.",
        )


def _is_number(value: Any) -> bool:
    # JSON has integers that no float can hold.
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < 1e300)


def _model(folder: Path) -> Iterator[Finding]:
    path = folder / WEIGHTS
    if not path.is_file():
        yield Finding("model", "none saved yet", _RESUME)
        return
    try:
        read_tensors(path)
    except ConversionError as error:
        yield Finding("model", error.problem, f"{error.hint}.")
    else:
        yield Finding("model", f"{path.name} can be read, all weights are finite")
