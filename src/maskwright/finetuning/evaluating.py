"""`maskwright.evaluate`: measure a fine-tuned model on labeled examples; scores, predictions and their files."""

import functools
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from maskwright.core.errors import DataError, RecipeError
from maskwright.core.files import check_writable, write_text
from maskwright.core.tensors import check_finite
from maskwright.data.progress import Progress, no_progress
from maskwright.finetuning.benchmarks import SPLITS, Benchmark, Split
from maskwright.finetuning.checks import check_measurable, unlabeled
from maskwright.finetuning.examples import Example, TextExample
from maskwright.finetuning.features import Features, scoring_batches
from maskwright.finetuning.fine_tuned import FineTunedModel, load
from maskwright.finetuning.labeled import LabeledRequest
from maskwright.finetuning.readers import Paths
from maskwright.finetuning.readers.options import ReadAs
from maskwright.finetuning.tasks import task_named
from maskwright.finetuning.tasks.base import Prediction, Scores, Task
from maskwright.finetuning.tasks.question_answering import QuestionAnswering
from maskwright.training.device import Machine, Precision, computing_on, prepare_machine
from maskwright.training.reporting import OnConsole, Reporter

_TEXTS = {1: "single texts", 2: "pairs of texts"}
_GIVE = {1: "one column, `--text COLUMN`", 2: "both columns, `--text COLUMN --text2 COLUMN`"}


