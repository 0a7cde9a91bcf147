import math
from collections.abc import Collection

import pytest

from maskwright.fitting.budget import Budget
from maskwright.fitting.resolve import CorpusStatistics, Speed, fit_length, fit_vocabulary, vocabulary_size
from maskwright.fitting.resolve import resolve as resolve_run
from maskwright.fitting.rules import Choice
from maskwright.fitting.schedule import batch_tokens, fit_schedule
from maskwright.recipes.catalog import get, resolve
from maskwright.recipes.optimization import AdamW, StableAdamW, Training
from maskwright.recipes.recipe import Recipe


def fit(
    recipe: Recipe, tokens: float, corpus_tokens: int, length: float, fixed: Collection[str]
) -> tuple[Recipe, tuple[Choice, ...]]:
    """Fit the schedule, with sequences of one mean length in all phases."""
    return fit_schedule(recipe, tokens, corpus_tokens, [length] * len(recipe.training.phases), fixed)


def test_pre_norm_encoders_tolerate_a_higher_rate() -> None:
    rates = {size: get_fitted_rate(f"modernbert/{size}") for size in ("tiny", "mini", "medium")}
    assert rates == {"tiny": 1e-3, "mini": 1e-3, "medium": 5e-4}
    assert get_fitted_rate("bert/mini") == 5e-4


def get_fitted_rate(name: str) -> float:
    return fit(get(name), 4e6, 20_000_000, 128.0, set())[0].training.learning_rate


@pytest.mark.parametrize("tokens", [1e5, 1e6, 1e7, 1e8, 1e9, 1e11])
def test_vocabulary_entries_are_seen_often_enough_or_it_is_the_smallest(tokens: float) -> None:
    size = vocabulary_size(tokens, 30522)
    assert 4096 <= size <= 30522
    assert size == 30522 or tokens < 1e11
    if 4096 < size < 30522:
        assert size * math.log(size) * 100 <= tokens


@pytest.mark.parametrize(("tokens", "goal_is_met"), [(5e5, False), (4e6, True), (2e7, True)])
def test_the_reason_for_the_vocabulary_says_how_often_its_entries_occur(tokens: float, goal_is_met: bool) -> None:
    recipe, (choice,) = fit_vocabulary(get("bert/mini"), tokens, set())
    size = recipe.tokenizer.vocab_size
    assert f"occur about {tokens / (size * math.log(size)):.0f} times" in choice.reason
    assert ("the smallest size" in choice.reason) == (not goal_is_met)


def test_batch_rule_meets_the_published_range_at_the_published_budgets() -> None:
    # BERT read 128 B tokens (1 M steps of 256 sequences, mostly 128 long) and RoBERTa 2 T.
    assert 100_000 < batch_tokens(1.3e11) < 200_000
    assert 500_000 < batch_tokens(2.1e12) < 5_000_000


def test_a_small_budget_gets_a_schedule_that_fits_into_it() -> None:
    published = get("bert/mini")
    recipe, choices = fit(published, 4e6, 20_000_000, 128.0, set())
    training = recipe.training
    assert training.steps * training.batch_sequences * 128 == pytest.approx(4e6, rel=0.02)
    assert training.warmup_steps < training.steps / 5
    assert training.learning_rate > published.training.learning_rate
    assert (recipe.encoder.initial_attention, recipe.encoder.hidden_dropout) == ("neighbors", 0.0)
    assert recipe.encoder.initial_embeddings == "cooccurrence"
    assert recipe.objectives[0].model_dump()["initial_bias"] == "frequencies"
    assert {choice.field for choice in choices} >= {
        "training.batch_sequences", "training.learning_rate", "encoder.initial_attention", "encoder.hidden_dropout",
        "objectives.mlm.initial_bias", "encoder.initial_embeddings",
    }  # fmt: skip
    assert all(choice.reason for choice in choices)
    assert training.learning_rate > get_fitted_rate("electra/mini")  # A generator beside lowers it.
    often, _ = fit(published, 4e6, 200_000, 128.0, set())
    assert often.encoder.hidden_dropout == published.encoder.hidden_dropout
    large, _ = fit(published, 1e10, 10**11, 128.0, set())
    assert large.encoder.initial_attention == large.encoder.initial_embeddings == "random"


@pytest.mark.parametrize(
    ("name", "sharing", "rate"),
    [
        ("albert/tiny", "all", 0.003),
        ("albert/mini", "all", 0.0015),
        ("albert/mini", "ffn", 0.0015),
        ("albert/mini", "none", 0.003),
        ("albert/base", "all", 0.0005),
    ],
)
def test_lamb_that_the_user_set_stays_and_its_rate_falls_with_the_layers_that_share_a_block(name, sharing, rate):
    published = resolve(name, [f"encoder.sharing={sharing}"])
    recipe, choices = fit(published, 4e6, 20_000_000, 128.0, {"training.optimizer.kind"})
    assert recipe.training.optimizer == published.training.optimizer.replace(betas=(0.9, 0.98))
    assert recipe.training.learning_rate == rate
    assert "training.learning_rate" in {choice.field for choice in choices}


