"""Sentence embeddings: `maskwright.finetune(task="embedding")`, trained and evaluated by sentence-transformers.

OUT/              the model: a folder of sentence-transformers, which `maskwright.embed` reads too; README.md, its card
OUT/results.json  scores, before training too, and settings; results.md, the same as tables
OUT/run.json      the request, the command, versions, whether it finished
OUT/checkpoints/  of sentence-transformers' trainer, until training has finished
"""

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from maskwright.checkpoints.card_facts import CardFacts, read_card_facts
from maskwright.checkpoints.checkpoint import Checkpoint
from maskwright.checkpoints.quiet import quiet
from maskwright.checkpoints.sentence_folder import MODULES
from maskwright.core.errors import DataError, DeviceError, RecipeError
from maskwright.core.extras import require
from maskwright.core.spec import override, parse_overrides
from maskwright.core.storage.checksums import file_checksums
from maskwright.core.storage.files import check_writable
from maskwright.core.storage.tensor_files import full_disk_named
from maskwright.core.text.amounts import pluralize
from maskwright.finetuning.baselines import word_overlap
from maskwright.finetuning.embedding.data import DEFAULTS, TASK, EmbeddingSettings, Rows, Texts, check_rows, rows_of
from maskwright.finetuning.hyperparameters import Hyperparameters, fit_training, system_of, tokens_of
from maskwright.finetuning.labeled import (
    READING_FILE,
    LabeledRequest,
    load_read_as,
    read_for_model,
    report_file,
    report_truncated,
    save_read_as,
    warn_of,
    with_held_out,
    without_unlabeled,
)
from maskwright.finetuning.published.benchmarks import SPLITS
from maskwright.finetuning.readers import Data
from maskwright.finetuning.readers.options import ReadAs, ReadOptions, to_keep
from maskwright.finetuning.readers.tables import COLUMNS
from maskwright.finetuning.results import Evaluation, FineTuning, Results, SeedRow, card, data_of, write_results
from maskwright.fitting.rules import Choice, Rule, apply_rules, report_fitted
from maskwright.inference.long_texts import IGNORED, choose_length
from maskwright.inference.model import load
from maskwright.inference.precision import Precision
from maskwright.machine.devices import choose_device
from maskwright.reporting.console import ConsoleReporter
from maskwright.reporting.reporter import Reporter
from maskwright.reporting.trackers import TRACKER_FILES
from maskwright.training.ranks.device import Precision as TrainingPrecision
from maskwright.training.ranks.device import restore_machine, use_machine
from maskwright.training.ranks.interrupt import stop_on_signals
from maskwright.training.runs.run_directory import RECORD, RunDirectory, environment
from maskwright.training.runs.session import open_session
from maskwright.training.start.existing import open_existing

_LIBRARIES = ("sentence_transformers", "datasets", "accelerate")
_RECORDED = ("sentence-transformers", "transformers", "accelerate")
_NOT_OUTPUTS = ("checkpoints/*", RECORD, "results.*", "README.md", READING_FILE, ".*", *TRACKER_FILES)
"""Patterns of files that are not the model, and are written again by each call."""
_EMBEDDER_RATE = 2e-5
"""Of sentence-transformers' training overview, for models that embed sentences already; higher rates damaged them
(docs/fine-tuning.md)."""


