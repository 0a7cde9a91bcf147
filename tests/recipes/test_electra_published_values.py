"""ELECTRA's tables, number by number, and what follows from them."""

import numpy as np
import pytest

from maskwright.core.randomness import RandomNumbers
from maskwright.core.types import Instances
from maskwright.recipes import catalog
from maskwright.recipes.sizing import sizes
from maskwright.training.schedule import rate_factor

PUBLISHED = ("electra/small", "electra/base", "electra/large")


@pytest.mark.parametrize(
    ("name", "layers", "hidden", "heads", "inner", "width"),
    [
        ("electra/small", 12, 256, 4, 1024, 128),
        ("electra/base", 12, 768, 12, 3072, 768),
        ("electra/large", 24, 1024, 16, 4096, 1024),
    ],
)
def test_encoder_is_as_published(name, layers, hidden, heads, inner, width):
    encoder = catalog.get(name).encoder
    assert (encoder.num_layers, encoder.hidden_size, encoder.num_heads) == (layers, hidden, heads)
    assert (encoder.intermediate_size, encoder.embedding_width) == (inner, width)
    assert (encoder.hidden_activation, encoder.layer_norm_eps, encoder.pooler) == ("gelu", 1e-12, False)
    assert (encoder.max_positions, encoder.position_offset, encoder.type_vocab_size) == (512, 0, 2)
    assert (encoder.hidden_dropout, encoder.attention_dropout) == (0.1, 0.1)
    assert (encoder.initializer, encoder.initializer_range) == ("truncated_normal", 0.02)


@pytest.mark.parametrize(
    ("name", "overrides", "hidden", "heads", "inner", "layers"),
    [
        ("electra/small", [], 64, 1, 256, 12),
        ("electra/small", ["generator.size=1"], 256, 4, 1024, 12),  # the released Small++
        ("electra/base", [], 256, 4, 1024, 12),
        ("electra/large", [], 256, 4, 1024, 24),
    ],
)
def test_generator_is_as_published(name, overrides, hidden, heads, inner, layers):
    recipe = catalog.resolve(name, overrides)
    assert recipe.generator is not None
    config = recipe.generator.config(recipe.encoder)
    assert (config.hidden_size, config.num_heads) == (hidden, heads)
    assert (config.intermediate_size, config.num_layers) == (inner, layers)
    assert config.embedding_width == recipe.encoder.embedding_width
    assert recipe.generator.shared == "embeddings"


@pytest.mark.parametrize(
    ("name", "overrides", "encoder", "discriminator", "generator"),
    [
        ("electra/small", [], 13_483_008, 13_549_057, 4_620_026),
        ("electra/small", ["generator.size=1"], 13_483_008, 13_549_057, 13_546_682),
        ("electra/base", [], 108_891_648, 109_483_009, 33_740_602),
        ("electra/large", [], 334_092_288, 335_142_913, 51_295_290),
    ],
)
def test_numbers_of_parameters_are_the_published_ones(name, overrides, encoder, discriminator, generator):
    counted = sizes(catalog.resolve(name, overrides))
    assert counted.encoder == counted.encoder_and_pooler == encoder
    assert counted.encoder + counted.heads["rtd"] == discriminator
    assert counted.masked_lm == generator
    # In training both are there, the embeddings and their LayerNorm once.
    parts = ("word embeddings", "position embeddings", "segment embeddings", "embedding norm")
    assert counted.pretraining == discriminator + generator - sum(counted.parts[part] for part in parts)
    apart = sizes(catalog.resolve(name, [*overrides, "generator.shared=none"]))
    assert apart.pretraining == discriminator + generator


@pytest.mark.parametrize(
    ("name", "length", "learning_rate", "batch", "steps", "rate"),
    [
        ("electra/small", 128, 5e-4, 128, 1_000_000, 0.15),
        ("electra/base", 512, 2e-4, 256, 766_000, 0.15),
        ("electra/large", 512, 2e-4, 2048, 400_000, 0.25),
    ],
)
def test_training_is_as_published(name, length, learning_rate, batch, steps, rate):
    recipe = catalog.get(name)
    training, optimizer = recipe.training, recipe.training.optimizer
    assert [(phase.share, phase.max_length) for phase in training.phases] == [(1.0, length)]
    assert (training.learning_rate, training.batch_sequences, training.steps) == (learning_rate, batch, steps)
    assert (training.warmup_steps, training.schedule, training.clip_norm) == (10_000, "linear_product", 1.0)
    assert (optimizer.betas, optimizer.eps, optimizer.weight_decay) == ((0.9, 0.999), 1e-6, 0.01)
    assert (optimizer.decayed, optimizer.bias_correction) == ("matrices", False)
    assert recipe.masking.rate == rate


