"""Resolve a published recipe for a budget: sequence length, vocabulary size, batch size, schedule, dropout.

Published schedules have a million steps of hundreds of sequences; a short run with their warmup and batch size learns
nothing. Each rule below changes one field, gives its reason, and keeps the published value for a large budget. The
measurements behind the constants are in LOG.md.
"""

import dataclasses
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from maskwright.core.amounts import exact_or_short, plain_float, pluralize, short_count
from maskwright.fitting.budget import Budget
from maskwright.fitting.flops import expected_tokens
from maskwright.model.config import EncoderConfig
from maskwright.recipes.optimization import DECAY_SHARE, LengthPhase
from maskwright.recipes.recipe import Recipe

OCCURRENCES = 100
"""Times that a vocabulary entry should occur in training (Gowda and May 2020: 95 % of the types at least 100 times)."""
SMALLEST_VOCABULARY = 4096
RATE_AT_WIDTH_128 = 1e-3
"""Peak learning rate at hidden size 128. It falls as 1/hidden_size above (measured at 128 and 256: LOG.md), and as
2/layers where more than two layers share a block, which all of them then move (measured at 2 and 4)."""
PRE_NORM_WIDTH = 256
"""Hidden size up to which pre-norm encoders have the peak rate that post-norm ones have at 128, and above which it
falls as 1/hidden_size (1e-3 measured at 256, where 2e-3 was worse: LOG.md; other widths are not measured)."""
JOINT_RATE_AT_WIDTH_128 = 7e-4
"""The same with a generator: twice as much stays on the plateau (measured at 128: LOG.md)."""
LARGEST_RATE_FACTOR = 3.0
"""A step of the first phase with k times as many tokens as `batch_tokens` has k times the learning rate, up to this.

A run of as many steps by the rule has a k^2-th of the tokens, so this is the square root that Malladi et al. (2022)
derive for Adam. Measured at k = 1.8 and 3.6, with 2 and 2.8 times the rate, for BERT at hidden size 512 (LOG.md); so
only where each layer has its own block and there is no generator."""
LAMB_RATE = 0.003
LAMB_RATE_SHARED = 0.006
"""Peak learning rate of LAMB if the user sets it in a short run, and the same times the layers that share a block: the
rate is the share by which each matrix moves in a step (measured at 2 layers per block: LOG.md)."""
LAMB_SEQUENCES = 512
"""Below this batch size AdamW replaces LAMB, which is made for larger batches (You et al. 2020 begin at 512); small
runs learn far less with it (LOG.md)."""
INITIALIZER_RANGE_AT_WIDTH_768 = 0.02
"""The published standard deviation of initial weights, chosen at width 768. Narrower models need a wider one for the
same spread of activations, in proportion to 1/sqrt(hidden_size) (measured at 128 and 256: LOG.md)."""
WARMUP_SHARE = 0.1
SMALLEST_BATCH = 8
SHORT_BUDGET_TOKENS = 2e7
"""Below this many tokens training starts at length 32 (measured at 1 to 10 M tokens: LOG.md)."""
JOINT_SHORT_SHARE = 0.3
"""From there to `LONG_BUDGET_TOKENS` training with a generator starts at length 32 for this share: all at 128 it stays
on the plateau (measured at 3 and 20 M tokens, this share at 3 M: LOG.md)."""
LONG_BUDGET_TOKENS = 2e9
"""Below this many tokens most sequences are not longer than 128 (BERT itself spends 90 % of its steps there), and
attention starts at neighboring tokens (measured at 1 to 4 M tokens: LOG.md)."""
FULL_LENGTH, FULL_LENGTH_SHARE, FULL_LENGTH_FROM_TOKENS = 512, 0.1, 1e6
"""Below `LONG_BUDGET_TOKENS` a run ends with this share of its tokens in sequences of this length, or of the published
length if that is shorter, so that it reads such texts. Not below 1 M tokens, where they would make fewer than the 12
steps that were measured (LOG.md)."""
MOSTLY_CHINESE = 0.5
"""Below this share of Chinese letters, segmenters find no phrases in most of the text (not measured)."""
FEW_EPOCHS = 6.0
"""Below this many expected epochs there is no dropout (measured at 3 to 4: LOG.md)."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A fitted field: its dotted name, published and chosen value, and the reason."""

    field: str
    published: Any
    chosen: Any
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Return plain data, as a JSON file would give it back."""
        data = dataclasses.asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in data.items()}

    def shown(self) -> tuple[str, str]:
        """Return both values as text."""
        return _shown(self.published), _shown(self.chosen)


def _shown(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int():
            return exact_or_short(value)
        case float():
            return plain_float(value)
        case tuple() | list():
            return ", ".join(map(_shown, value))
        case _:
            return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusStatistics:
    """What `resolve` uses of a corpus: the share of the letters that are Chinese characters, in [0, 1].

    Once the text is tokenized, also its tokens and the mean tokens of a sequence in each length phase.
    """

    chinese_share: float
    tokens: float | None = None
    mean_lengths: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a machine trains a recipe (`speed.measure_speed`).

    Attributes:
        flops: Training FLOP/s.
        full_step_tokens: Tokens of the largest step that takes hardly longer than a small one; 0 where each token costs
            the same, as on a CPU.
        is_busy: Whether other processes keep the cores busy.
    """

    flops: float = 0.0
    full_step_tokens: float = 0.0
    is_busy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRun:
    """A recipe fitted to a budget, the tokens that the budget is planned to buy, and the changed fields."""

    recipe: Recipe
    expected_tokens: float
    choices: tuple[Choice, ...] = ()