def finetune_embedding(
    model: str | Path,
    request: LabeledRequest,
    *,
    out: Path,
    seed: int,
    set: Sequence[str],
    as_published: bool,
    device: str,
    precision: TrainingPrecision,
    checkpoint_minutes: float,
    trackers: Sequence[str],
    reporter: Reporter | None,
) -> FineTuning:
    """Train sentence embeddings; the arguments are those of `finetune`."""
    require(f"--task {TASK}", "embedding", *_LIBRARIES)
    overrides = parse_overrides(set)
    settings = override(EmbeddingSettings(), overrides)  # Report misspelled fields before reading files.
    if choose_device(device).index:
        raise DeviceError(
            f"sentence-transformers' trainer uses the first GPU, not {device}",
            hint=f"Use `CUDA_VISIBLE_DEVICES={device.rpartition(':')[2]}` with `--device cuda`.",
        )
    check_writable(out)
    defaults = EmbeddingSettings().model_dump(mode="json")
    folder = RunDirectory(out, work="fine-tuning", resumable="checkpoints/checkpoint-*", defaults=defaults)
    with reporter or ConsoleReporter() as reporter:
        existing = open_existing(str(model))
        modules = existing.modules
        modules.check(existing.name)
        _check_dimensions(settings.dimensions, existing)
        folder.refuse_model(existing.folder)
        parts, read_as, notes = _read(request, reporter)
        rows = rows_of(parts["train"])
        settings, choices = _fitted(rows, parts["train"], overrides, existing, as_published)
        longest = {name: settings.max_length if name == "train" else existing.max_length for name in parts}
        truncated = {name: _num_truncated(part, existing, longest[name]) for name, part in parts.items()}
        wanted = {
            "model": existing.fingerprint,
            "task": TASK,
            "data": {name: f"{pluralize(len(p.examples), 'example')} ({p.fingerprint})" for name, p in parts.items()},
            "settings": settings.model_dump(mode="json"),
            "seed": seed,
            **({} if precision == "auto" else {"precision": precision}),
        }
        with open_session(folder, wanted, reporter) as (record, _):
            record.pop("problem", None)
            if record.get("finished"):
                reporter.message("finished", f"{out} is already trained")
            else:
                machine, _ = restore_machine(record.get("machine", {}), device, None, precision)
                record |= {
                    "fitted": [choice.to_json() for choice in choices],
                    "machine": machine.to_json(),
                    "environment": {**environment(), **{name: version(name) for name in _RECORDED}},
                }
                folder.write_record(record)
                report_fitted(choices, reporter, field="setting")
                limit = f"more than {settings.max_length} tokens"
                effect = IGNORED
                if settings.max_length != existing.max_length:
                    effect += f"; `--set max_length={existing.max_length}` is the model's limit"
                report_truncated(parts, {"train": truncated["train"]}, limit, effect, reporter)
                rest = {name: count for name, count in truncated.items() if name != "train"}
                report_truncated(parts, rest, f"more than {existing.max_length} tokens", IGNORED, reporter)
                with quiet(), use_machine(machine), stop_on_signals() as stop, full_disk_named(out):
                    from maskwright.finetuning.embedding.trainer import train  # It needs the extra.

                    seconds = checkpoint_minutes * 60
                    trained = train(existing, parts, settings, seed, folder, machine, seconds, stop, trackers, reporter)
                if trained is None:
                    return FineTuning(folder=out, finished=False, results=None, stopped_by=stop.signal)
                overlap = word_overlap(parts) if rows == "scored pairs" else {}
                record |= {**trained, "overlap": overlap}
            notes = (f"Trained on {rows} with {record['loss']}; {modules.pooling} pooling.", *notes)
            if not record["row"]["best_epoch"]:
                notes = (*notes, _decline_message(record, settings))
                reporter.message("warning", notes[-1])
            results = _results(record, existing.name, data_of(parts, truncated), rows, settings, notes)
            save_read_as(out, read_as)
            facts = read_card_facts(existing.folder, existing.name)
            write_results(out, results, _model_card(out.name, results, facts))
            outputs = file_checksums(out, without=_NOT_OUTPUTS)
            folder.write_record({**record, "outputs": outputs, "finished": True})
            shutil.rmtree(folder.checkpoints, ignore_errors=True)
    return FineTuning(folder=out, finished=True, results=results, stopped_by=None)


def _check_dimensions(dimensions: Sequence[int], existing: Checkpoint) -> None:
    dense = existing.modules.dense
    size = existing.config.hidden_size if dense is None else dense.out_features
    if too_large := [each for each in dimensions if each >= size]:
        raise RecipeError(
            f"--dimensions has {too_large[0]}, and the vectors of {existing.name} have {size}",
            allowed=f"1 to {size - 1}",
        )
    if repeated := [each for each, count in Counter(dimensions).items() if count > 1]:
        raise RecipeError(
            f"--dimensions has {repeated[0]} more than once: {', '.join(map(str, dimensions))}",
            allowed=f"different sizes, each 1 to {size - 1}",
            hint=f"Use `--dimensions {','.join(map(str, dict.fromkeys(dimensions)))}`.",
        )


