"""How a model is fine-tuned: the published settings of its system, fitted to a small model and little data."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, PositiveInt

from maskwright.core.amounts import short_count
from maskwright.core.errors import RecipeError, unknown_name
from maskwright.core.spec import Spec
from maskwright.core.types import FamilyName, HeadKind
from maskwright.finetuning.batching import steps_of_epoch
from maskwright.finetuning.benchmarks import Benchmark
from maskwright.finetuning.published_settings import PUBLISHED, RATES_AT_WIDTH_768, SYSTEMS, Published
from maskwright.finetuning.tasks import QuestionAnswering, Regression, Task
from maskwright.model.config import EncoderConfig
from maskwright.recipes.optimization import AdamW
from maskwright.training.resolve import Choice
from maskwright.training.schedule import Shape

PUBLISHED_WIDTH = 768
"""Rates are published for models of this width and above; narrower ones bear more."""
SHORT_PRETRAINING = 1e9
"""Tokens of pretraining below which a model is far from done, and bears more than any published one."""
SHORT_PRETRAINING_RATE_AT_WIDTH_128 = 1e-3
"""The best of 1e-4, 3e-4, 1e-3, 3e-3 at width 128, and in proportion to 1 / width (5e-4) the best of 5e-5, 1.5e-4,
5e-4, 1e-3 at width 256 (SST-2, 2000 examples, models pretrained for minutes: see docs/fine-tuning.md)."""
FEWEST_STEPS = 300
"""Steps that little data is given: with 2000 examples dev rose until step 252 of 315 (docs/fine-tuning.md)."""
MOST_EPOCHS = 20.0
"""Epochs that little data is trained for instead of three (Mosbach et al. 2021, section 6; measured here too: see
docs/fine-tuning.md)."""
SECOND_MOMENT_MEMORY = 3000
"""Steps below which leaving out Adam's bias correction matters: three memories of a second moment of .999."""

Rate = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]