def resolve(
    recipe: Recipe,
    budget: Budget,
    corpus: CorpusStatistics,
    *,
    fixed: Collection[str] = (),
    speed: Speed = Speed(),
    teacher: EncoderConfig | None = None,
    teacher_length: int = FULL_LENGTH,
    as_published: bool = False,
) -> ResolvedRun:
    """Fit a recipe to a budget and a corpus. A pure function; a run calls it twice.

    Before the text is tokenized it fits what tokenization and layout need: phrase sources, sequence lengths, vocabulary
    size. Afterwards it fits batch size, learning rate, schedule, initialization and dropout to the measured statistics,
    and its `expected_tokens` is the plan that users see.

    Args:
        recipe: With the user's settings; on the second call the first call's result, with the real tokenizer.
        fixed: Dotted fields that stay, as the user set them.
        speed: Of this machine; used for a budget of time only.
        teacher_length: Longest sequence of the teacher's training, beyond which it teaches nothing.
        as_published: Change nothing, only compute `expected_tokens`.
    """

    def tokens(fitted: Recipe) -> float:
        phases = fitted.training.phases
        lengths = corpus.mean_lengths or tuple(float(phase.max_length) for phase in phases)
        if budget.unit == "steps" and not as_published:
            # By `batch_tokens`, S steps of sqrt(T) / 2 tokens are T = S^2 / 4 tokens, if the batch is within bounds.
            batch = fit_batch(fitted, budget.amount**2 / 4, lengths[0], fixed)
            fitted = fitted.replace(training=fitted.training.replace(batch_sequences=batch))
        return expected_tokens(budget, fitted, lengths, speed.flops, teacher)

    if as_published:
        return ResolvedRun(recipe=recipe, expected_tokens=tokens(recipe))
    if corpus.tokens is not None and corpus.mean_lengths is not None:
        planned = tokens(recipe)
        steps = round(budget.amount) if budget.unit == "steps" else None
        fitted, choices = fit_schedule(
            recipe, planned, corpus.tokens, corpus.mean_lengths, fixed, steps, speed.full_step_tokens
        )
        return ResolvedRun(recipe=fitted, expected_tokens=planned, choices=tuple(choices))
    recipe, phrases = fit_phrases(recipe, corpus.chinese_share, fixed)
    # The length first: how many tokens the budget buys depends on it, and the vocabulary size depends on that.
    in_steps = budget.unit == "steps"
    recipe, lengths = fit_length(recipe, tokens(recipe), fixed, in_steps=in_steps, full=teacher_length)
    recipe, vocabulary = fit_vocabulary(recipe, tokens(recipe), fixed)
    # A smaller vocabulary costs less per token, so that the budget buys more.
    vocabulary = [replace(choice, reason=_occurrences(tokens(recipe), choice.chosen)) for choice in vocabulary]
    return ResolvedRun(recipe=recipe, expected_tokens=tokens(recipe), choices=(*phrases, *lengths, *vocabulary))


