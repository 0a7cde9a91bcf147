"""Scores of a model on examples: one path for `finetune`, `evaluate` and `predict`. `maskwright.evaluate`."""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from maskwright.checkpoints.location import locate
from maskwright.checkpoints.sentence_folder import MODULES
from maskwright.core.errors import DataError, MaskwrightError
from maskwright.core.storage.files import refuse_overwrite
from maskwright.core.types import IntArray
from maskwright.finetuning.examples import Example, ExampleFile, TextExample
from maskwright.finetuning.features import Features, Layout
from maskwright.finetuning.labeled import check_measurable, read_for_model, report_file, unknown_tags
from maskwright.finetuning.model.fine_tuned import FineTunedModel, load
from maskwright.finetuning.predictions import check_output, write_predictions
from maskwright.finetuning.readers import Data, sources_of
from maskwright.finetuning.readers.options import ReadAs, ReadOptions, with_overrides
from maskwright.finetuning.results import Evaluation as Evaluation
from maskwright.finetuning.tasks.base import Prediction, Scores
from maskwright.inference.batches import TextEncoder, check_finite
from maskwright.inference.long_texts import choose_length
from maskwright.inference.model import Model
from maskwright.inference.precision import Precision, choose_precision
from maskwright.machine.devices import choose_device
from maskwright.machine.threads import threads_of_head
from maskwright.reporting.console import ConsoleReporter
from maskwright.reporting.reporter import Progress, Reporter, no_progress
from maskwright.training.ranks.device import Machine, prepare_machine, use_machine
from maskwright.training.ranks.device import Precision as TrainingPrecision
from maskwright.training.ranks.distributed import all_gather_object, rank, world_size

_TEXTS = {1: "single texts", 2: "pairs of texts"}


def evaluate(
    model: str | Path | Model,
    *,
    file: Data,
    text: str | None = None,
    text2: str | None = None,
    label: str | None = None,
    read: Sequence[str] = (),
    out: str | Path | None = None,
    max_length: int | None = None,
    windows: bool = False,
    device: str = "auto",
    precision: Precision = "auto",
    reporter: Reporter | None = None,
) -> Evaluation:
    """Evaluate a fine-tuned model, or sentence embeddings.

    Args:
        model: Output directory of `maskwright finetune`, or a transformers model for the task. In Python also a loaded
            model, which settles device and precision.
        file: A labeled file.
        text: Column of the text (words, question). Default: as in the training file, or guessed from the header and
            reported.
        text2: Column of the second text (context).
        label: Column of the label (tags, answers). Default: as for the text.
        read: Option for reading files, e.g. `quoting=none`. Labels that the model calls otherwise are mapped by
            `label_names=[[1, POSITIVE], [0, NEGATIVE]]`.
        out: Write the predictions to this .jsonl, .csv or .tsv file.
        max_length: Maximum tokens of a sequence, special ones included. Default: that of the model.
        windows: Read longer texts in overlapping windows, whose probabilities, numbers or embeddings are averaged,
            instead of truncating them. Tagging and question answering always read windows.
        device, precision: As for `load`.
        reporter: Where messages go; None for standard error.

    Raises:
        MaskwrightError: If model and examples do not fit together, or the examples have no labels.

    Example:
        >>> maskwright.evaluate("runs/reviews", file="more_reviews.csv").metrics
        {'accuracy': 0.86}
    """
    if out is not None:
        check_output(Path(out))
        refuse_overwrite(out, sources_of(file, "file"))
    options = with_overrides(ReadOptions(), {"text": text, "text2": text2, "label": label}, read)
    if isinstance(model, str | Path) and (locate(model) / MODULES).is_file():
        if out is not None:
            raise MaskwrightError("--out has no effect on sentence embeddings", hint="Leave it out.")
        from maskwright.finetuning.embedding.training import evaluate_embedding  # `predict` needs none of it.

        return evaluate_embedding(
            model,
            file=file,
            options=options,
            max_length=max_length,
            windows=windows,
            device=device,
            precision=precision,
            reporter=reporter,
        )
    with model_to_score(model, device, precision, reporter) as (loaded, encoder, reporter):
        task = loaded.task
        examples = read_file(file, loaded, options, reporter)
        check_measurable(examples, task)
        if warning := unknown_tags(examples.examples, task):
            reporter.message("file", warning)
        layout = choose_layout(loaded, max_length, windows, name_of(model))
        predictions = predict_examples(loaded, encoder, examples.examples, reporter.stage, layout)
        if out is not None:
            write_predictions(Path(out).expanduser(), predictions)
    return Evaluation(
        model=name_of(model),
        task=task.kind,
        file=examples.name,
        examples=len(examples.examples),
        skipped=len(examples.skipped),
        truncated=sum(each.truncated for each in predictions),
        precision=encoder.precision,
        metrics=task.measure(predictions, examples.examples),
        **task.report(predictions, examples.examples)._asdict(),
    )


