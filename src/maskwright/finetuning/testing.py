"""The test examples: asked once, by models that were chosen without them."""

from dataclasses import asdict, dataclass
from pathlib import Path

from maskwright.core.errors import CheckpointError
from maskwright.core.files import read_json, write_json
from maskwright.data.progress import Progress, no_progress
from maskwright.finetuning.fine_tuned import load
from maskwright.finetuning.labelled import Part
from maskwright.finetuning.labels import unlabelled
from maskwright.finetuning.scoring import features_of, predict_features, write_predictions
from maskwright.finetuning.seed_run import MODEL
from maskwright.training.device import Machine

PREDICTIONS = "test_predictions.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class TestScores:
    """What one seed's model made of the test examples.

    Attributes:
        examples: Fingerprint of the examples.
        metrics: None where they have no labels.
        num_cut: Examples that were cut to the model's length.
    """

    examples: str
    metrics: dict[str, float] | None
    num_cut: int


def measure_test(folder: Path, test: Part, machine: Machine, progress: Progress = no_progress) -> TestScores:
    """Let a finished run's model predict the test examples, unless it has predicted these very ones before.

    Writes test_predictions.jsonl and test.json.

    Args:
        folder: The run's folder.
        test: The test examples.
        machine: Where to compute, and how exactly.
        progress: Called after each forward pass with the tokens done.
    """
    record = folder / "test.json"
    fingerprint = test.fingerprint
    if record.exists():
        try:
            before = TestScores(**read_json(record))
        except (OSError, ValueError, TypeError) as error:
            raise CheckpointError(f"{record} cannot be read: {error}", todo="Remove it to measure again.") from error
        if before.examples == fingerprint:
            return before
    model = load(folder / MODEL).to(machine.device)
    features = features_of(model, test.examples, training=False)
    predictions = predict_features(model, features, test.examples, progress, autocast=machine.autocast)
    write_predictions(folder / PREDICTIONS, predictions)
    metrics = None if unlabelled(test.examples) else model.task.measure(predictions, test.examples)
    scores = TestScores(examples=fingerprint, metrics=metrics, num_cut=features.num_cut)
    write_json(record, asdict(scores))
    return scores
