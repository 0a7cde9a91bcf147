"""What a fine-tuning will do, decided before training: the settings of each grid point, with reasons."""

import functools
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from maskwright.core.errors import RecipeError
from maskwright.core.files import read_json
from maskwright.core.spec import override, parse_overrides
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
    system_named,
)
from maskwright.finetuning.labeled import Labeled
from maskwright.finetuning.published_settings import SYSTEMS
from maskwright.finetuning.tasks import Task
from maskwright.training.device import Precision
from maskwright.training.existing import ExistingModel
from maskwright.training.resolve import Choice

Point = Mapping[str, Any]


def grid_points(grid: Sequence[str], settings: Hyperparameters) -> list[Point]:
    """Return all grid points (field -> value); one empty point without a grid.

    Args:
        grid: The `--grid` options, "field=value,value,...". Several options multiply.
        settings: Used to validate the values.

    Raises:
        RecipeError: If a field is unknown or given twice, or a value is invalid.
    """
    axes: dict[str, list[Any]] = {}
    for text in grid:
        name, _, values = text.partition("=")
        [(field, chosen)] = parse_overrides([f"{name}=[{values}]"])
        if len(chosen) == 1 and isinstance(chosen[0], list):  # `batch_size=[8, 16]`
            chosen = chosen[0]
        if "." in field:
            raise RecipeError(
                f"--grid {text!r} sets a part of a field",
                todo=f"Give whole values of the field, e.g. `{field.partition('.')[0]}=[...],[...]`.",
            )
        if field in axes:
            raise RecipeError(f"--grid sets {field!r} twice", todo="List all its values in one option, `a,b,c`.")
        if not chosen:
            raise RecipeError(f"--grid {text!r} has no value", todo=f"Write `{field}=a,b,c`.")
        # Converted to the field's type: 3e-4 and 0.0003 are one value.
        fitted = [getattr(override(settings, [(field, value)]), field) for value in chosen]
        axes[field] = list(dict.fromkeys(fitted))
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingData:
    """The features to train and to select models on, and the development examples."""

    train: Features
    dev: Features
    dev_examples: Sequence[Example]


MakeData = Callable[[Task, Hyperparameters], TrainingData]


def data_maker(existing: ExistingModel, train: Sequence[Any], dev: Sequence[Any]) -> MakeData:
    """Return the function that makes features of examples as settings ask for them, once for equal ones."""
    segments = reads_segments(existing.config, existing.tokenizer)

    @functools.cache
    def made(task: Task, max_length: int, both_orders: bool) -> TrainingData:
        def features(examples: Sequence[Any], *, training: bool) -> Features:
            return task.features(
                examples, existing.tokenizer, max_length=max_length, segments=segments, training=training
            )

        learned = features(train, training=True)
        if both_orders and (others := swapped(train)):
            # A pair that is cut is one example that is cut, in either order.
            learned = replace(features([*train, *others], training=True), num_cut=learned.num_cut)
        return TrainingData(train=learned, dev=features(dev, training=False), dev_examples=dev)

    return lambda task, settings: made(task, settings.max_length, settings.double_unordered)