@contextlib.contextmanager
def model_to_score(
    model: str | Path | Model, device: str, precision: Precision, reporter: Reporter | None
) -> Iterator[tuple[FineTunedModel, TextEncoder, Reporter]]:
    """Load a model onto a device that computes while the block runs, and report its notes.

    Raises MaskwrightError if a loaded model is on another device than the requested one, or has another precision.
    """
    if isinstance(model, Model):
        loaded, encoder = cast(FineTunedModel, model.with_task()), model.texts
        chosen, location = encoder.precision, encoder.device
        if device not in ("auto", location.type, str(location)) or precision not in ("auto", chosen):
            raise MaskwrightError(
                f"device {device!r}, precision {precision!r}: this model was loaded on {location}, in {chosen}",
                hint=f"Leave both out, or load it again: `maskwright.load(..., device={device!r}, "
                f"precision={precision!r})`.",
            )
        device = str(location)
    else:
        chosen = choose_precision(precision, choose_device(device))
    machine = machine_to_score(device, "bf16" if chosen == "bf16" else "fp32")
    with reporter or ConsoleReporter() as reporter, use_machine(machine):
        if not isinstance(model, Model):
            loaded = load(model).to(machine.device)
            for note in loaded.notes:
                reporter.message("model", note)
            encoder = TextEncoder(loaded.encoder, chosen)
        yield loaded, encoder, reporter


@functools.cache
def machine_to_score(device: str, precision: TrainingPrecision) -> Machine:
    """Choose device and matmul backend as training does, once per process: scores equal `finetune`'s."""
    return prepare_machine(device, None, None, precision)


def read_file(file: Data, model: FineTunedModel, options: ReadOptions, reporter: Reporter) -> ExampleFile[Any]:
    """Read a file for a model as its training file was read, and report on it."""
    examples = read_for_model(file, model.task.kind, options, model.read_as)
    report_file("file", examples, reporter)
    refuse_other_texts(examples.examples, model.read_as, examples.name)
    return examples


def refuse_other_texts(examples: Sequence[Example], trained: ReadAs, name: str) -> None:
    """Raise `DataError` on single texts for a model trained on pairs, and on pairs for one trained on single texts.

    Without columns in `trained` nothing is checked. `name` is the source.
    """
    expected = 2 if trained.get("text2") else 1
    for example in examples if trained.get("text") else ():
        if isinstance(example, TextExample) and len(example.texts) != expected:
            raise DataError(
                f"{name}: {_TEXTS[len(example.texts)]}, but this model was trained on {_TEXTS[expected]}",
                hint="Give single texts; with a file, add `--text COLUMN`."
                if expected == 1
                else "Give pairs of texts: in Python `[(one, other)]`, or `--file FILE --text COLUMN --text2 COLUMN`.",
            )


def name_of(model: str | Path | Model) -> str:
    return str(model) if isinstance(model, str | Path) else getattr(model, "name", "the model")


def choose_layout(model: FineTunedModel, max_length: int | None, windows: bool, name: str) -> Layout:
    """Return the layout of inputs that the user chose (`predict`); `name` is the model's, for messages."""
    if windows and model.task.head == "choice":
        raise MaskwrightError(
            f"the model {name} is for multiple choice, which does not read windows", hint="Leave --windows out."
        )
    longest = choose_length(max_length, model.max_length, model.encoder.config.max_positions, name)
    return replace(model.layout, max_length=longest, windows=windows)


def predict_examples(
    model: FineTunedModel,
    encoder: TextEncoder,
    examples: Sequence[Any],
    progress: Progress = no_progress,
    layout: Layout | None = None,
) -> list[Prediction]:
    """Return one prediction per example; `layout` None is the model's (other arguments: see `score_features`)."""
    features = model.task.features(examples, layout or model.layout, training=False)
    scores = score_features(model, encoder, features, progress)
    check_finite(scores)
    return model.task.predictions(scores, features, examples)


def score_features(
    model: FineTunedModel, encoder: TextEncoder, features: Features, progress: Progress = no_progress
) -> Scores:
    """Return the head's fp32 outputs for all features, in order, without dropout (shapes: see `Task.predictions`).

    The model is on its device, and in evaluation mode afterwards. `encoder` computes its hidden states. `progress`
    is called after each forward pass with the tokens done. Each rank scores a share and gets the scores of all.
    """
    model.eval()
    device = next(model.parameters()).device
    sequences, segments = features.by_sequence(features.ids), features.by_sequence(features.segment_ids)
    positions = model.head.positions_by_sequence(features)
    encoded = encoder.encode_positions(sequences, positions, segments=segments, share=slice(rank(), None, world_size()))
    scored: list[tuple[IntArray, Scores]] = []
    done, total = 0, len(features.ids)
    with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=encoder.precision == "bf16"):
        for batch, rows, hidden in encoded:
            with threads_of_head(hidden, hidden.shape[1]):
                scored.append((rows, model.scores_of(hidden).cpu().numpy()))
            done += batch.batch.num_tokens
            progress("scoring (tokens)", min(total, done * world_size()), total)
    scores = np.zeros((sum(map(len, positions)), model.task.num_outputs), np.float32)
    for part in all_gather_object(scored):
        for rows, each in part:
            scores[rows] = each
    return scores


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
    value = prediction.details.get("option", prediction.value)
    if isinstance(value, float):
        return score, f"{value:.4g}"
    return score, " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
