"""Resolve a published recipe for a budget: sequence length, vocabulary size, batch size, schedule, dropout.

Published schedules have a million steps of hundreds of sequences; a short run with their warmup and batch size learns
nothing. Each rule below changes one field, gives its reason, and returns the published value for a large budget. The
measurements behind the constants are in LOG.md.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from maskwright.core.amounts import exact_or_short, plain_float, short_count
from maskwright.model.config import EncoderConfig
from maskwright.recipes.optimization import LengthPhase
from maskwright.recipes.recipe import Recipe
from maskwright.training.budget import Budget
from maskwright.training.expectation import expected_tokens

SEEN_ENOUGH = 100
"""Times a vocabulary entry should be met in training (Gowda and May 2020: 95 % of the types at least 100 times)."""
SMALLEST_VOCABULARY = 4096
RATE_AT_WIDTH_128 = 1e-3
"""Peak learning rate at hidden size 128; it falls as 1/hidden_size above (measured at 128 and 256: see LOG.md), and
where more than two layers share a block, which then moves in all of them at once, as 2/layers (measured at 2 and 4)."""
JOINT_RATE_AT_WIDTH_128 = 7e-4
"""The same where a generator is trained beside: twice as much keeps it on the plateau (measured at 128: see LOG.md)."""
LAMB_RATE = 0.003
LAMB_RATE_SHARED = 0.006
"""Peak learning rate of LAMB where a user wants it in a short run, and the same times the layers that share a block: it
is the share by which each matrix moves in a step (measured at 2 layers a block: see LOG.md)."""
LAMB_SEQUENCES = 512
"""Below this many sequences a step AdamW stands in for LAMB, which is made for larger batches (You et al. 2020 begin at
512); small runs learn far less by it (LOG.md)."""
SPREAD_AT_WIDTH_768 = 0.02
"""The published standard deviation of initial weights, chosen at width 768. Narrower models need a wider one for the
same spread of activations, in proportion to 1/sqrt(hidden_size) (measured at 128 and 256: see LOG.md)."""
WARMUP_SHARE = 0.1
SMALLEST_BATCH = 8
SHORT_BUDGET_TOKENS = 2e7
"""Below this many tokens training begins at length 32 (measured at 1 to 10 M tokens: see LOG.md)."""
LONG_BUDGET_TOKENS = 2e9
"""Below this many tokens no sequence is longer than 128 (BERT itself spends 90 % of its steps there), and attention
begins at neighbours (measured at 1 to 4 M tokens: see LOG.md)."""
MOSTLY_CHINESE = 0.5
"""Below this share of Chinese letters most of a text is in other scripts, in which a segmenter finds no phrase: a
choice, not measured."""
FEW_EPOCHS = 6.0
"""Below this many expected passes over the text nothing is dropped (measured at 3 to 4: see LOG.md)."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One field that was fitted.

    Attributes:
        field: Dotted name in the recipe.
        published: Its published value.
        chosen: Its value in this run.
        reason: Why, in a short sentence.
    """

    field: str
    published: Any
    chosen: Any
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Return plain data, as a JSON file would give it back."""
        published, chosen = (
            list(value) if isinstance(value, tuple) else value for value in (self.published, self.chosen)
        )
        return {"field": self.field, "published": published, "chosen": chosen, "reason": self.reason}

    def shown(self) -> tuple[str, str]:
        """Return both values as people write them."""
        return _shown(self.published), _shown(self.chosen)