def _results(
    record: Mapping[str, Any],
    model: str,
    data: Mapping[str, Mapping[str, Any]],
    rows: Rows,
    settings: EmbeddingSettings,
    notes: tuple[str, ...],
) -> Results:
    """Return the results of a trained run; `record` is in its `run.json`."""
    return Results(
        task=TASK,
        kind=TASK,
        model=model,
        data=data,
        settings=settings.model_dump(mode="json"),
        rows=(SeedRow(**record["row"]),),
        notes=notes,
        precision=record["machine"]["precision"],
        pairs=rows != "texts",
        baselines={
            name: record[key]
            for name, key in (("before training", "before"), ("TF-IDF cosine", "overlap"))
            if record.get(key)
        },
        sizes=record.get("sizes", {}),
    )


def _decline_message(record: Mapping[str, Any], settings: EmbeddingSettings) -> str:
    """Return the message for a training after which dev is worse than before."""
    before, trained = (next(iter(record[name]["dev"].items())) for name in ("before", "trained"))
    return (
        f"Training made the model worse, so the model is saved as it was: {before[0]} on dev fell from {before[1]:.4f} "
        f"to {trained[1]:.4f} in the best epoch. Try `--set learning_rate={settings.learning_rate / 4:.1g}` or more "
        "examples, with a new --out."
    )


def evaluate_embedding(
    model: str | Path,
    *,
    file: Data,
    options: ReadOptions,
    max_length: int | None,
    windows: bool,
    device: str,
    precision: Precision,
    reporter: Reporter | None,
) -> Evaluation:
    """Evaluate the vectors of a folder of sentence-transformers on scored pairs, pairs or triplets.

    Arguments are those of `evaluate`.
    """
    require("evaluating sentence embeddings", "embedding", *_LIBRARIES)
    existing = open_existing(str(model))
    existing.modules.check(existing.name)
    longest = choose_length(max_length, existing.max_length, existing.config.max_positions, existing.name)
    with reporter or ConsoleReporter() as reporter, quiet():
        options = options.replace(labels="if_there")
        examples = read_for_model(file, TASK, options, load_read_as(existing.folder))
        report_file("file", examples, reporter)
        rows, notes = rows_of(examples), list[str]()
        if rows == "texts":
            raise DataError(
                f"{examples.name} has one text per row: it cannot be evaluated",
                hint="Name scored pairs, pairs or triplets.",
            )
        examples = without_unlabeled(examples, reporter, notes)
        check_rows(examples)
        from maskwright.finetuning.embedding.trainer import score_model

        loaded = load(existing, device=device, precision=precision)
        read = {"max_length": longest, "windows": windows}
        metrics = score_model(loaded, existing.folder, rows, examples.examples, read)
    return Evaluation(
        model=str(model),
        task=TASK,
        file=examples.name,
        examples=len(examples.examples),
        skipped=len(examples.skipped),
        truncated=0 if windows else _num_truncated(examples, existing, longest),
        precision=loaded.precision,
        metrics=metrics,
        by_class={},
        confusion={},
    )


def _num_truncated(part: Texts, existing: Checkpoint, longest: int | None) -> int:
    """Return how many examples have a text that is truncated to `longest` tokens, special ones included."""
    most = (longest or existing.max_length) - 2
    columns = zip(*(example.texts for example in part.examples), strict=True)
    truncated = [[len(ids) > most for ids in existing.tokenizer.encode_batch(column)] for column in columns]
    return sum(map(any, zip(*truncated, strict=True)))