def swapped(examples: Sequence[Any]) -> list[TextExample]:
    """Return every pair among the examples with its texts in the other order."""
    return [
        replace(example, texts=example.texts[::-1])
        for example in examples
        if isinstance(example, TextExample) and len(example.texts) == 2
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPoint:
    """A grid point; without a grid the only one, with empty `values`. `choices` are adjusted settings with reasons."""

    values: Point
    settings: Hyperparameters
    task: Task
    choices: tuple[Choice, ...]

    @property
    def name(self) -> str:
        """The point's folder, "learning_rate=0.0001,batch_size=16"; "" without a grid."""
        return ",".join(f"{name}={value}" for name, value in self.values.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A planned fine-tuning. `source` names the sources of the settings that were published for `system`."""

    existing: ExistingModel
    from_scratch: bool
    labeled: Labeled
    data: MakeData
    points: tuple[PlannedPoint, ...]
    source: str
    system: str
    precision: Precision = "auto"

    @property
    def request(self) -> dict[str, Any]:
        """What must be equal to resume a run.

        Seeds and grid points may be added and test examples may change: nothing is selected by them.
        """
        settings = {point.name: point.settings.model_dump(mode="json") for point in self.points}
        return {
            "model": self.existing.fingerprint,
            "from_scratch": self.from_scratch,
            "task": _common({point.name: point.task.to_json() for point in self.points}),
            "data": {
                name: f"{len(part.examples):,} examples ({part.fingerprint})"
                for name, part in self.labeled.parts.items()
                if name != "test"
            },
            "settings": {
                name: _common({point: values[name] for point, values in settings.items()})
                for name in Hyperparameters.model_fields
                if name not in self.points[0].values
            },
            **({} if self.precision == "auto" else {"precision": self.precision}),
        }

    @property
    def choices(self) -> tuple[Choice, ...]:
        """Adjusted settings of all points, without duplicates."""
        return tuple(dict.fromkeys(choice for point in self.points for choice in point.choices))


def _common(values: dict[str, Any]) -> Any:
    """Return the value that all points share, or one per point."""
    first = next(iter(values.values()))
    return first if all(value == first for value in values.values()) else values


def make_plan(
    existing: ExistingModel,
    labeled: Labeled,
    overrides: Sequence[tuple[str, Any]],
    grid: Sequence[str],
    *,
    system: str,
    as_published: bool,
    from_scratch: bool,
    task_overrides: Collection[str] = (),
    precision: Precision = "auto",
) -> Plan:
    """Plan a fine-tuning.

    `overrides` and `task_overrides` are the fields of `Hyperparameters` and of the task that the user set.

    Raises:
        RecipeError: If a setting or the grid is invalid.
        DataError: If no features can be made of the examples.
    """
    base, source = published(system, labeled.task.head, labeled.benchmark, existing.config)
    settings = override(base, overrides)
    data = data_maker(existing, labeled.parts["train"].examples, labeled.parts["dev"].examples)
    points = []
    for values in grid_points(grid, settings):
        fixed = {name for name, _ in overrides} | values.keys()
        here, choices = fit_length(settings.replace(**values), existing.max_length, fixed)
        task, more = fit_stride(labeled.task, base.max_length, here.max_length, task_overrides)
        choices += more
        if labeled.benchmark is None:
            task, more = fit_numbers(task, labeled.parts["train"].examples, task_overrides)
            choices += more
        if not as_published:
            here, more = fit_training(
                here,
                data(task, here).train.num_units,
                fixed,
                width=existing.config.hidden_size,
                system=system,
                tokens=0.0 if from_scratch else tokens_of(existing),
            )
            choices += more
        points.append(PlannedPoint(values=values, settings=here, task=task, choices=choices))
    return Plan(
        existing=existing,
        from_scratch=from_scratch,
        labeled=labeled,
        data=data,
        points=tuple(points),
        source=source,
        system=system,
        precision=precision,
    )


def system_of(existing: ExistingModel, wanted: str | None) -> str:
    """Return the system whose published settings apply: the user's choice, or the model's recipe or family.

    Raises:
        RecipeError: If no settings are known for the user's choice.
    """
    if wanted:
        return system_named(wanted)
    recorded = (_entry(existing, "recipe.json", "name"), _entry(existing, "run.json", "system"))
    recipe = next((name for name in recorded if isinstance(name, str) and name), "")
    return SYSTEMS.get(recipe.partition("/")[0], existing.family)


def tokens_of(existing: ExistingModel) -> float | None:
    """Return the number of pretraining tokens if the model's folder is a run, else None."""
    tokens = _entry(existing, "run.json", "result", "tokens")
    begun_with = _entry(existing, "run.json", "begun_with")
    # A run that started from another model has seen more tokens than it counted.
    return float(tokens) if isinstance(tokens, int | float) and tokens and not begun_with else None


def _entry(existing: ExistingModel, file: str, *keys: str) -> Any:
    """Return an entry of a JSON file in a model's folder, or None."""
    try:
        found = read_json(existing.folder / file)
        for key in keys:
            found = found[key]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found
