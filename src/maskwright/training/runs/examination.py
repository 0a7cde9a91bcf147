"""`maskwright.examine`: what is wrong with a run, from its records, checkpoints and metrics; or what a model is."""

import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from maskwright.checkpoints.checkpoint import Checkpoint, read_checkpoint
from maskwright.checkpoints.location import check_folder
from maskwright.checkpoints.sentence_folder import MODULES, SentenceModules
from maskwright.checkpoints.weight_files import WEIGHTS
from maskwright.core.errors import CheckpointError, MaskwrightError
from maskwright.core.storage.checksums import compare_files, read_record
from maskwright.core.text.amounts import listed, pluralize
from maskwright.reporting.metrics import read_rows
from maskwright.training.runs.monitor import Spikes
from maskwright.training.runs.run_directory import COPIES, ONE_SEED

_SERIES = {"loss": "loss", "gradient norm": "gradient_norm"}


class Finding(NamedTuple):
    """One fact about a run or a model, and what to do about it ("" if nothing)."""

    topic: str
    text: str
    hint: str = ""


_RESUME = "Repeat the command of the run to resume it."
_CONFIG = "config.json"


def examine(folder: str | Path) -> list[Finding]:
    """Explain the state of a run directory of `pretrain` or `finetune`, or describe a model folder.

    Raises CheckpointError if the folder holds neither, ConversionError if it holds a model that cannot be read.
    """
    folder = Path(folder).expanduser()
    if (folder / "run.json").is_file():
        return [*_record(folder), *_checkpoints(folder), *_metrics(folder), *_model_of_run(folder)]
    check_folder(folder)
    if not any((folder / name).is_file() for name in (_CONFIG, WEIGHTS, MODULES)):
        raise CheckpointError(
            f"{folder} holds no run (there is no run.json) and no model (there is no {_CONFIG})",
            hint="Name the --out folder of a run, or a model folder.",
        )
    return list(_model(read_checkpoint(folder)))


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
        some = min(20, len(rows) // 2 + 1)  # One batch is too few to compare.
        first, last = (float(np.mean([row["loss"] for row in part])) for part in (rows[:some], rows[-some:]))
        fell = math.isfinite(last) and last < first
        yield Finding(
            "loss",
            f"{path.relative_to(folder)}: {first:.3f} in the first steps, {last:.3f} in the last, up to step "
            f"{rows[-1]['step']:,}",
            "" if fell or len(rows) < 20 else "It has not fallen: train longer, or with a lower learning rate.",
        )


def _is_number(value: Any) -> bool:
    # JSON has integers that no float can hold.
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < 1e300)


def _model_of_run(folder: Path) -> Iterator[Finding]:
    if not any((folder / name).is_file() for name in (_CONFIG, WEIGHTS)):
        yield Finding("model", "none saved yet", _RESUME)
        return
    try:
        yield from _model(read_checkpoint(folder))
    except MaskwrightError as error:
        yield _problem("model", error)


def _model(model: Checkpoint) -> Iterator[Finding]:
    """Describe a model that was read: `read_checkpoint` has compared shapes, and found all weights finite."""
    config = model.config
    yield Finding(
        "model",
        f"{model.family}, {pluralize(config.num_layers, 'layer')} of {config.hidden_size}, "
        f"{pluralize(config.num_heads, 'attention head')}, feed-forward {config.intermediate_size}, vocabulary of "
        f"{model.vocab_size:,}",
    )
    count = sum(weights.numel() for weights in model.state.values())
    yield Finding("weights", f"{pluralize(count, 'parameter')}, all finite")
    if model.unexpected:
        yield Finding("weights", f"not used: {listed(model.unexpected, 6)}")
    labels = "" if model.task is None or not model.task.labels else f"; labels: {listed(model.task.labels)}"
    yield Finding("heads", (", ".join(model.heads) or "none") + labels)
    yield Finding("length", f"at most {model.max_length} tokens")
    try:
        tokenizer = model.tokenizer
    except MaskwrightError as error:
        yield _problem("tokenizer", error)
    else:
        case = ", lowercase" if tokenizer.lowercase else ""
        yield Finding("tokenizer", f"{tokenizer.kind}{case}, {tokenizer.special_tokens.vocab_size:,} entries")
    if (model.folder / MODULES).is_file():
        try:
            model.modules.check(model.name)
            yield Finding("modules", _describe(model.modules))
        except MaskwrightError as error:
            yield _problem("modules", error)
    if model.generator is not None:
        try:
            size = read_checkpoint(model.generator).config
            yield Finding("generator", f"{pluralize(size.num_layers, 'layer')} of {size.hidden_size}")
        except MaskwrightError as error:
            yield _problem("generator", error)


def _describe(modules: SentenceModules) -> str:
    parts = [f"{modules.pooling} pooling"]
    if modules.dense is not None:
        parts.append(f"a linear layer {modules.dense.in_features} -> {modules.dense.out_features}")
    if modules.normalize:
        parts.append("normalization")
    if modules.trained_dimensions:
        parts.append(f"trained for {listed(map(str, modules.trained_dimensions))} dimensions")
    return ", ".join(parts)


def _problem(topic: str, error: MaskwrightError) -> Finding:
    return Finding(topic, error.problem, error.hint and f"{error.hint.removesuffix('.')}.")