def tokens_per_entry(tokens: float, size: int) -> float:
    """Return how often the rarest of `size` types occurs in a Zipfian text: tokens / (size ln size)."""
    return tokens / (size * math.log(size))


def vocabulary_size(tokens: float, published: int) -> int:
    """Return the largest power of two whose rarest entries occur `OCCURRENCES` times; from 4,096 to `published`."""
    size = SMALLEST_VOCABULARY
    while tokens_per_entry(tokens, 2 * size) >= OCCURRENCES:
        size *= 2
    return min(size, published)


def batch_tokens(tokens: float) -> float:
    """Return the tokens of a step: half the square root of all tokens.

    Early training is limited by the number of steps, not by their size (LOG.md): 4 M tokens give 4000 steps of 1000.
    The rule agrees with BERT's own budget (128 B tokens: rule 179 k a step, published 131 k at average lengths).
    """
    return math.sqrt(max(tokens, 1.0)) / 2


def fit_vocabulary(recipe: Recipe, tokens: float, fixed: Collection[str]) -> tuple[Recipe, list[Choice]]:
    """Fit the vocabulary size to the tokens of the run."""
    size = vocabulary_size(tokens, recipe.tokenizer.vocab_size)
    return _apply(recipe, [("tokenizer.vocab_size", size, _occurrences(tokens, size))], fixed)


def _occurrences(tokens: float, size: int) -> str:
    times = tokens_per_entry(tokens, size)
    reason = f"its rarest entries occur {f'about {times:.0f} times' if times >= 1.5 else 'at most once'}"
    return reason if times >= OCCURRENCES else f"the smallest size; {reason} (goal: {OCCURRENCES})"


def fit_batch(
    recipe: Recipe, tokens: float, mean_length: float, fixed: Collection[str], full_step_tokens: float = 0.0
) -> int:
    """Return the sequences per step (see `batch_tokens` and `Speed`), at most the published number."""
    published = recipe.training.batch_sequences
    if is_fixed("training.batch_sequences", fixed):
        return published
    # A fifth more, since the run's sequences may be longer than the random text's that was measured.
    full = _nice(1.2 * full_step_tokens / mean_length)
    return min(published, max(SMALLEST_BATCH, full, _nice(batch_tokens(tokens) / mean_length)))


