"""Hyperparameters: the published settings of a system, adjusted for small models and little data."""

import math
from collections.abc import Collection, Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, PositiveInt

from maskwright.checkpoints.checkpoint import Checkpoint
from maskwright.core.errors import RecipeError, unknown_name
from maskwright.core.spec import Spec
from maskwright.core.storage.files import read_json
from maskwright.core.text.amounts import short_count
from maskwright.core.types import HeadKind, IntArray
from maskwright.finetuning.published.benchmarks import Benchmark
from maskwright.finetuning.published.settings import ALL_WIDTHS, PUBLISHED, RATES_AT_WIDTH_768
from maskwright.finetuning.tasks.question_answering import QuestionAnswering
from maskwright.fitting.budget import Shape
from maskwright.fitting.rules import Choice, Rule, apply_rules, round_digits
from maskwright.model.config import EncoderConfig
from maskwright.recipes.catalog import get, names
from maskwright.recipes.optimization import AdamW

PUBLISHED_WIDTH = 768
"""Learning rates are published for models of this width and above; narrower models tolerate higher ones."""
SHORT_PRETRAINING = 1e9
"""Pretraining tokens below which a model tolerates a higher learning rate than any published one."""
SHORT_PRETRAINING_RATE_AT_WIDTH_128 = 1e-3
"""The best of 1e-4, 3e-4, 1e-3, 3e-3 at width 128, and in proportion to 1 / width (5e-4) the best of 5e-5, 1.5e-4,
5e-4, 1e-3 at width 256 (SST-2, 2000 examples, models pretrained for minutes: see docs/fine-tuning.md)."""
FEWEST_STEPS = 300
"""Minimum steps for little data: with 2000 examples dev rose until step 252 of 315 (docs/fine-tuning.md)."""
STEPS_PER_CLASS, MOST_STEPS_FOR_CLASSES = 20, 1000
"""Minimum steps for each class, and the highest minimum: measured with 45 classes (docs/fine-tuning.md)."""
MOST_EPOCHS = 20.0
"""Maximum epochs for little data, instead of three (Mosbach et al. 2021, section 6; measured here too: see
docs/fine-tuning.md)."""
SMALLEST_BATCH = 8
"""Smallest fitted batch size (docs/fine-tuning.md)."""
FROZEN_RATE = 3e-4
"""Learning rate of a head on a frozen encoder (docs/fine-tuning.md)."""
SECOND_MOMENT_MEMORY = 3000
"""Steps below which Adam's bias correction matters: three time constants of a second moment with beta2 = 0.999."""

FEWEST_WORSE_EPOCHS = 3
"""Smallest fitted `patience`."""
LENGTH_MULTIPLE = 32
"""A fitted `max_length` is a multiple of it, or the model's limit."""

Rate = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]


class Hyperparameters(Spec):
    """Fine-tuning hyperparameters. Defaults are BERT's (Devlin et al. 2019, 4.1 and A.3; bert:run_classifier.py).

    Attributes:
        epochs: Number of epochs; may be a fraction.
        steps: Optimizer steps, instead of epochs; None for `epochs`.
        batch_size: Units per step: texts or pairs, windows of a question's context, questions with all their options.
        learning_rate: Peak learning rate.
        warmup_share: Share of steps for warmup.
        schedule: Shape of the learning rate schedule (`fitting.budget.rate_factor`).
        weight_decay: Decoupled weight decay.
        decayed: "matrices" excludes biases and LayerNorm, "all" decays every parameter (fairseq).
        betas, eps, bias_correction: Adam's.
        layer_decay: Factor on the learning rate from one layer to the layer below (ELECTRA); 1 for the same rate.
        hidden_dropout, attention_dropout: In the encoder.
        head_dropout: On the head's input (also ernie: finetune/classifier.py, electra: classification_tasks.py).
        clip_norm: The gradient of the mean loss is scaled down to this global norm; 0 is off. DEVIATION: ELECTRA's code
            clips the gradient of the loss summed over the batch (run_finetuning.py:71), so that its limit of 1 nearly
            always applies; that of the mean does not depend on the batch size.
        max_length: Maximum tokens of a sequence, including special tokens.
        double_unordered: Whether to train on pairs in both orders (ELECTRA: `double_unordered`).
        frozen: Whether only the head is trained, and the pooler; a new head of whole sequences then sees the mean of
            the hidden states (`mean_layer`).
        patience: Early stopping after so many epochs in a row that are worse on the development examples than the best;
            0 for none.
    """

    synonyms: ClassVar[Mapping[str, str]] = {
        "lr": "learning_rate",
        "train_batch_size": "batch_size",
        "per_device_train_batch_size": "batch_size",
        "num_train_epochs": "epochs",
        "max_steps": "steps",
        "warmup_ratio": "warmup_share",
        "lr_scheduler_type": "schedule",
        "dropout": "hidden_dropout",
        "max_grad_norm": "clip_norm",
        "max_seq_length": "max_length",
    }

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
    frozen: bool = False
    patience: Annotated[int, Field(ge=0)] = 10

    @property
    def optimizer(self) -> AdamW:
        return AdamW(
            betas=self.betas,
            eps=self.eps,
            weight_decay=self.weight_decay,
            decayed=self.decayed,
            bias_correction=self.bias_correction,
        )

    def steps_of_epoch(self, num_units: int) -> int:
        return math.ceil(num_units / self.batch_size)

    def total_steps(self, num_units: int) -> int:
        return self.steps or max(1, round(self.epochs * self.steps_of_epoch(num_units)))


