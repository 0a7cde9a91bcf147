"""Resolve a published recipe for a budget: first what the text depends on, then the schedule (`schedule.py`).

Before the text is tokenized: phrase sources, sequence lengths, vocabulary size. The published values stay for a large
budget. The measurements behind the constants are in LOG.md.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass

from maskwright.fitting.budget import Budget
from maskwright.fitting.flops import expected_tokens
from maskwright.fitting.rules import Choice, Rule, apply_rules, is_fixed
from maskwright.fitting.schedule import LONG_BUDGET_TOKENS, fit_batch, fit_schedule
from maskwright.model.config import EncoderConfig
from maskwright.recipes.optimization import LengthPhase
from maskwright.recipes.recipe import Recipe

OCCURRENCES = 100
"""Times that a vocabulary entry should occur in training (Gowda and May 2020: 95 % of the types at least 100 times)."""
SMALLEST_VOCABULARY = 4096
SHORT_BUDGET_TOKENS = 2e7
"""Below this many tokens training starts at length 32 (measured at 1 to 10 M tokens: LOG.md)."""
JOINT_SHORT_SHARE = 0.3
"""From there to `LONG_BUDGET_TOKENS` training with a generator starts at length 32 for this share: all at 128 it stays
on the plateau (measured at 3 and 20 M tokens, this share at 3 M: LOG.md)."""
FULL_LENGTH, FULL_LENGTH_SHARE, FULL_LENGTH_FROM_TOKENS = 512, 0.1, 1e6
"""Below `LONG_BUDGET_TOKENS` a run ends with this share of its tokens in sequences of this length, or of the published
length if that is shorter, so that it reads such texts. Not below 1 M tokens, where they would make fewer than the 12
steps that were measured (LOG.md)."""
MOSTLY_CHINESE = 0.5
"""Below this share of Chinese letters, segmenters find no phrases in most of the text (not measured)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusStatistics:
    """Statistics of a corpus for `resolve`: the share of the letters that are Chinese characters, in [0, 1].

    Once the text is tokenized, also its tokens and the mean tokens of a sequence in each length phase.
    """

    chinese_share: float
    tokens: float | None = None
    mean_lengths: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Speed:
    """Training speed of a recipe on a machine (`speed.measure_speed`).

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
    """A recipe fitted to a budget, the planned tokens, and the changed fields."""

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

    def planned_tokens(fitted: Recipe) -> float:
        phases = fitted.training.phases
        lengths = corpus.mean_lengths or tuple(float(phase.max_length) for phase in phases)
        if budget.unit == "steps" and not as_published:
            # By `batch_tokens`, S steps of sqrt(T) / 2 tokens are T = S^2 / 4 tokens, if the batch is within bounds.
            batch = fit_batch(fitted, budget.amount**2 / 4, lengths[0], fixed)
            fitted = fitted.replace(training=fitted.training.replace(batch_sequences=batch))
        return expected_tokens(budget, fitted, lengths, speed.flops, teacher)

    if as_published:
        return ResolvedRun(recipe=recipe, expected_tokens=planned_tokens(recipe))
    if corpus.tokens is not None and corpus.mean_lengths is not None:
        planned = planned_tokens(recipe)
        steps = round(budget.amount) if budget.unit == "steps" else None
        fitted, choices = fit_schedule(
            recipe, planned, corpus.tokens, corpus.mean_lengths, fixed, steps, speed.full_step_tokens
        )
        return ResolvedRun(recipe=fitted, expected_tokens=planned, choices=choices)
    recipe, phrases = fit_phrases(recipe, corpus.chinese_share, fixed)
    # The length first: how many tokens the budget buys depends on it, and the vocabulary size depends on that.
    in_steps = budget.unit == "steps"
    recipe, lengths = fit_length(recipe, planned_tokens(recipe), fixed, in_steps=in_steps, full=teacher_length)
    # A smaller vocabulary costs less per token, so that the budget buys more: the reason counts these.
    smaller, _ = fit_vocabulary(recipe, planned_tokens(recipe), fixed)
    recipe, vocabulary = fit_vocabulary(recipe, planned_tokens(recipe), fixed, planned_tokens(smaller))
    return ResolvedRun(recipe=recipe, expected_tokens=planned_tokens(recipe), choices=(*phrases, *lengths, *vocabulary))


def tokens_per_entry(tokens: float, size: int) -> float:
    """Return how often the rarest of `size` types occurs in a Zipfian text: tokens / (size ln size)."""
    return tokens / (size * math.log(size))


def vocabulary_size(tokens: float, published: int) -> int:
    """Return the largest power of two whose rarest entries occur `OCCURRENCES` times; from 4,096 to `published`."""
    size = SMALLEST_VOCABULARY
    while tokens_per_entry(tokens, 2 * size) >= OCCURRENCES:
        size *= 2
    return min(size, published)


def fit_vocabulary(
    recipe: Recipe, tokens: float, fixed: Collection[str], final_tokens: float | None = None
) -> tuple[Recipe, tuple[Choice, ...]]:
    """Fit the vocabulary size to the tokens of the run; `final_tokens`, with that vocabulary, are for the reason."""
    size = vocabulary_size(tokens, recipe.tokenizer.vocab_size)
    reason = _occurrences(final_tokens or tokens, size)
    return apply_rules(recipe, [Rule("tokenizer.vocab_size", size, reason)], None, fixed)


def _occurrences(tokens: float, size: int) -> str:
    times = tokens_per_entry(tokens, size)
    reason = f"its rarest entries occur {f'about {times:.0f} times' if times >= 1.5 else 'at most once'}"
    return reason if times >= OCCURRENCES else f"the smallest size; {reason} (goal: {OCCURRENCES})"


def fit_length(
    recipe: Recipe, tokens: float, fixed: Collection[str], *, in_steps: bool = False, full: int = FULL_LENGTH
) -> tuple[Recipe, tuple[Choice, ...]]:
    """Begin with short sequences and end with longer ones, as BERT itself does, at lengths that suit the budget.

    Args:
        in_steps: Whether the budget is in steps, so that phases get shares of the steps, not of the tokens.
        full: Length of the last phase, if published sequences are not shorter.
    """
    published = recipe.training.phases
    if is_fixed("training.phases", fixed) or tokens >= LONG_BUDGET_TOKENS:
        return recipe, ()
    longest = min(128, recipe.training.max_length)  # Never longer than published.
    lengths, reason = {longest: 1.0}, "short runs learn more from many short sequences"
    if tokens < SHORT_BUDGET_TOKENS and longest > 32:
        lengths, reason = {32: 0.8, longest: 0.2}, "short runs learn more from short sequences first"
    elif recipe.generator is not None and longest > 32:
        lengths = {32: JOINT_SHORT_SHARE, longest: 1 - JOINT_SHORT_SHARE}
        reason = "a generator learns nothing for long without short sequences first"
    if published[0].max_length < min(lengths):  # It begins with even shorter sequences.
        full = full if recipe.teacher else recipe.training.max_length
        wanted = tuple(phase.replace(max_length=min(phase.max_length, full)) for phase in published)
        return _with_phases(recipe, wanted, f"at most {full}, the length of the teacher")
    full = min(full, FULL_LENGTH, recipe.training.max_length)
    if full > longest and tokens >= FULL_LENGTH_FROM_TOKENS:
        share = FULL_LENGTH_SHARE
        if in_steps:  # As many steps as hold that share of the tokens.
            share *= sum(each * length for length, each in lengths.items()) / full
        lengths[max(lengths, key=lengths.__getitem__)] -= share
        lengths[full] = share
        reason += f", and {share:.0%} at {full} to read such texts"
    wanted = tuple(LengthPhase(share=round(share, 2), max_length=length) for length, share in lengths.items())
    return _with_phases(recipe, wanted, reason)


def _with_phases(recipe: Recipe, wanted: tuple[LengthPhase, ...], reason: str) -> tuple[Recipe, tuple[Choice, ...]]:
    """Return a recipe with these phases, if their mean length is smaller."""
    published = recipe.training.phases
    mean_lengths = [sum(phase.share * phase.max_length for phase in phases) for phases in (wanted, published)]
    if mean_lengths[0] >= mean_lengths[1]:
        return recipe, ()
    changed = recipe.replace(training=recipe.training.replace(phases=wanted))
    return changed, (Choice("training.phases", _lengths(published), _lengths(wanted), reason),)


def fit_phrases(recipe: Recipe, chinese_share: float, fixed: Collection[str]) -> tuple[Recipe, tuple[Choice, ...]]:
    """Use the corpus's collocations as phrases if the masking needs phrases and segmenters find none in its script."""
    published = recipe.words.phrases
    if "phrase" not in recipe.masking.span_kinds or published != ("segmenter",) or chinese_share >= MOSTLY_CHINESE:
        return recipe, ()
    reason = f"{chinese_share:.0%} of the letters are Chinese; the segmenter finds phrases in no other script"
    return apply_rules(recipe, [Rule("words.phrases", (*published, "collocations"), reason)], None, fixed)


def _lengths(phases: tuple[LengthPhase, ...]) -> str:
    return " + ".join(f"{phase.share:.0%} at {phase.max_length}" for phase in phases)