def refuse_other_texts(examples: Sequence[Example], trained: ReadAs, name: str) -> None:
    """Raise `DataError` on single texts for a model trained on pairs, and on pairs for one trained on single texts.

    Without columns in `trained` nothing is checked. `name` is the source.
    """
    expected = 2 if trained.get("text2") else 1
    for example in examples if trained.get("text") else ():
        if isinstance(example, TextExample) and len(example.texts) != expected:
            raise DataError(
                f"{name}: {_TEXTS[len(example.texts)]}, but this model was trained on {_TEXTS[expected]}",
                todo=f"Give {_TEXTS[expected]}; of a file name {_GIVE[expected]}.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The result of an evaluation.

    Attributes:
        task: The benchmark's name, or the kind of task.
        examples, skipped, cut: Numbers of examples, of skipped rows, of examples truncated to the model's length.
        metrics: The task's metrics, the main one first.
        by_class: Precision, recall, F1 and number of examples of each class or entity type; empty for other tasks.
        confusion: For each true class how often each class was predicted; empty for tasks other than classification.
    """

    model: str
    task: str
    file: str
    examples: int
    skipped: int
    cut: int
    precision: Precision
    metrics: dict[str, float]
    by_class: dict[str, dict[str, float]]
    confusion: dict[str, dict[str, int]]

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def evaluate(
    model: str | Path | FineTunedModel,
    *,
    task: str | None = None,
    data: str | Path | None = None,
    split: str = "dev",
    file: Paths | None = None,
    text: str | None = None,
    text2: str | None = None,
    label: str | None = None,
    read: Sequence[str] = (),
    out: str | Path | None = None,
    device: str = "auto",
    precision: Precision = "auto",
    reporter: Reporter | None = None,
) -> Evaluation:
    """Evaluate a fine-tuned model.

    Args:
        model: Written by `finetune`, a folder of a transformers class for such a task, or a loaded model.
        task: A benchmark, for its files, columns and metrics; None for the model's own task, with `file`. Labels that
            the model calls otherwise are mapped by `read`, "label_names=[[1, POSITIVE], [0, NEGATIVE]]".
        data: The folder with the benchmark's files.
        split: "train", "dev" or "test".
        file: A labeled file instead.
        text, text2, label: Its columns; the others are as in the training file, or guessed and reported.
        read: Further read options, "quoting=none".
        out: Write the predictions to this `.jsonl` file.
        device: "auto", "cpu", "cuda" or "cuda:N".
        precision: "fp32", "bf16" (autocast; weights and scores stay fp32), or "auto": bf16 on a GPU that supports it.
        reporter: Receives messages; None for standard error.

    Raises:
        MaskwrightError: If model, task and examples do not fit together, or the examples have no labels.

    Example:
        >>> maskwright.evaluate("runs/reviews", file="more_reviews.csv").metrics
        {'accuracy': 0.86}
    """
    if split not in SPLITS:
        raise RecipeError(f"unknown split {split!r}", allowed=", ".join(SPLITS))
    part: Split = next(name for name in SPLITS if name == split)
    if out is not None:
        check_writable(Path(out).expanduser().parent)
    machine = machine_to_score(device, precision)
    loaded = model if isinstance(model, FineTunedModel) else load(model)
    name = "the model" if isinstance(model, FineTunedModel) else str(model)
    kind, row = task_named(loaded.task.kind if task is None else task)
    if kind != loaded.task.kind:
        raise RecipeError(
            f"{name} was fine-tuned for {loaded.task.kind}, and {task!r} is {kind}",
            todo="Choose a benchmark of its kind, or leave --task out.",
        )
    request = LabeledRequest.of(
        task=task or kind,
        data=data,
        files={} if file is None else {part: file},
        columns={"text": text, "text2": text2, "label": label},
        read=read,
    )
    with reporter or OnConsole() as reporter:
        for note in () if loaded is model else loaded.notes:
            reporter.say("model", note)
        of_benchmark = request.benchmark is not None
        trained = {} if of_benchmark else loaded.read_as
        may_lack = of_benchmark and part == "test"
        examples = request.read(part, reporter, needed=not may_lack, called="file" if file else "", trained=trained)
        if examples is None:
            raise DataError(f"{request.data} holds no {part} examples", todo="Name the file, `--file FILE`.")
        if may_lack and unlabeled(examples.examples):
            raise DataError(
                f"{examples.name} has no labels: those of this part were not published",
                todo="Evaluate on `--split dev`, or predict these examples with `maskwright predict`.",
            )
        refuse_other_texts(examples.examples, loaded.read_as, examples.name)
        measured = loaded.task
        if (row := request.benchmark) is not None:
            measured = _measured_as(loaded.task, row)
        check_measurable(examples.examples, measured, examples.name)
        features = features_of(loaded.to(machine.device), examples.examples)
        with computing_on(machine):
            scores = score_units(loaded, features, reporter.stage, autocast=machine.autocast)
            check_finite(*scores)
        predictions = measured.predictions(scores, features, examples.examples, loaded.tokenizer)
        if out is not None:
            write_predictions(Path(out).expanduser(), predictions)
    return Evaluation(
        model=name,
        task=kind if row is None else row.name,
        file=examples.name,
        examples=len(examples.examples),
        skipped=len(examples.skipped),
        cut=features.num_cut,
        precision=machine.precision,
        metrics=measured.measure(predictions, examples.examples),
        **measured.report(predictions, examples.examples)._asdict(),
    )


def _measured_as(task: Task, row: Benchmark) -> Task:
    """Return a model's task with a benchmark's metrics."""
    if isinstance(task, QuestionAnswering):
        metric = row.task_fields["metric"]
        # Only SQuAD 2.0 has unanswerable questions.
        return task.replace(metric=metric, null_threshold=task.null_threshold if metric == "squad_v2" else 0.0)
    positive = {"positive": row.labels[1]} if len(row.labels) == 2 and row.labels[1] in task.labels else {}
    return task.replace(metrics=row.metrics, **positive)


@functools.cache
def machine_to_score(device: str, precision: Precision) -> Machine:
    """Choose device, precision and matmul backend as training does, once per process (see `prepare_machine`).

    So `evaluate` gives the scores that `finetune` measured on the same examples.

    Raises:
        DeviceError: If there is no such device, or it does not support the precision.
    """
    return prepare_machine(device, None, None, precision)


BATCH_TOKENS = {"cpu": 1024, "cuda": 8192}
"""Tokens of a forward pass, a few hundred MB for a base model. On CPU 1024 take 0.87 of the time of 8192 (LOG.md): they
fit the caches, and lengths in a batch are more alike."""


def features_of(model: FineTunedModel, examples: Sequence[Any]) -> Features:
    """Lay out examples as sequences for scoring (`Task.features`)."""
    return model.task.features(
        examples, model.tokenizer, max_length=model.max_length, segments=model.segments, training=False
    )


def predict_features(
    model: FineTunedModel,
    features: Features,
    examples: Sequence[Any],
    progress: Progress = no_progress,
    *,
    autocast: torch.dtype | None = None,
) -> list[Prediction]:
    """Return one prediction per example, in order (arguments: see `score_units`)."""
    scores = score_units(model, features, progress, autocast=autocast)
    check_finite(*scores)
    return model.task.predictions(scores, features, examples, model.tokenizer)


def score_units(
    model: FineTunedModel,
    features: Features,
    progress: Progress = no_progress,
    *,
    autocast: torch.dtype | None = None,
) -> list[Scores]:
    """Return the fp32 scores of each unit, in order, without dropout.

    The model is on its device, and in evaluation mode afterwards. `progress` is called after each forward pass with the
    tokens done; `autocast` None is fp32.
    """
    model.eval()
    device = next(model.parameters()).device
    scores: list[Scores | None] = [None] * features.num_units
    done, total = 0, len(features.ids)
    # Weights are converted and packed once for all batches.
    states = model.packed("fp32" if autocast is None else "bf16")
    precision = torch.autocast(device.type, autocast or torch.bfloat16, enabled=autocast is not None)
    with torch.inference_mode(), precision:
        for batch in scoring_batches(features, tokens=BATCH_TOKENS[device.type], device=device):
            by_unit = model.task.by_unit(model.scores_from(states, batch), batch)
            for unit, its_scores in zip(batch.unit_numbers.tolist(), by_unit, strict=True):
                scores[unit] = its_scores
            done += batch.batch.num_tokens
            progress("scoring", done, total)
    return [unit for unit in scores if unit is not None]


def plain(prediction: Prediction) -> dict[str, Any]:
    """Return a prediction as JSON-compatible data."""
    # Not `asdict`, whose deep copy takes longer than writing the file.
    return {
        "key": prediction.key,
        "value": prediction.value,
        "score": prediction.score,
        "details": dict(prediction.details),
    }


def summary(prediction: Prediction) -> tuple[str, str]:
    """Return a prediction's score and value for display; each entity has its own score."""
    score = "" if prediction.score is None else f"{prediction.score:.1%}"
    if "entities" in prediction.details:
        entities = [
            f"{one['text']} ({one['label']} {one['start']}-{one['end']}"
            + (")" if one["score"] is None else f", {one['score']:.1%})")
            for one in prediction.details["entities"]
        ]
        return score, ", ".join(entities) or "no entities"
    if "option" in prediction.details:
        return score, prediction.details["option"]
    value = prediction.value
    if isinstance(value, float):
        return score, f"{value:.4g}"
    return score, " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def write_predictions(path: Path, predictions: Sequence[Prediction]) -> None:
    """Write a `.jsonl` file of predictions atomically, one per line."""
    write_text(path, "".join(json.dumps(plain(one), ensure_ascii=False) + "\n" for one in predictions))