class Hyperparameters(Spec):
    """What fine-tuning can be told. The defaults are BERT's (Devlin et al. 2019, 4.1 and A.3; bert:run_classifier.py).

    Attributes:
        epochs: Passes over the training examples; a fraction ends within a pass.
        steps: Optimizer steps instead; None: the epochs count.
        batch_size: Units in a step: texts or pairs, windows of a question's context, questions with all their options.
        learning_rate: The peak.
        warmup_share: Share of the steps in which the rate rises.
        schedule: How the rate moves (`training.schedule.rate_factor`).
        weight_decay: Decoupled, per unit of learning rate.
        decayed: "matrices" spares biases and LayerNorm, "all" decays every parameter (fairseq).
        betas, eps, bias_correction: Adam's.
        layer_decay: Each layer learns this share of the rate of the layer above (ELECTRA); 1 is the same rate for all.
        hidden_dropout, attention_dropout: In the encoder.
        head_dropout: On what the head reads (also ernie: finetune/classifier.py, electra: classification_tasks.py).
        clip_norm: Gradients are scaled down to this global norm; 0 is off.
        max_length: Tokens of a sequence at most, special ones counted.
        double_unordered: Whether pairs are learnt from in the other order too (ELECTRA: `double_unordered`).
        patience: Training stops once so many epochs in a row were worse on the development examples than the best
            before; 0 never stops early.
    """

    epochs: Positive = 3.0
    steps: PositiveInt | None = None
    batch_size: PositiveInt = 32
    learning_rate: Positive = 3e-5
    warmup_share: Rate = 0.1
    schedule: Shape = "linear_jump"
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    decayed: Literal["matrices", "all"] = "matrices"
    betas: tuple[Rate, Rate] = (0.9, 0.999)
    eps: Positive = 1e-6
    bias_correction: bool = False
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    hidden_dropout: Rate = 0.1
    attention_dropout: Rate = 0.1
    head_dropout: Rate = 0.1
    clip_norm: Annotated[float, Field(ge=0)] = 1.0
    max_length: Annotated[int, Field(ge=8)] = 128
    double_unordered: bool = False
    patience: Annotated[int, Field(ge=0)] = 10

    @property
    def optimizer(self) -> AdamW:
        """The optimizer's constants."""
        return AdamW(
            betas=self.betas,
            eps=self.eps,
            weight_decay=self.weight_decay,
            decayed=self.decayed,
            bias_correction=self.bias_correction,
        )

    def steps_of_epoch(self, num_units: int) -> int:
        """Steps of one pass; the last one may be smaller."""
        return steps_of_epoch(num_units, self.batch_size)

    def total_steps(self, num_units: int) -> int:
        """Steps of the whole training."""
        return self.steps or max(1, round(self.epochs * self.steps_of_epoch(num_units)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pretrained:
    """What is known of the model before it is fine-tuned.

    Attributes:
        family: Its Hugging Face classes.
        system: The system it was pretrained as ("macbert"); "" where nobody says.
        config: The encoder's shape.
        max_length: Longest sequence it was trained on.
        tokens: Tokens it was pretrained on; None where nobody says.
    """

    family: FamilyName
    system: str
    config: EncoderConfig
    max_length: int
    tokens: float | None = None


def known_system(recipe: str, family: FamilyName) -> str:
    """Return the system whose published settings suit a model.

    Args:
        recipe: The name of the recipe it was trained by ("macbert/base"), or ""; an unknown name is passed over.
        family: The model's, which decides where the recipe does not.
    """
    return SYSTEMS.get(recipe.partition("/")[0], family)


def system_named(name: str) -> str:
    """Return the system that someone asks for.

    Raises:
        RecipeError: If no settings are known for it.
    """
    system = name.partition("/")[0]
    if system in SYSTEMS:
        return SYSTEMS[system]
    problem, allowed, todo = unknown_name("system", name, SYSTEMS)
    raise RecipeError(problem, allowed=allowed, todo=todo)


def published(
    system: str, head: HeadKind, benchmark: Benchmark | None, config: EncoderConfig
) -> tuple[Hyperparameters, str]:
    """Return what was published for a system on a benchmark, as far as it was; the rest is BERT's.

    Laid over each other: BERT's rows of the table, the benchmark's own numbers, the system's rows, each from the
    general to the particular.

    Args:
        system: A system of the table.
        head: What the task's head scores.
        benchmark: None for the user's own data.
        config: The encoder's shape: some systems publish other settings for small or large models.

    Returns:
        The settings and their sources.
    """
    layers = [(row.settings, row.source) for row in _rows("bert", head, benchmark, config)]
    if benchmark is not None:
        own = {name: getattr(benchmark, name) for name in ("epochs", "learning_rate", "batch_size", "max_length")}
        layers.append((own, f"benchmark {benchmark.name}"))
    if system != "bert":
        layers += [(row.settings, row.source) for row in _rows(system, head, benchmark, config)]
    merged: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for settings, source in layers:
        merged |= settings
        sources |= dict.fromkeys(settings, source)
    return Hyperparameters(**merged), "; ".join(dict.fromkeys(sources.values()))


def published_task_fields(
    system: str, head: HeadKind, benchmark: Benchmark | None, config: EncoderConfig
) -> dict[str, Any]:
    """Return the fields of the task that a system publishes for a benchmark (see `published`)."""
    rows = _rows(system, head, benchmark, config)
    return {name: value for row in rows for name, value in row.task_fields.items()}


def _rows(system: str, head: HeadKind, benchmark: Benchmark | None, config: EncoderConfig) -> list[Published]:
    """Return the rows of a system that fit, from the general to the particular."""
    fitting = [row for row in PUBLISHED if row.system == system and _fits(row, head, benchmark, config)]
    return sorted(fitting, key=lambda row: (bool(row.benchmarks), bool(row.heads), row.widths != Published.ALL_WIDTHS))


def _fits(row: Published, head: HeadKind, benchmark: Benchmark | None, config: EncoderConfig) -> bool:
    return (
        (not row.benchmarks or (benchmark is not None and benchmark.name in row.benchmarks))
        and (not row.heads or head in row.heads)
        and row.widths[0] <= config.hidden_size <= row.widths[1]
    )


def fit_length(
    settings: Hyperparameters, pretrained: Pretrained, fixed: Collection[str]
) -> tuple[Hyperparameters, tuple[Choice, ...]]:
    """Keep sequences to the length that the model was trained on.

    Args:
        settings: Published, with the user's.
        pretrained: The model.
        fixed: Fields that the user set; they stay.
    """
    longest = min(settings.max_length, pretrained.max_length)
    return _apply(
        settings, [("max_length", longest, f"the model was trained on {pretrained.max_length} tokens")], fixed
    )


def fit_stride(
    task: Task[Any], published_length: int, length: int, fixed: Collection[str]
) -> tuple[Task[Any], tuple[Choice, ...]]:
    """Keep the share of a sequence by which windows of a long text move on, where sequences are shorter than published.

    Left as published, windows would overlap less, or not at all: answers at their ends would be cut in two, or be seen
    with nothing on one side.

    Args:
        task: What is learnt; nothing but answering questions has windows.
        published_length: Tokens of a sequence that its `doc_stride` was published with.
        length: Tokens of a sequence here.
        fixed: Fields of the task that the user set; they stay.
    """
    if not isinstance(task, QuestionAnswering) or length >= published_length or "doc_stride" in fixed:
        return task, ()
    stride = max(1, round(task.doc_stride * length / published_length))
    if stride == task.doc_stride:
        return task, ()
    why = f"the same share of {length} tokens as {task.doc_stride} is of {published_length}"
    choice = Choice("task.doc_stride", task.doc_stride, stride, why)
    return replace(task, doc_stride=stride), (choice,)


def fit_numbers(
    task: Task[Any], examples: Sequence[Any], fixed: Collection[str]
) -> tuple[Task[Any], tuple[Choice, ...]]:
    """Let numbers of any size be learnt as numbers around 0, most of them between -1 and 1.

    A head begins with outputs near 0, and a step changes them by little: prices in thousands would stay out of reach,
    which no correlation would show.

    Args:
        task: What is learnt; nothing but a regression has numbers.
        examples: Of the training part.
        fixed: Fields of the task that the user set; if one of the two is, both stay.
    """
    if not isinstance(task, Regression) or {"offset", "scale"} & set(fixed):
        return task, ()
    numbers = np.array([float(example.label) for example in examples], dtype=np.float64)
    scale = float(f"{numbers.std():.3g}")
    if scale == 0.0:  # All the same number: nothing to be learnt, which is said where it is measured.
        return task, ()
    # To a hundredth of the scale, however far from 0 the numbers lie.
    offset = round(float(numbers.mean()), 2 - math.floor(math.log10(scale)))
    return replace(task, offset=offset, scale=scale), (
        Choice("task.offset", task.offset, offset, "the mean of the training numbers, which are learnt as around 0"),
        Choice("task.scale", task.scale, scale, "their standard deviation, which is learnt as 1"),
    )


def fit_training(
    settings: Hyperparameters, pretrained: Pretrained, num_units: int, fixed: Collection[str]
) -> tuple[Hyperparameters, tuple[Choice, ...]]:
    """Fit published settings to a small model and to little data, each field with its reason.

    Args:
        settings: Published, with the user's.
        pretrained: The model.
        num_units: Units of the training examples.
        fixed: Fields that the user set; they stay.
    """
    width, per_epoch = pretrained.config.hidden_size, settings.steps_of_epoch(num_units)
    wanted: list[tuple[str, Any, str]] = []
    if pretrained.tokens is not None and pretrained.tokens < SHORT_PRETRAINING:
        why = f"pretrained on {short_count(pretrained.tokens)} tokens only, at width {width}"
        wanted.append(("learning_rate", _two_digits(SHORT_PRETRAINING_RATE_AT_WIDTH_128 * 128 / width), why))
    elif width < PUBLISHED_WIDTH:
        wanted.append(("learning_rate", _narrow_rate(pretrained), f"width {width} bears more than {PUBLISHED_WIDTH}"))
    enough = float(min(MOST_EPOCHS, math.ceil(FEWEST_STEPS / per_epoch)))
    if settings.steps is None and enough > settings.epochs:
        wanted.append(("epochs", enough, f"{per_epoch} steps an epoch: little data takes more epochs"))
    changed, choices = _apply(settings, wanted, fixed)
    if changed.total_steps(num_units) < SECOND_MOMENT_MEMORY:
        why = "without it the first hundreds of updates are up to 6 times as large"
        changed, more = _apply(changed, [("bias_correction", True, why)], fixed)
        choices += more
    return changed, choices


def _apply(
    settings: Hyperparameters, wanted: Sequence[tuple[str, Any, str]], fixed: Collection[str]
) -> tuple[Hyperparameters, tuple[Choice, ...]]:
    choices = tuple(
        Choice(name, getattr(settings, name), value, reason)
        for name, value, reason in wanted
        if name not in fixed and value != getattr(settings, name)
    )
    return settings.replace(**{choice.field: choice.chosen for choice in choices}), choices


def _narrow_rate(pretrained: Pretrained) -> float:
    at_published_width = RATES_AT_WIDTH_768.get(pretrained.system, RATES_AT_WIDTH_768["bert"])
    return _two_digits(at_published_width * PUBLISHED_WIDTH / pretrained.config.hidden_size)


def _two_digits(value: float) -> float:
    return float(f"{value:.2g}")