def _shown(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int():
            return exact_or_short(value)
        case float():
            return plain_float(value)
        case tuple():
            return ", ".join(map(_shown, value))
        case _:
            return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusStatistics:
    """What `resolve` reads of a corpus.

    Attributes:
        chinese_share: Share of the letters that are Chinese characters, in [0, 1].
        tokens: Tokens of the text; None before it is tokenized.
        mean_length: Mean tokens of a sequence in the first length phase; None before the text is tokenized.
    """

    chinese_share: float
    tokens: int | None = None
    mean_length: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRun:
    """A recipe fitted to a budget.

    Attributes:
        recipe: What is trained.
        expected_tokens: Tokens that the budget is planned to buy.
        choices: The changed fields, with reasons.
    """

    recipe: Recipe
    expected_tokens: float
    choices: tuple[Choice, ...] = ()


def resolve(
    recipe: Recipe,
    budget: Budget,
    corpus: CorpusStatistics,
    *,
    fixed: Collection[str] = (),
    reached_flops: float = 0.0,
    teacher: EncoderConfig | None = None,
    as_published: bool = False,
) -> ResolvedRun:
    """Fit a recipe to a budget and a corpus. A pure function; a run calls it twice.

    Before the text is tokenized it fits what tokenization and layout need: phrase sources, sequence lengths, vocabulary
    size. Afterwards it fits batch size, learning rate, schedule, initialization and dropout to the measured statistics.

    Args:
        recipe: With the user's settings; on the second call the first call's result, with the real tokenizer.
        budget: What may be spent.
        corpus: Before tokenization, `tokens` and `mean_length` are None.
        fixed: Dotted fields that stay, as the user set them.
        reached_flops: Training FLOPs per second on this machine; read for a budget of time only.
        teacher: The teacher's shape, if there is one.
        as_published: Change nothing, only compute `expected_tokens`.
    """

    def tokens(fitted: Recipe) -> float:
        length = corpus.mean_length or float(fitted.training.phases[0].max_length)
        if budget.unit != "steps":
            return expected_tokens(budget, fitted, reached_flops, teacher)
        if as_published:
            return budget.amount * fitted.training.batch_sequences * length
        # By `batch_tokens`, S steps of sqrt(T) / 2 tokens read T = S^2 / 4 tokens, if no bound on the batch applies.
        return budget.amount * length * fit_batch(fitted, budget.amount**2 / 4, length, fixed)

    if as_published:
        return ResolvedRun(recipe=recipe, expected_tokens=tokens(recipe))
    if corpus.tokens is not None and corpus.mean_length is not None:
        planned = tokens(recipe)
        fitted, choices = fit_schedule(recipe, planned, corpus.tokens, corpus.mean_length, fixed)
        return ResolvedRun(recipe=fitted, expected_tokens=planned, choices=tuple(choices))
    recipe, phrases = fit_phrases(recipe, corpus.chinese_share, fixed)
    # The length first: how many tokens the budget buys depends on it, and the vocabulary size depends on that.
    recipe, lengths = fit_length(recipe, tokens(recipe), fixed)
    recipe, vocabulary = fit_vocabulary(recipe, tokens(recipe), fixed)
    return ResolvedRun(recipe=recipe, expected_tokens=tokens(recipe), choices=(*phrases, *lengths, *vocabulary))


def vocabulary_size(tokens: float, published: int) -> int:
    """Return the largest power-of-two vocabulary whose rarest entries are still met often enough.

    In a Zipfian text of N tokens over V types the rarest type stands N / (V ln V) times; the rule asks for 100.

    Args:
        tokens: Tokens the run will read.
        published: The recipe's size, never exceeded.
    """
    size = SMALLEST_VOCABULARY
    while 2 * size * math.log(2 * size) * SEEN_ENOUGH <= tokens:
        size *= 2
    return min(size, published)


def batch_tokens(tokens: float) -> float:
    """Return how many tokens a step should read: half the square root of all tokens.

    Early training is limited by the number of steps, not by what each reads (LOG.md): 4 M tokens give 4000 steps of
    1000. The rule meets BERT's own budget (128 B tokens: rule 179 k a step, published 131 k on average lengths).
    """
    return math.sqrt(max(tokens, 1.0)) / 2


def fit_vocabulary(recipe: Recipe, tokens: float, fixed: Collection[str]) -> tuple[Recipe, list[Choice]]:
    """Fit the vocabulary's size to the tokens that will be read.

    Args:
        recipe: As published, with the user's settings.
        tokens: Tokens the run will read, roughly.
        fixed: Dotted fields the user set; they stay.
    """
    published = recipe.tokenizer.vocab_size
    size = vocabulary_size(tokens, published)
    if size == published or _is_fixed("tokenizer.vocab_size", fixed):
        return recipe, []
    reason = f"so that each entry occurs about {SEEN_ENOUGH} times in {short_count(tokens)} tokens"
    changed = recipe.replace(tokenizer=recipe.tokenizer.replace(vocab_size=size))
    return changed, [Choice("tokenizer.vocab_size", published, size, reason)]


def fit_batch(recipe: Recipe, tokens: float, mean_length: float, fixed: Collection[str]) -> int:
    """Return the sequences a step should hold (see `batch_tokens`), at most the published number.

    Args:
        recipe: With the user's settings.
        tokens: Tokens the run will read, roughly.
        mean_length: Mean tokens of a sequence.
        fixed: Dotted fields the user set; they stay.
    """
    published = recipe.training.batch_sequences
    if _is_fixed("training.batch_sequences", fixed):
        return published
    return min(published, max(SMALLEST_BATCH, _nice(batch_tokens(tokens) / mean_length)))


def fit_schedule(
    recipe: Recipe, tokens: float, corpus_tokens: int, mean_length: float, fixed: Collection[str]
) -> tuple[Recipe, list[Choice]]:
    """Fit batch, steps, learning rate, warm-up, schedule and dropout to the tokens that will be read.

    Args:
        recipe: With the user's settings and the fitted vocabulary and length.
        tokens: Tokens the run will read, roughly.
        corpus_tokens: Tokens in the training text.
        mean_length: Mean tokens of a sequence in the first phase.
        fixed: Dotted fields the user set; they stay.
    """
    published = recipe.training
    batch = fit_batch(recipe, tokens, mean_length, fixed)
    steps = max(1, round(tokens / (batch * mean_length)))
    if _is_fixed("training.steps", fixed):
        steps = published.steps
    width = recipe.encoder.hidden_size
    epochs = tokens / max(1, corpus_tokens)
    # A rate that the user set was meant for the published optimizer.
    lamb = published.optimizer.kind == "lamb"
    swaps = lamb and batch < LAMB_SEQUENCES and not _is_fixed("training.learning_rate", fixed)
    swaps = swaps and not _is_fixed("training.optimizer.kind", fixed)
    wanted: list[tuple[str, Any, str]] = [
        ("training.batch_sequences", batch, f"{short_count(batch * mean_length)} tokens per step, {steps:,} steps"),
        ("training.steps", steps, f"{short_count(tokens)} tokens at this batch size"),
    ]
    if steps < published.steps:
        spread = _two_digits(SPREAD_AT_WIDTH_768 * math.sqrt(768 / width))
        wanted += [
            *(
                [("training.optimizer.kind", "adamw", "LAMB is made for batches of thousands of sequences")]
                if swaps
                else []
            ),
            ("training.warmup_steps", round(WARMUP_SHARE * steps), f"{WARMUP_SHARE:.0%} of the budget"),
            (
                "training.learning_rate",
                _short_run_rate(recipe, lamb=lamb and not swaps),
                "short runs tolerate a higher learning rate",
            ),
            ("training.schedule", "linear", "no jump of the learning rate after warmup"),
            (
                "training.optimizer.betas",
                (published.optimizer.betas[0], 0.98),
                "second moments averaged over 50 steps, not 1000",
            ),
            ("training.clip_norm", published.clip_norm or 1.0, "a high learning rate needs clipping"),
            ("encoder.initializer_range", spread, f"0.02 is for hidden size 768, this is {width}"),
        ]
        if tokens < LONG_BUDGET_TOKENS:
            why = f"{short_count(tokens)} tokens are few; attention starts at neighboring tokens"
            wanted.append(("encoder.initial_attention", "neighbours", why))
        if epochs < FEW_EPOCHS:
            why = f"no overfitting expected in {epochs:.2g} epochs"
            wanted += [("encoder.hidden_dropout", 0.0, why), ("encoder.attention_dropout", 0.0, why)]
        wanted += [
            (
                f"objectives.{objective.kind}.initial_bias",
                "frequencies",
                "output bias starts at unigram log-frequencies",
            )
            for objective in recipe.objectives
            if "initial_bias" in type(objective).model_fields
        ]
    return _apply(recipe, wanted, fixed)


def fit_length(recipe: Recipe, tokens: float, fixed: Collection[str]) -> tuple[Recipe, list[Choice]]:
    """Begin with short sequences and end with longer ones, as BERT itself does, at lengths that suit the budget.

    Args:
        recipe: With the user's settings.
        tokens: Tokens the run will read, roughly.
        fixed: Dotted fields the user set; they stay.
    """
    published = recipe.training.phases
    if _is_fixed("training.phases", fixed) or tokens >= LONG_BUDGET_TOKENS:
        return recipe, []
    longest = min(128, recipe.training.max_length)  # Fitting never makes sequences longer than published.
    if tokens < SHORT_BUDGET_TOKENS and longest > 32:
        wanted: tuple[LengthPhase, ...] = (
            LengthPhase(share=0.8, max_length=32),
            LengthPhase(share=0.2, max_length=longest),
        )
        reason = f"{short_count(tokens)} tokens are few; short sequences first"
    else:
        wanted = (LengthPhase(share=1.0, max_length=longest),)
        reason = f"{short_count(tokens)} tokens give more in many short sequences"
    if _mean_length(wanted) >= _mean_length(published):
        return recipe, []
    changed = recipe.replace(training=recipe.training.replace(phases=wanted))
    return changed, [Choice("training.phases", _lengths(published), _lengths(wanted), reason)]


def fit_phrases(recipe: Recipe, chinese: float, fixed: Collection[str]) -> tuple[Recipe, list[Choice]]:
    """Let the corpus itself give the phrases that a masking hides, where its script gives a segmenter none to find.

    Args:
        recipe: With the user's settings.
        chinese: Share of the corpus's letters that are Chinese characters.
        fixed: Dotted fields the user set; they stay.
    """
    published = recipe.words.phrases
    asked = "phrase" in recipe.masking.levels and not _is_fixed("words.phrases", fixed)
    if not asked or published != ("segmenter",) or chinese >= MOSTLY_CHINESE:
        return recipe, []
    wanted = (*published, "collocations")
    reason = f"{chinese:.0%} of the letters are Chinese; the segmenter finds phrases in no other script"
    changed = recipe.replace(words=recipe.words.replace(phrases=wanted))
    return changed, [Choice("words.phrases", published, wanted, reason)]


def _mean_length(phases: tuple[LengthPhase, ...]) -> float:
    return sum(phase.share * phase.max_length for phase in phases)


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
        if here[last] != chosen and not _is_fixed(path, fixed):
            choices.append(Choice(path, here[last], chosen, reason))
            here[last] = chosen
    training = data["training"]  # What the user fixed may leave no room for the warm-up.
    training["warmup_steps"] = min(training["warmup_steps"], training["steps"])
    return Recipe.model_validate(data), choices


def _short_run_rate(recipe: Recipe, *, lamb: bool) -> float:
    """The peak learning rate that a short run bears."""
    plans = [recipe.encoder.layer_plan(part) for part in ("attention", "ffn")]
    layers_of_a_block = max(plan.count(block) for plan in plans for block in plan)
    if not lamb:
        rate = RATE_AT_WIDTH_128 if recipe.generator is None else JOINT_RATE_AT_WIDTH_128
        return _two_digits(rate * min(1.0, 128 / recipe.encoder.hidden_size) * min(1.0, 2 / layers_of_a_block))
    return _two_digits(min(LAMB_RATE, LAMB_RATE_SHARED / layers_of_a_block))


def _two_digits(number: float) -> float:
    return float(f"{number:.2g}")


def _is_fixed(path: str, fixed: Collection[str]) -> bool:
    return any(path == name or path.startswith(name + ".") or name.startswith(path + ".") for name in fixed)


def _nice(number: float) -> int:
    """Round down to a power of two, or one and a half times one, so that a machine's moods seldom change it."""
    power = 1 << max(0, math.floor(math.log2(max(number, 1.0))))
    return power + power // 2 if number >= 1.5 * power and power > 1 else power