def system_of(existing: Checkpoint, wanted: str | None) -> str:
    """Return the system whose published settings apply: the user's choice, or the model's recipe or family.

    A system without settings has those of its recipes' family.
    """
    families = {name.partition("/")[0]: get(name).family for name in names()}
    if wanted and wanted.partition("/")[0] not in families:
        raise unknown_name(RecipeError, "system", wanted, families)
    recorded = (wanted, _entry(existing, "recipe.json", "name"), _entry(existing, "run.json", "system"))
    system = next((name for name in recorded if isinstance(name, str) and name), "").partition("/")[0]
    candidates = (system, families.get(system, existing.family))
    return next((row.systems[0] for name in candidates for row in PUBLISHED if name in row.systems), "bert")


def tokens_of(existing: Checkpoint) -> float | None:
    """Return the number of pretraining tokens if the model's folder is a run, else None."""
    tokens = _entry(existing, "run.json", "result", "tokens")
    # A run that started from another model has seen more tokens than it counted.
    begun_with = _entry(existing, "run.json", "begun_with")
    return float(tokens) if isinstance(tokens, int | float) and tokens and not begun_with else None


def _entry(existing: Checkpoint, file: str, *keys: str) -> Any:
    try:
        value = read_json(existing.folder / file)
        for key in keys:
            value = value[key]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return value


def published(
    system: str, head: HeadKind, benchmark: Benchmark | None, config: EncoderConfig
) -> tuple[Hyperparameters, dict[str, Any], str]:
    """Return the published settings of a system on a benchmark, fields of the task, and their sources.

    Later ones override earlier ones: BERT's rows of the table, the system's rows; each from general to specific. `head`
    is what the task's head scores; `benchmark` is None for the user's own data.
    """
    name = "" if benchmark is None else benchmark.name
    settings: dict[str, Any] = {}
    task_fields: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for each in dict.fromkeys(("bert", system)):
        rows = [row for row in PUBLISHED if each in row.systems and row.fits(name, head, config.hidden_size)]
        for row in sorted(rows, key=lambda row: (bool(row.benchmarks), bool(row.head), row.widths != ALL_WIDTHS)):
            settings |= row.settings
            task_fields |= row.task_fields
            sources |= dict.fromkeys(row.settings, row.source)
    return Hyperparameters(**settings), task_fields, "; ".join(dict.fromkeys(sources.values()))


def fit_length(
    settings: Hyperparameters, longest: int, fixed: Collection[str]
) -> tuple[Hyperparameters, tuple[Choice, ...]]:
    """Limit sequences to the longest of pretraining. `fixed`: fields that the user set, which are kept."""
    length = min(settings.max_length, longest)
    return apply_rules(
        settings, [Rule("max_length", length, f"the model was trained on {longest} tokens")], None, fixed
    )


