"""The papers' tables, number by number."""

import pytest

from maskwright.recipes import catalog


@pytest.mark.parametrize(
    ("name", "layers", "hidden", "heads", "vocabulary", "lowercase"),
    [
        ("bert/tiny", 2, 128, 2, 30522, True),
        ("bert/mini", 4, 256, 4, 30522, True),
        ("bert/small", 4, 512, 8, 30522, True),
        ("bert/medium", 8, 512, 8, 30522, True),
        ("bert/base", 12, 768, 12, 30522, True),
        ("bert/large", 24, 1024, 16, 30522, True),
        ("bert/base-cased", 12, 768, 12, 28996, False),
        ("bert/large-cased", 24, 1024, 16, 28996, False),
        ("bert/base-chinese", 12, 768, 12, 21128, True),
        ("bert/large-chinese", 24, 1024, 16, 21128, True),
        ("bert/base-multilingual-cased", 12, 768, 12, 119547, False),
        ("bert/base-multilingual-uncased", 12, 768, 12, 105879, True),
    ],
)
def test_bert_shapes_and_vocabularies(name, layers, hidden, heads, vocabulary, lowercase):
    recipe = catalog.get(name)
    assert (recipe.encoder.num_layers, recipe.encoder.hidden_size, recipe.encoder.num_heads) == (
        layers,
        hidden,
        heads,
    )
    assert (recipe.tokenizer.kind, recipe.tokenizer.vocab_size) == ("wordpiece", vocabulary)
    assert recipe.tokenizer.lowercase is lowercase


@pytest.mark.parametrize("name", [name for name in catalog.names() if name.startswith("bert/")])
def test_bert_is_trained_as_published(name):
    recipe = catalog.get(name)
    training, encoder = recipe.training, recipe.encoder
    assert (training.steps, training.batch_sequences) == (1_000_000, 256)
    assert [(phase.share, phase.max_length) for phase in training.phases] == [(0.9, 128), (0.1, 512)]
    assert (training.learning_rate, training.warmup_steps, training.schedule) == (1e-4, 10_000, "linear_jump")
    assert training.clip_norm == 1.0
    optimizer = training.optimizer
    assert (optimizer.betas, optimizer.eps, optimizer.weight_decay) == ((0.9, 0.999), 1e-6, 0.01)
    assert (optimizer.decayed, optimizer.bias_correction) == ("matrices", False)
    assert (encoder.layer_norm_eps, encoder.hidden_activation) == (1e-12, "gelu_tanh")
    assert (encoder.position_offset, encoder.type_vocab_size, encoder.pooler) == (0, 2, True)
    assert (encoder.hidden_dropout, encoder.attention_dropout) == (0.1, 0.1)
    assert (encoder.initializer, encoder.initializer_range) == ("truncated_normal", 0.02)


@pytest.mark.parametrize("name", [name for name in catalog.names() if name.startswith("bert/")])
def test_bert_s_task_is_as_published(name):
    recipe = catalog.get(name)
    assert (recipe.format.kind, recipe.format.second, recipe.format.short_share) == (
        "segment_pair",
        "next_or_random",
        0.1,
    )
    masking = recipe.masking
    assert (masking.kind, masking.rate, masking.rounding) == ("token", 0.15, "half_even")
    assert (masking.counted, masking.candidates) == ("all", "ordinary")
    replacement = recipe.replacement
    assert (replacement.mask, replacement.random, replacement.keep) == (0.8, 0.1, 0.1)
    assert (replacement.per, replacement.random_from) == ("token", "vocabulary")
    assert recipe.masks.copies == 10
    assert [(objective.kind, objective.weight) for objective in recipe.objectives] == [
        ("mlm", 1.0),
        ("nsp", 1.0),
    ]


@pytest.mark.parametrize(
    ("name", "layers", "hidden", "heads", "learning_rate", "warmup"),
    [("roberta/base", 12, 768, 12, 6e-4, 24_000), ("roberta/large", 24, 1024, 16, 4e-4, 30_000)],
)
def test_roberta_is_as_published(name, layers, hidden, heads, learning_rate, warmup):
    recipe = catalog.get(name)
    encoder, training, masking = recipe.encoder, recipe.training, recipe.masking
    assert (encoder.num_layers, encoder.hidden_size, encoder.num_heads) == (layers, hidden, heads)
    assert (encoder.max_positions, encoder.position_offset, encoder.type_vocab_size) == (512, 2, 1)
    assert (encoder.layer_norm_eps, encoder.hidden_activation, encoder.pooler) == (1e-5, "gelu", False)
    assert encoder.initializer == "normal"
    assert (training.learning_rate, training.warmup_steps, training.schedule) == (
        learning_rate,
        warmup,
        "linear",
    )
    assert (training.steps, training.batch_sequences, training.clip_norm) == (500_000, 8192, 0)
    assert [(phase.share, phase.max_length) for phase in training.phases] == [(1.0, 512)]
    optimizer = training.optimizer
    assert (optimizer.betas, optimizer.eps, optimizer.weight_decay) == ((0.9, 0.98), 1e-6, 0.01)
    assert (optimizer.decayed, optimizer.bias_correction) == ("all", True)
    assert (recipe.tokenizer.kind, recipe.tokenizer.vocab_size) == ("byte_bpe", 50265)
    assert recipe.format.kind == "full_sentences"
    assert (masking.kind, masking.rate, masking.rounding, masking.candidates) == (
        "token",
        0.15,
        "random",
        "all",
    )
    assert recipe.replacement.random_from == "ordinary"
    assert recipe.masks.copies is None
    assert [objective.kind for objective in recipe.objectives] == ["mlm"]


