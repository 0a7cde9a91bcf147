"""What a fine-tuning will do, decided before training: the settings of each grid point, with reasons."""

import contextlib
import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from maskwright.core.errors import RecipeError
from maskwright.core.files import read_json
from maskwright.core.spec import override, parse_overrides
from maskwright.finetuning.fine_tuned import reads_segments
from maskwright.finetuning.hyperparameters import (
    Hyperparameters,
    Pretrained,
    fit_length,
    fit_numbers,
    fit_stride,
    fit_training,
    known_system,
    published,
    system_named,
)
from maskwright.finetuning.labelled import Labelled
from maskwright.finetuning.tasks import Task
from maskwright.finetuning.training_data import TrainingDataMaker
from maskwright.training.device import Precision
from maskwright.training.existing import ExistingModel
from maskwright.training.resolve import Choice

Point = Mapping[str, Any]


def grid_points(grid: Sequence[str], settings: Hyperparameters) -> list[Point]:
    """Return all points, each a value for every field of the grid; one empty point without a grid.

    Args:
        grid: Texts "field=value,value,...".
        settings: What the values are put into, to check them.

    Raises:
        RecipeError: If a field is unknown or named twice, or a value does not fit.
    """
    axes: dict[str, list[Any]] = {}
    for text in grid:
        name, _, values = text.partition("=")
        field, chosen = _axis(name, values)
        if "." in field:
            raise RecipeError(
                f"--grid {text!r} names a part of a field",
                todo=f"Give whole values of the field, e.g. `{field.partition('.')[0]}=[...],[...]`.",
            )
        if field in axes:
            raise RecipeError(f"--grid names {field!r} twice", todo="Give all its values at once, `a,b,c`.")
        if not chosen:
            raise RecipeError(f"--grid {text!r} names no value", todo=f"Write `{field}=a,b,c`.")
        # As the field's type has them: 3e-4 and 0.0003 are one value.
        fitted = [getattr(override(settings, [(field, value)]), field) for value in chosen]
        axes[field] = list(dict.fromkeys(fitted))
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def _axis(name: str, values: str) -> tuple[str, list[Any]]:
    """Read "a,b", "[a,b]", or lists as values: "[a,b],[c,d]"."""
    texts = [f"{name}=[{values}]"]
    if values.lstrip().startswith("["):
        texts.insert(0, f"{name}={values}")
    for text in texts[:-1]:
        with contextlib.suppress(RecipeError):
            [(field, chosen)] = parse_overrides([text])
            return field, chosen
    [(field, chosen)] = parse_overrides(texts[-1:])
    return field, chosen