def fit_length_to_texts(
    settings: Hyperparameters, lengths: IntArray, longest: int, fixed: Collection[str]
) -> tuple[Hyperparameters, tuple[Choice, ...]]:
    """Raise `max_length` to the 99th percentile of the training sequences' lengths (B,), at most `longest`.

    It is never lowered: sequences are not padded, so that a limit above all lengths costs nothing.
    """
    before = settings.max_length
    needed = int(np.percentile(lengths, 99, method="inverted_cdf"))
    length = min(-(-needed // LENGTH_MULTIPLE) * LENGTH_MULTIPLE, longest)
    reason = (
        f"{np.mean(lengths > before):.0%} of the training texts have more than {before} tokens; `--set "
        f"max_length={before}` truncates them and is faster"
    )
    return apply_rules(settings, [Rule("max_length", max(before, length), reason)], None, fixed)


def fit_stride(
    task: QuestionAnswering, published_length: int, length: int, fixed: Collection[str]
) -> tuple[QuestionAnswering, tuple[Choice, ...]]:
    """Scale `doc_stride` with `max_length`, if that is shorter than the one published together with it.

    Otherwise windows would overlap less or not at all, and answers at their ends would be split or lack context.
    """
    stride = max(1, round(task.doc_stride * min(length, published_length) / published_length))
    reason = f"keeps the published ratio to max_length, {task.doc_stride} of {published_length} tokens"
    return apply_rules(task, [Rule("doc_stride", stride, reason)], None, fixed, prefix="task.")


def fitted_patience(epochs: float) -> int:
    return max(FEWEST_WORSE_EPOCHS, math.ceil(epochs / 4))


def fit_training(
    settings: Hyperparameters,
    num_units: int,
    fixed: Collection[str],
    *,
    width: int,
    system: str,
    pretraining_tokens: float | None = None,
    num_classes: int = 0,
) -> tuple[Hyperparameters, tuple[Choice, ...]]:
    """Adjust published settings to small models and little data; `fixed` fields are kept.

    With fixed epochs the batch size is kept too: both make the number of steps. Sentence embeddings ignore choices of
    fields other than `epochs` and `learning_rate` (`finetuning.embedding.training`).

    Args:
        num_units: Training examples, or windows of a question's context.
        width: The model's hidden size.
        system: What it was pretrained as ("macbert"), or "".
        pretraining_tokens: None if unknown.
        num_classes: Of a classification; 0 for other tasks.
    """
    kept = {*fixed, *(["batch_size"] if "epochs" in fixed else [])}
    fewest_steps = max(FEWEST_STEPS, min(STEPS_PER_CLASS * num_classes, MOST_STEPS_FOR_CLASSES))
    need = f"{num_classes} classes need" if fewest_steps > FEWEST_STEPS else "little data needs"
    rules: list[Rule[None]] = []
    if settings.steps is None:
        size = settings.batch_size
        while size // 2 >= SMALLEST_BATCH and MOST_EPOCHS * math.ceil(num_units / size) < fewest_steps:
            size //= 2
        rules.append(Rule("batch_size", size, f"only {num_units} training examples: {need} more steps"))
    if settings.frozen:
        rules.append(Rule("learning_rate", FROZEN_RATE, "only the head is trained"))
        rules += [Rule(name, 0.0, "the encoder is not trained") for name in ("hidden_dropout", "attention_dropout")]
    elif pretraining_tokens is not None and pretraining_tokens < SHORT_PRETRAINING:
        rate = SHORT_PRETRAINING_RATE_AT_WIDTH_128 * 128 / width
        reason = f"pretrained on only {short_count(pretraining_tokens)} tokens, at width {width}"
        rules.append(Rule("learning_rate", round_digits(rate), reason))
    elif width < PUBLISHED_WIDTH:
        rate = RATES_AT_WIDTH_768.get(system, RATES_AT_WIDTH_768["bert"]) * PUBLISHED_WIDTH / width
        reason = f"width {width} tolerates a higher rate than {PUBLISHED_WIDTH}"
        rules.append(Rule("learning_rate", round_digits(rate), reason))
    settings, choices = apply_rules(settings, rules, None, kept)
    # The epochs depend on the batch size, the optimizer on the number of steps.
    steps_per_epoch = settings.steps_of_epoch(num_units)
    epochs = float(min(MOST_EPOCHS, math.ceil(fewest_steps / steps_per_epoch)))
    if settings.steps is None and epochs > settings.epochs:
        reason = f"only {steps_per_epoch} steps per epoch: {need} more epochs"
        settings, more = apply_rules(settings, [Rule("epochs", epochs, reason)], None, kept)
        choices += more
    rules = []
    if settings.steps is None and settings.epochs > FEWEST_WORSE_EPOCHS + 1:
        rules.append(Rule("patience", fitted_patience(settings.epochs), "a quarter of the epochs"))
    if settings.total_steps(num_units) < SECOND_MOMENT_MEMORY:
        reason = "without it the first few hundred updates are up to 6 times as large"
        rules.append(Rule("bias_correction", True, reason))
    settings, more = apply_rules(settings, rules, None, kept)
    return settings, choices + more