@pytest.mark.parametrize(
    ("name", "layers", "hidden", "heads", "dropout"),
    [
        ("albert/base", 12, 768, 12, 0.1),
        ("albert/large", 24, 1024, 16, 0.1),
        ("albert/xlarge", 24, 2048, 16, 0.1),
        ("albert/xxlarge", 12, 4096, 64, 0.0),
        ("albert/base-v2", 12, 768, 12, 0.0),
        ("albert/xxlarge-v2", 12, 4096, 64, 0.0),
        ("albert/base-chinese", 12, 768, 12, 0.1),
    ],
)
def test_albert_s_encoder_is_as_published(name, layers, hidden, heads, dropout):
    encoder = catalog.get(name).encoder
    assert (encoder.num_layers, encoder.hidden_size, encoder.num_heads) == (layers, hidden, heads)
    assert (encoder.embedding_width, encoder.max_positions, encoder.type_vocab_size) == (128, 512, 2)
    assert encoder.layer_plan("attention") == encoder.layer_plan("ffn") == (0,) * layers
    assert (encoder.hidden_dropout, encoder.attention_dropout) == (dropout, dropout)
    assert (encoder.hidden_activation, encoder.layer_norm_eps, encoder.pooler) == ("gelu_tanh", 1e-12, True)
    assert (encoder.initializer, encoder.initializer_range) == ("truncated_normal", 0.02)


@pytest.mark.parametrize("name", ["albert/base", "albert/large", "albert/xlarge", "albert/xxlarge"])
def test_albert_s_task_and_training_are_as_published(name):
    recipe = catalog.get(name)
    masking, training = recipe.masking, recipe.training
    assert (recipe.tokenizer.kind, recipe.tokenizer.vocab_size) == ("unigram", 30000)
    assert (recipe.tokenizer.lowercase, recipe.tokenizer.character_coverage) == (True, 0.99995)
    assert (recipe.format.kind, recipe.format.second, recipe.format.short_share) == (
        "segment_pair",
        "next_or_swapped",
        0.1,
    )
    assert (masking.kind, masking.rate, masking.rounding, masking.max_targets) == ("ngram", 0.15, "half_even", None)
    assert masking.length_shares == pytest.approx((6 / 11, 3 / 11, 2 / 11))
    assert (masking.budget, masking.order, masking.counted) == ("tokens", "random", "all")
    assert recipe.masks.copies == 40
    assert [(objective.kind, objective.weight) for objective in recipe.objectives] == [("mlm", 1.0), ("sop", 1.0)]
    assert (training.steps, training.batch_sequences, training.warmup_steps) == (125_000, 4096, 3125)
    assert [(phase.share, phase.max_length) for phase in training.phases] == [(1.0, 512)]
    assert (training.learning_rate, training.schedule, training.clip_norm) == (0.00176, "linear_jump", 1.0)
    optimizer = training.optimizer
    assert optimizer.kind == "lamb"
    assert (optimizer.betas, optimizer.eps, optimizer.weight_decay) == ((0.9, 0.999), 1e-6, 0.01)


@pytest.mark.parametrize(("size", "steps"), [("base", 10_000_000), ("large", 3_000_000), ("xxlarge", 3_000_000)])
def test_albert_s_second_version_is_trained_longer_without_dropout(size, steps):
    first, second = catalog.get(f"albert/{size}"), catalog.get(f"albert/{size}-v2")
    assert second.training.steps == steps
    assert second.training.replace(steps=125_000) == first.training
    assert second.encoder == first.encoder.replace(hidden_dropout=0.0, attention_dropout=0.0)


@pytest.mark.parametrize("size", ["tiny", "mini", "small"])
def test_small_alberts_say_that_they_are_not_published(size):
    recipe, base = catalog.get(f"albert/{size}"), catalog.get("albert/base")
    bert = catalog.get(f"bert/{size}").encoder
    assert "not published" in recipe.summary
    assert (recipe.encoder.hidden_size, recipe.encoder.num_layers) == (bert.hidden_size, bert.num_layers)
    assert recipe.encoder.embedding_width == 128
    assert recipe.encoder.layer_plan("ffn") == (0,) * bert.num_layers
    assert (recipe.masking, recipe.format, recipe.objectives) == (base.masking, base.format, base.objectives)
    # As many sequences as base reads, and the rate in proportion to the root of the batch.
    training = recipe.training
    assert training.steps * training.batch_sequences == 125_000 * 4096
    assert training.learning_rate == pytest.approx(0.00176 * (training.batch_sequences / 4096) ** 0.5)
    assert training.warmup_steps / training.steps == 3125 / 125_000


@pytest.mark.parametrize("size", ["tiny", "mini", "small", "medium"])
def test_small_robertas_say_that_they_are_not_published(size):
    recipe = catalog.get(f"roberta/{size}")
    bert = catalog.get(f"bert/{size}")
    assert "not published" in recipe.summary
    assert recipe.encoder.hidden_size == bert.encoder.hidden_size
    assert recipe.masking == catalog.get("roberta/base").masking


def test_masks_are_drawn_ten_times_or_in_every_epoch():
    static, dynamic = catalog.get("bert/base").masks, catalog.get("roberta/base").masks
    assert [static.refresh(epoch) for epoch in range(12)] == [*range(10), 0, 1]
    assert [dynamic.refresh(epoch) for epoch in range(12)] == list(range(12))
