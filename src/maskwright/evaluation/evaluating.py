"""`maskwright.evaluate`: measure a fine-tuned model on labelled examples."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from maskwright.core.devices import choose_device
from maskwright.core.errors import DataError, RecipeError
from maskwright.evaluation.benchmarks import SPLITS, Benchmark, Split
from maskwright.evaluation.fine_tuned import FineTunedModel, load
from maskwright.evaluation.labelled import LabelledRequest, Paths, task_named
from maskwright.evaluation.labels import check_measurable
from maskwright.evaluation.readers import Kind
from maskwright.evaluation.scoring import features_of, predict_features, write_predictions
from maskwright.training.reporting import OnConsole, Reporter


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What was measured.

    Attributes:
        model: The model, as it was called.
        task: The benchmark's name, or the kind of task.
        file: Which examples.
        examples: How many.
        skipped: Rows that were left out.
        cut: Examples that were cut to the model's length.
        metrics: The task's, the main one first.
    """

    model: str
    task: str
    file: str
    examples: int
    skipped: int
    cut: int
    metrics: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            name: getattr(self, name) for name in ("model", "task", "file", "examples", "skipped", "cut", "metrics")
        }


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
    reporter: Reporter | None = None,
) -> Evaluation:
    """Measure a fine-tuned model.

    Args:
        model: What `finetune` wrote, a folder of transformers' class for such a task, or a loaded model.
        task: A benchmark, for its files and columns; None: the model's kind of task, with `file`.
        data: The folder of the benchmark's own files.
        split: Which of them: "train", "dev" or "test".
        file: A labelled file instead.
        text, text2, label: Its columns; those left out are guessed, and said.
        read: Further settings of reading, "quoting=none".
        out: Write the predictions to this `.jsonl` file.
        device: "auto", "cpu", "cuda" or "cuda:N".
        reporter: Where to talk; None for standard error.

    Raises:
        MaskwrightError: If model, task and examples do not fit together, or the examples have no labels.

    Example:
        >>> maskwright.evaluate("runs/reviews", file="more_reviews.csv").metrics
        {'accuracy': 0.86}
    """
    if split not in SPLITS:
        raise RecipeError(f"unknown split {split!r}", allowed=", ".join(SPLITS))
    part: Split = next(name for name in SPLITS if name == split)
    place = choose_device(device)
    loaded = model if isinstance(model, FineTunedModel) else load(model)
    name = "the model" if isinstance(model, FineTunedModel) else str(model)
    found = task_named(task) if task is not None else cast(Kind, loaded.task.kind)
    kind = found.kind if isinstance(found, Benchmark) else found
    if kind != loaded.task.kind:
        raise RecipeError(
            f"{name} was fine-tuned for {loaded.task.kind}, and {task!r} is {kind}",
            todo="Choose a benchmark of its kind, or leave --task out.",
        )
    request = LabelledRequest.of(
        task=task or kind,
        data=data,
        files={} if file is None else {part: file},
        columns={"text": text, "text2": text2, "label": label},
        read=read,
    )
    with reporter or OnConsole() as talk:
        examples = request.read(part, talk, needed=True)
        if examples is None:
            raise DataError(f"{request.data} holds no {part} examples", todo="Name the file, `--file FILE`.")
        check_measurable(examples.examples, loaded.task.labels, examples.name)
        features = features_of(loaded.to(place), examples.examples, training=False)
        predictions = predict_features(loaded, features, examples.examples, talk.stage)
        if out is not None:
            write_predictions(Path(out).expanduser(), predictions)
    return Evaluation(
        model=name,
        task=found.name if isinstance(found, Benchmark) else kind,
        file=examples.name,
        examples=len(examples.examples),
        skipped=len(examples.skipped),
        cut=features.num_cut,
        metrics=loaded.task.measure(predictions, examples.examples),
    )