@pytest.mark.parametrize("name", PUBLISHED)
def test_task_is_as_published(name):
    recipe = catalog.get(name)
    assert (recipe.tokenizer.kind, recipe.tokenizer.vocab_size, recipe.tokenizer.lowercase) == (
        "wordpiece",
        30522,
        True,
    )
    format = recipe.format
    assert (format.kind, format.short_share, format.single_share) == ("contiguous_halves", 0.05, 0.1)
    masking, replacement = recipe.masking, recipe.replacement
    assert (masking.kind, masking.rounding, masking.counted) == ("token", "half_even", "all")
    assert (masking.candidates, masking.max_targets) == ("ordinary", None)
    assert (replacement.mask, replacement.random, replacement.keep) == (0.85, 0.0, 0.15)
    assert recipe.masks.copies is None
    assert [(objective.kind, objective.weight) for objective in recipe.objectives] == [("mlm", 1.0), ("rtd", 50.0)]
    assert recipe.objectives[1].loss_at == "everywhere"
    assert recipe.family == "electra"


@pytest.mark.parametrize("size", ["tiny", "mini"])
def test_the_smallest_say_that_they_are_not_published(size):
    recipe, bert = catalog.get(f"electra/{size}"), catalog.get(f"bert/{size}")
    assert "not published" in recipe.summary
    assert recipe.encoder.hidden_size == bert.encoder.hidden_size
    assert recipe.replacement == catalog.get("electra/small").replacement


def full(length, sequences=1):
    """Sequences without padding, each of two texts."""
    special = np.zeros((sequences, length), dtype=bool)
    special[:, [0, length // 2, length - 1]] = True
    total = sequences * length
    return Instances(
        ids=np.full(total, 9, dtype=np.int32),
        segment_ids=np.zeros(total, dtype=np.int8),
        word_starts=np.ones(total, dtype=bool),
        special=special.ravel(),
        cu_seqlens=np.arange(sequences + 1) * length,
        pair_labels=np.full(sequences, -1, dtype=np.int8),
    )


@pytest.mark.parametrize(
    ("length", "rate", "slots", "selected"), [(128, 0.15, 19, 19), (512, 0.15, 79, 77), (512, 0.25, 130, 128)]
)
def test_the_original_s_slots_never_bind(length, rate, slots, selected):
    assert int((rate + 0.005) * length) == slots
    masking = catalog.resolve("electra/small", [f"masking.rate={rate}"]).masking
    assert masking.budgets(full(length), None).tolist() == [selected]
    for shorter in range(5, length + 1):
        assert masking.budgets(full(shorter), None)[0] <= slots


@pytest.mark.parametrize(("length", "count", "distinct"), [(128, 19, 17.7), (512, 77, 71.5)])
def test_what_the_original_loses_by_drawing_with_replacement(length, count, distinct):
    # We draw distinct places (DEVIATION): k draws among n candidates hit n (1 - (1 - 1/n)^k) of them on average.
    rounds, instances = 4000, full(length)
    candidates = np.flatnonzero(~instances.special)  # [CLS] and two [SEP] are none
    expected = len(candidates) * (1 - (1 - 1 / len(candidates)) ** count)
    assert expected == pytest.approx(distinct, abs=0.05)
    theirs = np.sort(np.random.default_rng(0).choice(candidates, (rounds, count)))
    different = 1 + (np.diff(theirs) > 0).sum(axis=1)
    # The mean of so many rounds is off by more than 4.5 standard errors once in 100,000.
    assert abs(different.mean() - expected) < 4.5 * different.std() / np.sqrt(rounds)
    masking = catalog.get("electra/small").masking
    rng_of_all = RandomNumbers(0, np.zeros(rounds, dtype=np.int64), np.arange(rounds))
    ours = masking.select(full(length, rounds), rng_of_all).positions
    assert len(np.unique(ours)) == len(ours)
    assert np.bincount(ours // length, minlength=rounds).tolist() == [count] * rounds


def test_the_rate_never_reaches_its_peak():
    training = catalog.get("electra/small").training
    share = training.warmup_steps / training.steps
    steps = np.arange(0, 100_000, 50)
    factors = [rate_factor(training.schedule, step / training.steps, share) for step in steps]
    assert max(factors) == pytest.approx(0.99, abs=1e-9)
    assert steps[int(np.argmax(factors))] == training.warmup_steps