def fit_schedule(
    recipe: Recipe,
    tokens: float,
    corpus_tokens: float,
    mean_lengths: Sequence[float],
    fixed: Collection[str],
    steps: int | None = None,
    full_step_tokens: float = 0.0,
) -> tuple[Recipe, list[Choice]]:
    """Fit batch, steps, learning rate, warmup, schedule, initialization and dropout to the tokens of the run.

    `steps` is the budget, if it is in steps; None computes them from `tokens`. `full_step_tokens`: see `Speed`.
    """
    published = recipe.training
    batch = fit_batch(recipe, tokens, mean_lengths[0], fixed, full_step_tokens)
    if steps is None:
        phases = zip(published.phases, mean_lengths, strict=True)
        steps = max(1, round(sum(phase.share * tokens / (batch * length) for phase, length in phases)))
    step_tokens = short_count(tokens / steps)
    if is_fixed("training.steps", fixed):
        steps = published.steps
    width = recipe.encoder.hidden_size
    epochs = tokens / max(1, corpus_tokens)
    # A rate that the user set was meant for the published optimizer.
    lamb = published.optimizer.kind == "lamb"
    set_by_user = any(is_fixed(f"training.{name}", fixed) for name in ("learning_rate", "optimizer.kind"))
    # By the rule's batch: a larger step does not make LAMB suitable for a short run.
    replaces_lamb = lamb and fit_batch(recipe, tokens, mean_lengths[0], fixed) < LAMB_SEQUENCES and not set_by_user
    times_rule = batch / max(SMALLEST_BATCH, batch_tokens(tokens) / mean_lengths[0])
    larger = "; enlarged: such a step takes little longer on this GPU" if full_step_tokens and times_rule > 1 else ""
    wanted: list[tuple[str, Any, str]] = [
        ("training.batch_sequences", batch, f"about {step_tokens} tokens per step, {pluralize(steps, 'step')}{larger}"),
        ("training.steps", steps, f"{short_count(tokens)} tokens at this batch size"),
    ]
    if steps < published.steps:
        if replaces_lamb:
            wanted.append(("training.optimizer.kind", "adamw", "LAMB is made for batches of thousands of sequences"))
        rate = _short_run_rate(recipe, times_rule, lamb=lamb and not replaces_lamb)
        schedule = "warmup_stable_decay" if published.schedule == "warmup_stable_decay" else "linear"
        if schedule == "warmup_stable_decay":
            wanted.append(
                ("training.decay_share", max(DECAY_SHARE, published.decay_share), "the decay needs some steps")
            )
        betas = (published.optimizer.betas[0], 0.98)
        clips_itself = published.optimizer.kind == "stable_adamw"
        clip_norm = published.clip_norm if clips_itself else published.clip_norm or 1.0
        initializer_range = _two_digits(INITIALIZER_RANGE_AT_WIDTH_768 * math.sqrt(768 / width))
        wanted += [
            ("training.warmup_steps", round(WARMUP_SHARE * steps), f"{WARMUP_SHARE:.0%} of the budget"),
            ("training.learning_rate", rate, "short runs tolerate a higher learning rate"),
            ("training.schedule", schedule, "no jump of the learning rate after warmup"),
            ("training.optimizer.betas", betas, "second moments averaged over 50 steps, not 1000"),
            ("training.clip_norm", clip_norm, "a high learning rate needs clipping"),
            ("encoder.initializer_range", initializer_range, f"0.02 is for hidden size 768, this is {width}"),
        ]
        if tokens < LONG_BUDGET_TOKENS:
            reason = "short runs learn more if attention starts at neighboring tokens"
            wanted.append(("encoder.initial_attention", "neighbors", reason))
        if epochs < FEW_EPOCHS:
            reason = f"no overfitting expected in {epochs:.2g} epochs"
            wanted += [("encoder.hidden_dropout", 0.0, reason), ("encoder.attention_dropout", 0.0, reason)]
        reason = "output bias starts at unigram log-frequencies"
        wanted += [
            (f"objectives.{objective.kind}.initial_bias", "frequencies", reason)
            for objective in recipe.objectives
            if "initial_bias" in type(objective).model_fields
        ]
    return _apply(recipe, wanted, fixed)


def fit_length(
    recipe: Recipe, tokens: float, fixed: Collection[str], *, in_steps: bool = False, full: int = FULL_LENGTH
) -> tuple[Recipe, list[Choice]]:
    """Begin with short sequences and end with longer ones, as BERT itself does, at lengths that suit the budget.

    Args:
        in_steps: Whether the budget is in steps, so that phases get shares of the steps, not of the tokens.
        full: Length of the last phase, if published sequences are not shorter.
    """
    published = recipe.training.phases
    if is_fixed("training.phases", fixed) or tokens >= LONG_BUDGET_TOKENS:
        return recipe, []
    longest = min(128, recipe.training.max_length)  # Never longer than published.
    lengths, reason = {longest: 1.0}, "short runs learn more from many short sequences"
    if tokens < SHORT_BUDGET_TOKENS and longest > 32:
        lengths, reason = {32: 0.8, longest: 0.2}, "short runs learn more from short sequences first"
    elif recipe.generator is not None and longest > 32:
        lengths = {32: JOINT_SHORT_SHARE, longest: 1 - JOINT_SHORT_SHARE}
        reason = "a generator learns nothing for long without short sequences first"
    full = min(full, FULL_LENGTH, recipe.training.max_length)
    if full > longest and tokens >= FULL_LENGTH_FROM_TOKENS:
        share = FULL_LENGTH_SHARE
        if in_steps:  # As many steps as hold that share of the tokens.
            share *= sum(each * length for length, each in lengths.items()) / full
        lengths[max(lengths, key=lengths.__getitem__)] -= share
        lengths[full] = share
        reason += f", and {share:.0%} at {full} to read such texts"
    wanted = tuple(LengthPhase(share=round(share, 2), max_length=length) for length, share in lengths.items())
    mean_lengths = [sum(phase.share * phase.max_length for phase in phases) for phases in (wanted, published)]
    if mean_lengths[0] >= mean_lengths[1]:
        return recipe, []
    changed = recipe.replace(training=recipe.training.replace(phases=wanted))
    return changed, [Choice("training.phases", _lengths(published), _lengths(wanted), reason)]


