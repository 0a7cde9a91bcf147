"""Run a fine-tuned model over many examples: features, batches, scores, predictions, prediction files."""

import functools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from maskwright.core.files import write_text
from maskwright.data.progress import Progress, no_progress
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.finetuning.batching import scoring_batches
from maskwright.finetuning.features import FeatureBatch, Features
from maskwright.finetuning.fine_tuned import FineTunedModel
from maskwright.finetuning.tasks.base import Prediction, Scores, Task
from maskwright.finetuning.tasks.question_answering import QuestionAnswering, tune_null_threshold
from maskwright.model.states import states_of
from maskwright.training.device import Machine, Precision, prepare_machine


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


def features_of(model: FineTunedModel, examples: Sequence[Any], *, training: bool) -> Features:
    """Lay out examples as sequences for a model (`Task.features`)."""
    return model.task.features(
        examples, model.tokenizer, max_length=model.max_length, segments=model.segments, training=training
    )


def predict_examples(
    model: FineTunedModel,
    examples: Sequence[Any],
    progress: Progress = no_progress,
    *,
    autocast: torch.dtype | None = None,
) -> list[Prediction]:
    """Return one prediction per example, in order.

    Args:
        model: On its device.
        examples: Of the model's kind of task.
        progress: Called after each forward pass with the tokens done.
        autocast: Autocast dtype, None for fp32.
    """
    features = features_of(model, examples, training=False)
    return predict_features(model, features, examples, progress, autocast=autocast)


def predict_features(
    model: FineTunedModel,
    features: Features,
    examples: Sequence[Any],
    progress: Progress = no_progress,
    *,
    autocast: torch.dtype | None = None,
) -> list[Prediction]:
    """Return one prediction per example from existing features (see `predict_examples`)."""
    scores = score_units(model, features, progress, autocast=autocast)
    return model.task.predictions(scores, features, examples, model.tokenizer)


def score_units(
    model: FineTunedModel,
    features: Features,
    progress: Progress = no_progress,
    *,
    autocast: torch.dtype | None = None,
) -> list[Scores]:
    """Return the fp32 scores of each unit, in order, without dropout (see `predict_examples`)."""
    model.eval()
    device = next(model.parameters()).device
    scores: list[Scores | None] = [None] * features.num_units
    done, total = 0, len(features.ids)
    # Weights are converted and packed once for all batches.
    states = states_of(model.encoder, "fp32" if autocast is None else "bf16")
    precision = torch.autocast(device.type, autocast or torch.bfloat16, enabled=autocast is not None)
    with torch.inference_mode(), precision:
        for batch in batches_to_score(model, features):
            by_unit = model.task.by_unit(model.scores_from(states, batch), batch)
            for unit, its_scores in zip(batch.unit_numbers.tolist(), by_unit, strict=True):
                scores[unit] = its_scores
            done += batch.batch.num_tokens
            progress("scoring", done, total)
    return [unit for unit in scores if unit is not None]


def batches_to_score(model: FineTunedModel, features: Features) -> Iterator[FeatureBatch]:
    """Yield all units once, in batches on the model's device."""
    device = next(model.parameters()).device
    return scoring_batches(
        features,
        tokens=BATCH_TOKENS[device.type],
        pad=model.tokenizer.special_tokens.pad,
        device=device,
    )


def tuned(
    task: Task[Any], scores: Sequence[Scores], features: Features, examples: Sequence[Any], tokenizer: Tokenizer
) -> Task[Any]:
    """Return the task with `null_threshold` of SQuAD 2.0 tuned on development examples; other tasks unchanged."""
    if isinstance(task, QuestionAnswering) and task.impossible:
        predictions = task.predictions(scores, features, examples, tokenizer)
        return task.with_null_threshold(tune_null_threshold(predictions, examples))
    return task


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
    """Return a prediction's score and value for display."""
    score = "" if prediction.score is None else f"{prediction.score:.1%}"
    if "entities" in prediction.details:
        found = prediction.details["entities"]
        return score, ", ".join(f"{one['text']} ({one['label']} {one['start']}-{one['end']})" for one in found)
    if "option" in prediction.details:
        return score, prediction.details["option"]
    value = prediction.value
    if isinstance(value, float):
        return score, f"{value:.4g}"
    return score, " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def write_predictions(path: Path, predictions: Sequence[Prediction]) -> None:
    """Write a `.jsonl` file of predictions atomically, one per line."""
    write_text(path, "".join(json.dumps(plain(one), ensure_ascii=False) + "\n" for one in predictions))
