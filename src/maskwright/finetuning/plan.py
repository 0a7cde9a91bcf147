"""What a fine-tuning will do, decided before training: task, settings with reasons, features."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from maskwright.core.spec import override
from maskwright.finetuning.examples import Example, TextExample
from maskwright.finetuning.features import Features
from maskwright.finetuning.fine_tuned import reads_segments
from maskwright.finetuning.hyperparameters import (
    Hyperparameters,
    fit_length,
    fit_numbers,
    fit_stride,
    fit_training,
    published,
    tokens_of,
)
from maskwright.finetuning.labeled import Labeled
from maskwright.finetuning.tasks.base import Task
from maskwright.training.device import Precision
from maskwright.training.existing import ExistingModel
from maskwright.training.resolve import Choice


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingData:
    """The features to train and to select models on, and the development examples."""

    train: Features
    dev: Features
    dev_examples: Sequence[Example]


def training_data(
    existing: ExistingModel, task: Task, settings: Hyperparameters, train: Sequence[Any], dev: Sequence[Any]
) -> TrainingData:
    """Return the features of the examples as the settings ask for them."""
    segments = reads_segments(existing.config, existing.tokenizer)

    def features(examples: Sequence[Any], *, training: bool) -> Features:
        return task.features(
            examples, existing.tokenizer, max_length=settings.max_length, segments=segments, training=training
        )

    learned = features(train, training=True)
    if settings.double_unordered and (others := swapped(train)):
        # A pair that is cut is one example that is cut, in either order.
        learned = replace(features([*train, *others], training=True), num_cut=learned.num_cut)
    return TrainingData(train=learned, dev=features(dev, training=False), dev_examples=dev)


def swapped(examples: Sequence[Any]) -> list[TextExample]:
    """Return every pair among the examples with its texts in the other order."""
    return [
        replace(example, texts=example.texts[::-1])
        for example in examples
        if isinstance(example, TextExample) and len(example.texts) == 2
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A planned fine-tuning: `choices` are adjusted settings with reasons, `source` is that of the published ones."""

    existing: ExistingModel
    from_scratch: bool
    labeled: Labeled
    settings: Hyperparameters
    task: Task
    data: TrainingData
    choices: tuple[Choice, ...]
    source: str
    system: str
    precision: Precision = "auto"

    @property
    def request(self) -> dict[str, Any]:
        """What must be equal to resume a run.

        Seeds may be added and test examples may change: nothing is selected by them.
        """
        return {
            "model": self.existing.fingerprint,
            "from_scratch": self.from_scratch,
            "task": self.task.to_json(),
            "data": {
                name: f"{len(part.examples):,} examples ({part.fingerprint})"
                for name, part in self.labeled.parts.items()
                if name != "test"
            },
            "settings": self.settings.model_dump(mode="json"),
            **({} if self.precision == "auto" else {"precision": self.precision}),
        }


def make_plan(
    existing: ExistingModel,
    labeled: Labeled,
    overrides: Sequence[tuple[str, Any]],
    *,
    system: str,
    as_published: bool,
    from_scratch: bool,
    task_overrides: Collection[str] = (),
    precision: Precision = "auto",
) -> Plan:
    """Plan a fine-tuning; `overrides` and `task_overrides` are the settings and the task's fields that the user set."""
    base, source = published(system, labeled.task.head, labeled.benchmark, existing.config)
    fixed = {name for name, _ in overrides}
    train, dev = (labeled.parts[name].examples for name in ("train", "dev"))
    settings, choices = fit_length(override(base, overrides), existing.max_length, fixed)
    task, more = fit_stride(labeled.task, base.max_length, settings.max_length, task_overrides)
    choices += more
    if labeled.benchmark is None:
        task, more = fit_numbers(task, train, task_overrides)
        choices += more
    data = training_data(existing, task, settings, train, dev)
    if not as_published:
        settings, more = fit_training(
            settings,
            data.train.num_units,
            fixed,
            width=existing.config.hidden_size,
            system=system,
            tokens=0.0 if from_scratch else tokens_of(existing),
        )
        choices += more
    return Plan(
        existing=existing,
        from_scratch=from_scratch,
        labeled=labeled,
        settings=settings,
        task=task,
        data=data,
        choices=choices,
        source=source,
        system=system,
        precision=precision,
    )