def fit_phrases(recipe: Recipe, chinese_share: float, fixed: Collection[str]) -> tuple[Recipe, list[Choice]]:
    """Use the corpus's collocations as phrases if the masking needs phrases and segmenters find none in its script."""
    published = recipe.words.phrases
    if "phrase" not in recipe.masking.span_kinds or published != ("segmenter",) or chinese_share >= MOSTLY_CHINESE:
        return recipe, []
    reason = f"{chinese_share:.0%} of the letters are Chinese; the segmenter finds phrases in no other script"
    return _apply(recipe, [("words.phrases", (*published, "collocations"), reason)], fixed)


def _lengths(phases: tuple[LengthPhase, ...]) -> str:
    return " + ".join(f"{phase.share:.0%} at {phase.max_length}" for phase in phases)


def _apply(recipe: Recipe, wanted: list[tuple[str, Any, str]], fixed: Collection[str]) -> tuple[Recipe, list[Choice]]:
    data: dict[str, Any] = recipe.model_dump()
    choices = []
    for path, chosen, reason in wanted:
        *parents, last = path.split(".")
        here: Any = data
        for parent in parents:
            # Members of a list are named by their kind, as in overrides.
            here = here[parent] if isinstance(here, dict) else next(item for item in here if item["kind"] == parent)
        if here[last] != chosen and not is_fixed(path, fixed):
            choices.append(Choice(path, here[last], chosen, reason))
            here[last] = chosen
    training = data["training"]  # Steps that the user fixed may be fewer than the warmup.
    training["warmup_steps"] = min(training["warmup_steps"], training["steps"])
    return Recipe.model_validate(data), choices


def _short_run_rate(recipe: Recipe, times_rule: float, *, lamb: bool) -> float:
    # `times_rule`: tokens of a step, as a multiple of `batch_tokens`.
    plans = [recipe.encoder.layer_plan(part) for part in ("attention", "ffn")]
    layers_of_a_block = max(plan.count(block) for plan in plans for block in plan)
    if not lamb:
        rate = RATE_AT_WIDTH_128 if recipe.generator is None else JOINT_RATE_AT_WIDTH_128
        if recipe.generator is None and layers_of_a_block == 1:
            rate *= min(LARGEST_RATE_FACTOR, max(1.0, times_rule))
        width = PRE_NORM_WIDTH if recipe.encoder.norm_placement == "pre" else 128
        return _two_digits(rate * min(1.0, width / recipe.encoder.hidden_size) * min(1.0, 2 / layers_of_a_block))
    return _two_digits(min(LAMB_RATE, LAMB_RATE_SHARED / layers_of_a_block))


def _two_digits(number: float) -> float:
    return float(f"{number:.2g}")


def is_fixed(path: str, fixed: Collection[str]) -> bool:
    """Return whether a dotted field, a part of it or what contains it is among the fixed ones."""
    return any(path == name or path.startswith(name + ".") or name.startswith(path + ".") for name in fixed)


def _nice(number: float) -> int:
    """Round down to 2^n or 1.5 x 2^n, so that noise in the measured speed seldom changes it."""
    power = 1 << max(0, math.floor(math.log2(max(number, 1.0))))
    return power + power // 2 if number >= 1.5 * power and power > 1 else power