def _model_card(name: str, results: Results, facts: CardFacts) -> str:
    vectors = f'vectors = SentenceTransformer("{name}").encode(["A text.", "Another text."])'
    return card(
        name,
        results,
        facts,
        library="sentence-transformers",
        tag="sentence-similarity",
        about=[f"Sentence embeddings: {results.source}, fine-tuned."],
        legend=f"These are the weights after epoch {results.best.best_epoch:g}, the best on dev if there is one.",
        use=["from sentence_transformers import SentenceTransformer", "", vectors],
    )


def _read(request: LabeledRequest, reporter: Reporter) -> tuple[dict[str, Texts], ReadAs, tuple[str, ...]]:
    """Read all parts; return them, how later files are read, and notes."""
    without_names = replace(request, options=request.options.replace(**dict.fromkeys(COLUMNS, ())))
    # Lines of text have no columns: those that are named are of the other files.
    has_lines = request.train_format == "text"
    train = (without_names if has_lines else request).read("train", reporter)
    assert train is not None
    notes: list[str] = []
    parts, rows = {"train": without_unlabeled(train, reporter, notes)}, rows_of(train)
    check_rows(parts["train"], training=True)
    read_as: ReadAs = to_keep(request.options, train.read_as)
    if rows != "scored pairs":
        # The columns of other files may be others: e.g. training on pairs, evaluation with scores.
        read_as = {name: value for name, value in read_as.items() if name not in COLUMNS}
    if rows == "texts" and not has_lines:  # They cannot be evaluated.
        request = without_names
    for name in SPLITS[1:]:
        file = request.read(name, reporter, read_as)
        if file is None:
            continue
        kind = rows_of(file)
        if kind == "texts" or (kind != rows == "scored pairs"):
            lacking = "one text per row" if kind == "texts" else "no similarities, as the training pairs have"
            problem = f"{file.name} has {lacking}: it cannot be evaluated"
            if name == "dev":
                raise DataError(problem, hint="Name scored pairs, pairs or triplets with --dev, or leave it out.")
            notes.append(f"{problem}.")
            reporter.message(name, problem)
            continue
        parts[name] = without_unlabeled(file, reporter, notes)
        check_rows(parts[name])
    if "dev" not in parts and rows == "texts":
        notes.append("Without development pairs (--dev) nothing selects the epoch: the last one's weights are kept.")
        reporter.message("dev", notes[-1])
    elif "dev" not in parts:
        parts["train"], parts["dev"] = with_held_out(parts["train"], reporter, notes)
        check_rows(parts["train"], training=True)
        check_rows(parts["dev"])
    notes += warn_of(parts, reporter)
    return parts, read_as, tuple(notes)


def _fitted(
    rows: Rows, train: Texts, overrides: Sequence[tuple[str, Any]], existing: Checkpoint, as_published: bool
) -> tuple[EmbeddingSettings, tuple[Choice, ...]]:
    """Return the settings, fitted to small models and little data by the rules of the other tasks, with reasons."""
    settings = override(DEFAULTS[rows], overrides)
    longest = existing.max_length
    length = settings.max_length or longest
    rule: Rule[None] = Rule("max_length", min(length, longest), f"the model was trained on {longest} tokens")
    settings, choices = apply_rules(settings.replace(max_length=length), [rule], None)
    if as_published:
        return settings, choices
    fixed = {name for name, _ in overrides}
    if (existing.folder / MODULES).is_file():
        rule = Rule("learning_rate", _EMBEDDER_RATE, "already a sentence embedder; higher rates damage it")
        settings, more = apply_rules(settings, [rule], None, fixed)
        choices += more
        fixed.add("learning_rate")
    # The other texts of a batch are the negatives: a smaller batch is another task.
    fixed.add("batch_size")
    shared = ("epochs", "batch_size", "learning_rate")
    _, more = fit_training(
        Hyperparameters(**{name: getattr(settings, name) for name in shared}),
        len(train.examples),
        fixed,
        width=existing.config.hidden_size,
        system=system_of(existing, None),
        pretraining_tokens=tokens_of(existing),
    )
    more = tuple(choice for choice in more if choice.field in shared)
    return settings.replace(**{choice.field: choice.chosen for choice in more}), choices + more
