"""A model of the server: what it can do, and its results as plain data."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from maskwright.core.errors import DataError
from maskwright.finetuning.load import TaskModel, load
from maskwright.finetuning.predict import OBJECT_KINDS, sample_input
from maskwright.finetuning.predictions import plain
from maskwright.finetuning.tasks.base import Prediction
from maskwright.inference.commands import filled_to_json
from maskwright.inference.embed import choose_dimensions
from maskwright.inference.long_texts import TruncationWarning, choose_length, truncated_texts
from maskwright.inference.model import Model
from maskwright.inference.precision import Precision
from maskwright.reporting.reporter import Progress, Reporter, no_progress

_EXAMPLE = "A [MASK] of text."
TaskName = Literal["fill-mask", "detect", "embed", "predict", "rerank"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Plain data or a vector for one input, whether the input was truncated, and other warnings of its batch."""

    value: Any
    truncated: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A pretrained model under its name in requests, or a fine-tuned one, which predicts and, of pairs, ranks.

    `max_length` and `windows` are those of `Model.embed` and `maskwright.predict`.
    """

    name: str
    model: Model
    max_length: int | None = None
    windows: bool = False

    @property
    def tasks(self) -> tuple[TaskName, ...]:
        if isinstance(self.model, TaskModel):
            tuned = self.model.fine_tuned
            reads_pairs = bool(tuned.read_as.get("text2")) or not tuned.read_as.get("text")
            is_scorer = tuned.task.head == "sequence" and tuned.task.num_outputs == 1
            return ("predict", "rerank") if reads_pairs and is_scorer else ("predict",)
        fills = "mlm" in self.model.heads or self.model.generator is not None
        detects = "rtd" in self.model.heads
        return (*(("fill-mask",) if fills else ()), *(("detect",) if detects else ()), "embed")

    def describe(self) -> dict[str, Any]:
        """Return what a client needs to know, as plain data."""
        facts: dict[str, Any] = {
            "tasks": list(self.tasks),
            "max_length": self.max_length or self.model.max_length,
            "windows": self.windows,
            "precision": self.model.precision,  # Perhaps not the requested one.
        }
        if isinstance(self.model, TaskModel):
            tuned = self.model.fine_tuned
            facts["kind"] = tuned.task.kind
            facts["labels"] = list(tuned.task.labels)
            facts["pairs"] = bool(tuned.read_as.get("text2"))
        else:
            dense = self.model.modules.dense
            width = self.model.encoder.config.hidden_size if dense is None else dense.out_features
            facts["dimensions"] = choose_dimensions(None, self.model.modules, width, self.name)
            facts["trained_dimensions"] = list(self.model.modules.trained_dimensions)
        return facts

    def tokens(self, texts: Sequence[str], windows: bool | None = None) -> int:
        """Return how many tokens the model reads of the texts, special ones included; of windows each token once.

        `windows` None is the model's.
        """
        lengths = [len(ids) + 2 for ids in self.model.tokenizer.encode_batch(list(texts))]
        longest = self.max_length or self.model.max_length
        return sum(lengths if self._reads_windows(windows) else [min(length, longest) for length in lengths])

    def _reads_windows(self, requested: bool | None) -> bool:
        return self.windows if requested is None else requested

    def run(
        self, task: str, inputs: Sequence[Any], options: Mapping[str, Any], progress: Progress = no_progress
    ) -> list[Result]:
        """Return one result per input: of `Model`'s method of that name, or of `maskwright.predict`.

        "rerank" gives the score of each pair. `windows` None in the options is the model's. `progress` is called after
        each forward pass of "embed", "predict" and "rerank"; what it raises ends the computation.

        Raises MaskwrightError if an input or option is not what the model takes.
        """
        model, options = self.model, dict(options)
        windows = self._reads_windows(options.pop("windows", None))
        reading: dict[str, Any] = {"max_length": self.max_length, "windows": windows}
        with warnings.catch_warnings(record=True, action="always", category=UserWarning) as caught:
            values: list[Any]
            if isinstance(model, TaskModel):
                kind = model.fine_tuned.task.kind
                if kind not in OBJECT_KINDS and any(isinstance(each, Mapping) for each in inputs):
                    # `predict` reads dictionaries as rows of a file, of which it leaves out empty ones.
                    raise DataError(f"an object as an input of a model for {kind}", allowed="texts, or pairs of texts")
                # A pair is a list in JSON.
                read = [tuple(each) if isinstance(each, list) else each for each in inputs]
                tuned = model.predict(read, reporter=_StageReporter(progress), **reading)
                values = [
                    _score(each)
                    if task == "rerank"
                    else {key: value for key, value in plain(each).items() if key != "key"}
                    for each in tuned
                ]
            elif task == "fill-mask":
                values = [each["masks"] for each in filled_to_json(inputs, model.fill_mask(inputs, **options))]
            elif task == "detect":
                values = [[asdict(token) for token in each.tokens] for each in model.detect(inputs, **options)]
            else:
                values = list(model.embed(inputs, progress=progress, **reading, **options))
        truncated = truncated_texts(caught)
        others = dict.fromkeys(str(each.message) for each in caught if each.category is not TruncationWarning)
        return [
            Result(value=value, truncated=number in truncated, warnings=tuple(others))
            for number, value in enumerate(values)
        ]


class _StageReporter(Reporter):
    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def stage(self, name: str, done: int, total: int | None) -> None:
        self._progress(name, done, total)


def _score(prediction: Prediction) -> float:
    """Return the only score of a prediction: its number, or the probability of its only label."""
    of_labels: list[float] = [*prediction.details.get("probabilities", {}).values(), prediction.value]
    return of_labels[0]


def load_served(
    name: str,
    path: str | Path,
    *,
    device: str,
    precision: Precision,
    max_length: int | None = None,
    windows: bool = False,
) -> ServedModel:
    """Load a pretrained or fine-tuned model and use it once, so that the first request finds everything ready.

    Raises MaskwrightError if it cannot be loaded, or not on this device or with this precision.
    """
    model = load(path, device=device, precision=precision)
    model.name = name  # Messages to clients have no paths of this machine.
    choose_length(max_length, model.max_length, model.encoder.config.max_positions, name)
    served = ServedModel(name=name, model=model, max_length=max_length, windows=windows)
    if not isinstance(model, TaskModel):
        if "fill-mask" in served.tasks:
            model.fill_mask(_EXAMPLE)
        if "detect" in served.tasks:
            model.detect(_EXAMPLE)
        # By the mean: the folder's own modules may not be supported, which each request then says.
        model.embed(_EXAMPLE, pooling="mean")
        return served
    served.run("predict", [sample_input(model.fine_tuned, [_EXAMPLE] * 3)], {})
    return served