def test_small_steps_take_adamw_instead_of_lamb() -> None:
    published = get("albert/mini")
    recipe, choices = fit(published, 4e6, 20_000_000, 128.0, set())
    assert recipe.training.optimizer == AdamW(betas=(0.9, 0.98))
    assert recipe.training.learning_rate == get_fitted_rate("bert/mini") / 2  # 4 layers share a block.
    (swap,) = (choice for choice in choices if choice.field == "training.optimizer.kind")
    assert swap.shown() == ("lamb", "adamw")


def test_large_steps_and_rates_of_the_user_keep_lamb() -> None:
    published = get("albert/base")
    large, _ = fit(published, 5e11, 10**12, 512.0, set())
    assert large.training.batch_sequences >= 512
    assert large.training.optimizer.kind == "lamb"
    fitted, _ = fit(published, 4e6, 20_000_000, 128.0, {"training.learning_rate"})
    assert fitted.training.optimizer.kind == "lamb"
    assert fitted.training.learning_rate == published.training.learning_rate


def test_stable_adamw_needs_no_clipping() -> None:
    unclipped = ["training.optimizer.kind=stable_adamw", "training.clip_norm=0"]
    recipe, _ = fit(resolve("bert/mini", unclipped), 4e6, 20_000_000, 128.0, {"training.optimizer.kind"})
    assert (recipe.training.optimizer, recipe.training.clip_norm) == (StableAdamW(), 0)
    clipped, _ = fit(resolve("bert/mini", unclipped[1:]), 4e6, 20_000_000, 128.0, set())
    assert clipped.training.clip_norm == 1


def test_what_the_user_set_stays() -> None:
    published = get("bert/mini")
    fixed = {"training.learning_rate", "tokenizer.vocab_size", "training.phases", "objectives.mlm.initial_bias"}
    recipe, choices = fit(published, 4e6, 20_000_000, 128.0, fixed)
    assert recipe.training.learning_rate == published.training.learning_rate
    assert recipe.objectives[0].model_dump()["initial_bias"] == "zero"
    assert not fixed & {choice.field for choice in choices}
    assert fit_vocabulary(published, 4e6, fixed) == (published, ())
    assert fit_length(published, 4e6, fixed) == (published, ())


def test_fitting_is_stable_against_a_machine_that_is_a_little_slower() -> None:
    published = get("bert/mini")
    fitted = [fit(published, tokens, 20_000_000, 128.0, set())[0] for tokens in (3.7e6, 3.8e6, 3.9e6)]
    assert len({recipe.training.batch_sequences for recipe in fitted}) == 1


@pytest.mark.parametrize(
    ("name", "tokens", "phases"),
    [
        ("bert/mini", 5e5, [(0.8, 32), (0.2, 128)]),
        ("bert/mini", 4e6, [(0.7, 32), (0.2, 128), (0.1, 512)]),
        ("roberta/mini", 1e8, [(0.9, 128), (0.1, 512)]),
        # Never longer than published.
        ("electra/small", 4e6, [(0.8, 32), (0.2, 128)]),
        # With a generator short sequences come first in larger budgets too.
        ("electra/small", 1e8, [(0.3, 32), (0.7, 128)]),
        ("electra/base", 1e8, [(0.3, 32), (0.6, 128), (0.1, 512)]),
    ],
)
def test_runs_begin_with_short_sequences_and_end_at_the_full_length(name, tokens, phases):
    fitted = fit_length(get(name), tokens, set())[0].training
    assert [(phase.share, phase.max_length) for phase in fitted.phases] == phases


def test_a_share_of_the_steps_at_the_full_length_holds_the_same_share_of_the_tokens() -> None:
    phases = fit_length(get("roberta/mini"), 4e6, set(), in_steps=True)[0].training.phases
    assert [(phase.share, phase.max_length) for phase in phases] == [(0.79, 32), (0.2, 128), (0.01, 512)]
    tokens = [phase.share * phase.max_length for phase in phases]
    assert tokens[-1] / sum(tokens) == pytest.approx(0.1, abs=0.01)


def test_a_student_reads_no_longer_sequences_than_its_teacher() -> None:
    for length, longest in ((512, 512), (300, 300), (128, 128)):
        run = resolve_run(get("distilbert/tiny"), Budget("tokens", 4e6), RAW, teacher_length=length)
        assert run.recipe.training.max_length == longest
    for tokens, length in ((3e5, 256), (3e5, 128), (4e6, 512), (4e6, 128), (1e8, 128)):
        run = resolve_run(get("embedder/mini"), Budget("tokens", tokens), RAW, teacher_length=length)
        assert [phase.max_length for phase in run.recipe.training.phases] == [16, 64, min(length, 256)]
    phases = "training.phases=[{share: 0.9, max_length: 16}, {share: 0.1, max_length: 1024}]"
    alone = resolve("modernbert/tiny", [phases])
    assert fit_length(alone, 4e6, set()) == (alone, ())


def test_large_budgets_keep_the_published_lengths() -> None:
    for name, tokens in (("bert/mini", 1e10), ("bert/mini", 1e8), ("roberta/mini", 1e10)):
        assert fit_length(get(name), tokens, set()) == (get(name), ())


