"""The test examples: asked once, by models that were chosen without them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwright.core.errors import CheckpointError
from maskwright.core.files import read_json, write_json
from maskwright.evaluation.fine_tuned import load
from maskwright.evaluation.labels import unlabelled
from maskwright.evaluation.scoring import features_of, predict_features, write_predictions
from maskwright.evaluation.seed_run import MODEL
from maskwright.training.device import Machine

PREDICTIONS = "test_predictions.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """What one seed's model made of the test examples.

    Attributes:
        metrics: None where they have no labels.
        num_cut: Examples that were cut to the model's length.
    """

    metrics: dict[str, float] | None
    num_cut: int


def measure_test(folder: Path, examples: Sequence[Any], machine: Machine) -> Tested:
    """Let a finished run's model predict the test examples, unless it has done so before.

    Writes test_predictions.jsonl and test.json.

    Args:
        folder: The run's folder.
        examples: The test examples.
        machine: Where to compute.
    """
    record = folder / "test.json"
    if record.exists():
        try:
            return Tested(**read_json(record))
        except (OSError, ValueError, TypeError) as error:
            raise CheckpointError(f"{record} cannot be read: {error}", todo="Remove it to measure again.") from error
    model = load(folder / MODEL).to(machine.device)
    features = features_of(model, examples, training=False)
    predictions = predict_features(model, features, examples)
    write_predictions(folder / PREDICTIONS, predictions)
    metrics = None if unlabelled(examples) else model.task.measure(predictions, examples)
    tested = Tested(metrics=metrics, num_cut=features.num_cut)
    write_json(record, {"metrics": tested.metrics, "num_cut": tested.num_cut})
    return tested