def point_name(point: Point) -> str:
    """Return a point's name, which is its folder's: "learning_rate=0.0001,batch_size=16"; "" of the empty one."""
    return ",".join(f"{name}={value}" for name, value in point.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPoint:
    """One point of the grid; without a grid the only one.

    Attributes:
        values: The fields' values; none without a grid.
        settings: Of its trainings.
        task: What is learnt: the request's task, fitted to the point's length.
        choices: What was fitted, and why.
    """

    values: Point
    settings: Hyperparameters
    task: Task[Any]
    choices: tuple[Choice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be done.

    Attributes:
        existing: The pretrained model.
        from_scratch: Whether its weights are drawn anew.
        labelled: Task and examples.
        data: Makes the features to learn from.
        points: The grid.
        source: Where the published settings stand.
        system: Whose they are.
        precision: Of matrix products, as the user asked for it.
    """

    existing: ExistingModel
    from_scratch: bool
    labelled: Labelled
    data: TrainingDataMaker
    points: tuple[PlannedPoint, ...]
    source: str
    system: str
    precision: Precision = "auto"

    @property
    def request(self) -> dict[str, Any]:
        """What must be the same for a folder to be gone on with.

        Seeds and points of the grid may be added, and the test examples may change: nothing is chosen by them.
        """
        return {
            "model": self.existing.fingerprint,
            "from_scratch": self.from_scratch,
            "task": self._each({point_name(point.values): point.task.to_json() for point in self.points}),
            "data": {
                name: f"{len(part.examples):,} examples ({part.fingerprint})"
                for name, part in (("train", self.labelled.train), ("dev", self.labelled.dev))
            },
            "settings": {
                name: self._each(
                    {point_name(point.values): point.settings.model_dump(mode="json")[name] for point in self.points}
                )
                for name in Hyperparameters.model_fields
                if name not in self.points[0].values
            },
            **({} if self.precision == "auto" else {"precision": self.precision}),
        }

    @staticmethod
    def _each(values: dict[str, Any]) -> Any:
        """Return a value; one a point where fitting made them differ."""
        first = next(iter(values.values()))
        return first if all(value == first for value in values.values()) else values

    @property
    def choices(self) -> tuple[Choice, ...]:
        """What was fitted at some point of the grid, each once."""
        return tuple(dict.fromkeys(choice for point in self.points for choice in point.choices))


def make_plan(
    existing: ExistingModel,
    labelled: Labelled,
    own: Sequence[tuple[str, Any]],
    grid: Sequence[str],
    *,
    system: str,
    as_published: bool,
    from_scratch: bool,
    own_of_task: Collection[str] = (),
    precision: Precision = "auto",
) -> Plan:
    """Decide what is done.

    Args:
        existing: The pretrained model.
        labelled: Task and examples.
        own: Fields of `Hyperparameters` that the user set.
        grid: Texts "field=value,value,...".
        system: Whose published settings count.
        as_published: Whether these are kept, however small model and data are.
        from_scratch: Whether the weights are drawn anew.
        own_of_task: Fields of the task that the user set.
        precision: Of matrix products, as the user asked for it.

    Raises:
        RecipeError: If a setting or the grid cannot be honoured.
        DataError: If the examples make no features for the task.
    """
    pretrained = Pretrained(
        family=existing.family,
        system=system,
        config=existing.config,
        max_length=existing.max_length,
        tokens=0.0 if from_scratch else _tokens_of(existing),
    )
    base, source = published(system, labelled.task.head, labelled.benchmark, existing.config)
    settings = override(base, own)
    data = TrainingDataMaker(
        tokenizer=existing.tokenizer,
        segments=reads_segments(existing.config, existing.tokenizer),
        train=labelled.train.examples,
        dev=labelled.dev.examples,
    )
    points = []
    for values in grid_points(grid, settings):
        fixed = {name for name, _ in own} | values.keys()
        here, choices = fit_length(settings.replace(**values), pretrained, fixed)
        task, more = fit_stride(labelled.task, base.max_length, here.max_length, own_of_task)
        choices += more
        if labelled.benchmark is None:
            task, more = fit_numbers(task, labelled.train.examples, own_of_task)
            choices += more
        if not as_published:
            here, more = fit_training(here, pretrained, data(task, here).train.num_units, fixed)
            choices += more
        points.append(PlannedPoint(values=values, settings=here, task=task, choices=choices))
    return Plan(
        existing=existing,
        from_scratch=from_scratch,
        labelled=labelled,
        data=data,
        points=tuple(points),
        source=source,
        system=system,
        precision=precision,
    )


def system_of(existing: ExistingModel, wanted: str | None) -> str:
    """Return whose published settings count: those asked for, or those of the recipe or family that the model says.

    Raises:
        RecipeError: If no settings are known for the system asked for.
    """
    return system_named(wanted) if wanted else known_system(_recipe_of(existing), existing.family)


def _recipe_of(existing: ExistingModel) -> str:
    """Return the name of the recipe or system that a model's folder tells; "" where it does not."""
    told = (_told(existing, "recipe.json", "name"), _told(existing, "run.json", "system"))
    return next((name for name in told if isinstance(name, str) and name), "")


def _tokens_of(existing: ExistingModel) -> float | None:
    """Return how many tokens a model was pretrained on, where its folder is a run that says so."""
    tokens = _told(existing, "run.json", "result", "tokens")
    begun_with = _told(existing, "run.json", "begun_with")
    # A run that went on from another model has seen more than it counts.
    return float(tokens) if isinstance(tokens, int | float) and tokens and not begun_with else None


def _told(existing: ExistingModel, file: str, *keys: str) -> Any:
    """Return an entry of a JSON file beside a model; None where there is none."""
    try:
        found = read_json(existing.folder / file)
        for key in keys:
            found = found[key]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found