RAW = CorpusStatistics(chinese_share=0.0)
TOKENIZED = CorpusStatistics(chinese_share=0.0, tokens=20_000_000, mean_lengths=(30.0, 90.0))


def test_before_tokenization_only_what_tokenization_needs_is_resolved() -> None:
    published = get("bert/mini")
    run = resolve_run(published, Budget("tokens", 4e6), RAW)
    assert [choice.field for choice in run.choices] == ["training.phases", "tokenizer.vocab_size"]
    assert run.expected_tokens == 4e6
    assert run.recipe.training.replace(phases=published.training.phases) == published.training
    assert resolve_run(published, Budget("tokens", 4e6), RAW) == run
    assert published == get("bert/mini")


def test_a_faster_machine_is_planned_more_tokens_for_the_same_time() -> None:
    slow, fast = (
        resolve_run(get("bert/mini"), Budget("seconds", 600), RAW, speed=Speed(flops)) for flops in (1e10, 1e12)
    )
    assert fast.expected_tokens > 50 * slow.expected_tokens
    assert fast.recipe.tokenizer.vocab_size > slow.recipe.tokenizer.vocab_size


def test_larger_steps_have_a_higher_learning_rate() -> None:
    """The rule gives 1,000 tokens a step; twice as many double the rate, and at most three times it is allowed."""

    def training(full_step_tokens: float, *fixed: str) -> Training:
        recipe = get("bert/mini")
        if fixed:
            recipe = recipe.replace(training=recipe.training.replace(batch_sequences=250))
        fitted, _ = fit_schedule(recipe, 4e6, 1e8, [25.0] * len(recipe.training.phases), fixed, None, full_step_tokens)
        return fitted.training

    rule, doubled, most = (training(tokens) for tokens in (0.0, 1600.0, 1e6))
    assert (rule.batch_sequences, doubled.batch_sequences, most.batch_sequences) == (32, 64, 256)
    assert doubled.learning_rate == pytest.approx(1.6 * rule.learning_rate, rel=0.02)
    assert most.learning_rate == pytest.approx(3 * rule.learning_rate, rel=0.02)
    assert training(0.0, "training.batch_sequences").learning_rate == most.learning_rate


@pytest.mark.parametrize("name", ["bert-wwm/mini", "albert/base", "electra/mini"])
def test_a_larger_step_changes_neither_optimizer_nor_unmeasured_rates(name: str) -> None:
    small, large = (
        fit_schedule(get(name), 1e7, 1e8, [25.0] * len(get(name).training.phases), (), None, tokens)[0].training
        for tokens in (0.0, 1e6)
    )
    assert large.batch_sequences > small.batch_sequences
    assert small.optimizer.kind == large.optimizer.kind == "adamw"
    assert (small.learning_rate == large.learning_rate) == (name != "bert-wwm/mini")


def test_steps_buy_what_the_resolved_batches_hold() -> None:
    run = resolve_run(get("bert/mini"), Budget("steps", 1000), TOKENIZED)
    assert run.recipe.training.steps == 1000
    assert run.recipe.training.phases == get("bert/mini").training.phases
    # Both published phases count: 90 % of the steps at the first length, 10 % at the second.
    assert run.expected_tokens == pytest.approx(1000 * run.recipe.training.batch_sequences * (0.9 * 30 + 0.1 * 90))


def test_as_published_changes_nothing() -> None:
    published = get("bert/mini")
    run = resolve_run(published, Budget("steps", 10), TOKENIZED, as_published=True)
    assert (run.recipe, run.choices) == (published, ())
    assert run.expected_tokens == pytest.approx(10 * published.training.batch_sequences * (0.9 * 30 + 0.1 * 90))


def test_a_short_run_keeps_a_schedule_with_a_stable_part() -> None:
    changed = resolve("bert/mini", ["training.schedule=warmup_stable_decay", "training.decay_share=0.3"])
    recipe, choices = fit(changed, 4e6, 20_000_000, 128.0, set())
    assert (recipe.training.schedule, recipe.training.decay_share) == ("warmup_stable_decay", 0.3)
    assert recipe.training.warmup_steps == round(0.1 * recipe.training.steps)
    assert "training.schedule" not in {choice.field for choice in choices}


def test_a_warmup_that_the_user_set_is_limited_to_the_run_and_listed() -> None:
    recipe, choices = fit(resolve("bert/tiny", ["training.warmup_steps=9000"]), 4e6, 20_000_000, 128.0, WARMUP)
    steps = recipe.training.steps
    assert recipe.training.warmup_steps == steps < 9000
    assert ("training.warmup_steps", 9000, steps) in {(each.field, each.published, each.chosen) for each in choices}
    shorter, choices = fit(resolve("bert/tiny", ["training.warmup_steps=9"]), 4e6, 20_000_000, 128.0, WARMUP)
    assert shorter.training.warmup_steps == 9
    assert "training.warmup_steps" not in {choice.field for choice in choices}


WARMUP = {"training.warmup_steps"}
