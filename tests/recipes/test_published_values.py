"""The papers' tables, number by number; docs/published_numbers.md lists their sources."""

import inspect
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskwright.checkpoints.config_json import to_json
from maskwright.checkpoints.families import family_named
from maskwright.core.randomness import RandomNumbers
from maskwright.core.types import Instances, SpecialTokens
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.model.sizes import count_parameters
from maskwright.pretext.masking import SpanMasking
from maskwright.recipes import catalog
from maskwright.recipes.systems import bert_wwm


def parts(**groups: dict[str, Any]) -> dict[str, Any]:
    """Name fields by dotted paths."""
    return {f"{part}.{field}": value for part, fields in groups.items() for field, value in fields.items()}


def adam(betas: tuple[float, float], eps: float, decay: float, decayed: str, correction: bool) -> dict[str, Any]:
    """Name the fields of an AdamW."""
    fields = {"kind": "adamw", "betas": betas, "eps": eps, "weight_decay": decay, "decayed": decayed}
    return parts(**{"training.optimizer": fields | {"bias_correction": correction}})


def phases(*lengths: tuple[float, int]) -> list[dict[str, Any]]:
    """Describe length phases."""
    return [{"share": share, "max_length": length} for share, length in lengths]


LAMB = parts(**{"training.optimizer": {"kind": "lamb", "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.01}})
DROPOUT = {"hidden_dropout": 0.1, "attention_dropout": 0.1}
BERT_ENCODER = {
    "hidden_activation": "gelu_tanh",
    "layer_norm_eps": 1e-12,
    "position_offset": 0,
    "type_vocab_size": 2,
    "pooler": True,
    "initializer": "truncated_normal",
    "initializer_range": 0.02,
    **DROPOUT,
}
MASK_80_10_10 = {"mask": 0.8, "random": 0.1, "keep": 0.1, "per": "token", "random_from": "vocabulary"}
WORDPIECE = {"kind": "wordpiece", "vocab_size": 30522, "lowercase": True}
CHINESE = WORDPIECE | {"vocab_size": 21128}
WHOLE_WORDS = {
    "kind": "whole_word",
    "rate": 0.15,
    "rounding": "half_even",
    "rate_relative_to": "all",
}

PUBLISHED: dict[str, dict[str, Any]] = {
    "bert/*": parts(
        encoder=BERT_ENCODER,
        format={"kind": "segment_pair", "second": "next_or_random", "short_share": 0.1},
        masking={
            "kind": "token",
            "rate": 0.15,
            "rounding": "half_even",
            "rate_relative_to": "all",
            "candidates": "ordinary",
        },
        replacement=MASK_80_10_10,
        masks={"copies": 10},
        training={
            "steps": 1_000_000,
            "batch_sequences": 256,
            "phases": phases((0.9, 128), (0.1, 512)),
            "learning_rate": 1e-4,
            "warmup_steps": 10_000,
            "schedule": "linear_jump",
            "clip_norm": 1.0,
        },
    )
    | adam((0.9, 0.999), 1e-6, 0.01, "matrices", False)
    | {"objectives": {"mlm": 1.0, "nsp": 1.0}},
    "roberta/[bl]*": parts(
        encoder={
            "max_positions": 512,
            "position_offset": 2,
            "type_vocab_size": 1,
            "layer_norm_eps": 1e-5,
            "hidden_activation": "gelu",
            "pooler": False,
            "initializer": "normal",
        },
        tokenizer={"kind": "byte_bpe", "vocab_size": 50265},
        format={"kind": "full_sentences"},
        masking={"kind": "token", "rate": 0.15, "rounding": "random", "candidates": "all"},
        replacement=MASK_80_10_10 | {"random_from": "ordinary"},
        masks={"copies": None},
        training={
            "steps": 500_000,
            "batch_sequences": 8192,
            "phases": phases((1.0, 512)),
            "schedule": "linear",
            "clip_norm": 0.0,
        },
    )
    | adam((0.9, 0.98), 1e-6, 0.01, "all", True)
    | {"objectives": {"mlm": 1.0}},
    "roberta/base": parts(training={"learning_rate": 6e-4, "warmup_steps": 24_000}),
    "roberta/large": parts(training={"learning_rate": 4e-4, "warmup_steps": 30_000}),
    "albert/*": parts(
        encoder={name: value for name, value in BERT_ENCODER.items() if name not in DROPOUT}
        | {"embedding_size": 128, "max_positions": 512, "sharing": "all", "num_groups": 1},
        format={"kind": "segment_pair", "second": "next_or_swapped", "short_share": 0.1},
        masking={
            "kind": "ngram",
            "rate": 0.15,
            "rounding": "half_even",
            "max_targets": None,
            "length_shares": (6 / 11, 3 / 11, 2 / 11),
            "budget": "tokens",
            "order": "random",
            "rate_relative_to": "all",
        },
        replacement=MASK_80_10_10,
        masks={"copies": 40},
        training={"phases": phases((1.0, 512)), "schedule": "linear_jump", "clip_norm": 1.0},
    )
    | LAMB
    | {"objectives": {"mlm": 1.0, "sop": 1.0}},
    "albert/[blx]*": parts(training={"batch_sequences": 4096, "warmup_steps": 3125, "learning_rate": 0.00176}),
    **dict.fromkeys(
        ("albert/base", "albert/large", "albert/xlarge", "albert/xxlarge"),
        parts(
            tokenizer={"kind": "unigram", "vocab_size": 30000, "lowercase": True, "character_coverage": 0.99995},
            training={"steps": 125_000},
        ),
    ),
    "electra/*": parts(
        encoder=BERT_ENCODER | {"hidden_activation": "gelu", "pooler": False, "max_positions": 512},
        tokenizer=WORDPIECE,
        format={"kind": "contiguous_halves", "short_share": 0.05, "single_share": 0.1},
        masking={
            "kind": "token",
            "rounding": "half_even",
            "rate_relative_to": "all",
            "candidates": "ordinary",
            "max_targets": None,
        },
        replacement={"mask": 0.85, "random": 0.0, "keep": 0.15},
        masks={"copies": None},
        generator={"shared": "embeddings"},
        training={"warmup_steps": 10_000, "schedule": "linear_product", "clip_norm": 1.0},
    )
    | adam((0.9, 0.999), 1e-6, 0.01, "matrices", False)
    | {"objectives": {"mlm": 1.0, "rtd": 50.0}, "family": "electra"},
    **{
        f"electra/{size}": parts(
            encoder={"embedding_size": width},
            masking={"rate": rate},
            training={
                "phases": phases((1.0, length)),
                "learning_rate": learning_rate,
                "batch_sequences": batch,
                "steps": steps,
            },
        )
        for size, width, length, learning_rate, batch, steps, rate in (
            ("small", 128, 128, 5e-4, 128, 1_000_000, 0.15),
            ("base", None, 512, 2e-4, 256, 766_000, 0.15),
            ("large", None, 512, 2e-4, 2048, 400_000, 0.25),
        )
    },
    "spanbert/*": parts(
        encoder={"hidden_activation": "gelu", "layer_norm_eps": 1e-12, "pooler": False},
        tokenizer={"vocab_size": 28996, "lowercase": False},
        format={"kind": "doc_sentences", "separator_after": "document"},
        masking={
            "kind": "span",
            "rate": 0.15,
            "rounding": "up",
            "rate_relative_to": "ordinary",
            "geometric_p": 0.2,
            "longest_span": 10,
        },
        replacement=MASK_80_10_10 | {"per": "unit", "random_from": "corpus"},
        masks={"copies": None},
        training={"warmup_steps": 10_000, "schedule": "linear", "clip_norm": 1.0},
    )
    | adam((0.9, 0.999), 1e-8, 0.1, "all", True)
    | {"objectives": {"mlm": 1.0, "sbo": 1.0}},
    "spanbert/base": parts(training={"steps": 300_000, "batch_sequences": 2048, "learning_rate": 5e-4}),
    "spanbert/large": parts(training={"steps": 2_400_000, "batch_sequences": 256, "learning_rate": 1e-4}),
    "bert-wwm/base*": {"objectives": {"mlm": 1.0, "nsp": 1.0}} | parts(masking=WHOLE_WORDS),
    "bert-wwm/base": parts(
        tokenizer=CHINESE,
        words={"segmenter": "rjieba", "units": "words"},
        replacement=MASK_80_10_10,
        training={"steps": 200_000, "batch_sequences": 2560, "phases": phases((0.5, 128), (0.5, 512))},
    )
    | LAMB,
    "bert-wwm/base-ext": parts(training={"steps": 1_400_000, "phases": phases((5 / 7, 128), (2 / 7, 512))}),
    "roberta-wwm/*": parts(
        tokenizer=CHINESE,
        format={"kind": "segment_pair"},
        masking=WHOLE_WORDS,
        masks={"copies": 10},
        training={"phases": phases((1.0, 512))},
    )
    | adam((0.9, 0.999), 1e-6, 0.01, "matrices", False)
    | {"objectives": {"mlm": 1.0}, "family": "bert"},
    "roberta-wwm/large": parts(training={"steps": 2_000_000, "batch_sequences": 512}),
    "roberta-wwm/base": parts(training={"steps": 1_000_000, "batch_sequences": 384}),
    "roberta-wwm/rbt*": parts(training={"steps": 1_000_000, "batch_sequences": 384}),
    "macbert/*": parts(
        tokenizer=CHINESE,
        words={"segmenter": "rjieba"},
        format={"second": "next_or_swapped"},
        masking={
            "kind": "ngram",
            "rate": 0.15,
            "rounding": "down",
            "length_shares": (0.4, 0.3, 0.2, 0.1),
            "budget": "words",
            "order": "left_to_right",
        },
        replacement={"similar": 0.8, "random": 0.1, "keep": 0.1, "max_fallback_rate": 0.1},
        training={"batch_sequences": 512, "learning_rate": 1e-4, "phases": phases((1.0, 512))},
    )
    | LAMB
    | {"objectives": {"mlm": 1.0, "sop": 1.0}, "family": "bert"},
    "macbert/base": parts(training={"steps": 1_000_000}),
    "macbert/large": parts(training={"steps": 2_000_000}),
    "ernie/*": parts(
        encoder={"hidden_activation": "relu", "layer_norm_eps": 1e-5, "max_positions": 513},
        tokenizer={"vocab_size": 18000},
        words={"units": "characters", "phrases": ("segmenter",), "entities": ("tags",)},
        masking={"kind": "levels", "rate": 0.15, "order": "staged"},
        # Of u <= .15, .03 and more is masked, .015 and more random, the rest kept (batching.py:25-117).
        replacement=MASK_80_10_10,
        masks={"copies": None},
        training={
            "steps": 1_000_000,
            "batch_sequences": 8 * 8192 // 512,
            "phases": phases((1.0, 512)),
            "learning_rate": 1e-4,
            "warmup_steps": 5000,
            "schedule": "linear_jump",
            "clip_norm": 1.0,
        },
    )
    | adam((0.9, 0.999), 1e-8, 0.01, "matrices", True)
    | {"family": "ernie"},
    "ernie/base": {"objectives": {"mlm": 1.0, "nsp": 1.0}},
    "pmi/*": parts(
        words={"phrases": ("collocations",)}, masking={"kind": "pmi"}, training={"phases": phases((1.0, 512))}
    )
    | {"objectives": {"mlm": 1.0}},
    "distil*": parts(
        encoder=DROPOUT | {"hidden_activation": "gelu", "pooler": False},
        masking={
            "kind": "token",
            "rate": 0.15,
            "rounding": "up",
            "rate_relative_to": "all",
            "candidates": "ordinary",
            "sampling": "rare",
            "smoothing": 0.7,
        },
        replacement=MASK_80_10_10,
        masks={"copies": None},
        teacher={"initialize": "layers"},
        training={
            "learning_rate": 5e-4,
            "steps": 4800,
            "warmup_steps": 240,
            "batch_sequences": 4000,
            "clip_norm": 5.0,
            "schedule": "linear",
        },
    )
    | adam((0.9, 0.98), 1e-6, 0.0, "matrices", True)
    | {"objectives": {"soft_targets": 5.0, "mlm": 2.0, "cosine": 1.0}},
    "modernbert/*": parts(
        encoder={
            "max_positions": 8192,
            "positions": "rotary",
            "rope_theta": 1e4,
            "attention_window": 64,
            "global_attention_every": 3,
            "norm_placement": "pre",
            "first_attention_norm": False,
            "norm_bias": False,
            "dense_bias": False,
            "feed_forward": "gated",
            "hidden_activation": "gelu",
            "layer_norm_eps": 1e-5,
            "hidden_dropout": 0.0,
            "attention_dropout": 0.1,
            "initializer": "megatron",
            "initializer_range": 0.02,
        },
        tokenizer={"kind": "byte_bpe", "vocab_size": 50368},
        masking={"kind": "token", "rate": 0.3, "candidates": "all", "max_targets": None},
        replacement=MASK_80_10_10,
        masks={"copies": None},
        training={
            "batch_sequences": 4608,
            "phases": phases((1.0, 1024)),
            "schedule": "warmup_stable_decay",
            "clip_norm": 0.0,
        },
        **{"training.optimizer": {"kind": "stable_adamw", "betas": (0.9, 0.98), "eps": 1e-6}},
    )
    | {"objectives": {"mlm": 1.0}},
    # A student of BERT has no segments, one of RoBERTa one kind.
    "distilbert/*": {"family": "distilbert", "encoder.type_vocab_size": 0, "encoder.layer_norm_eps": 1e-12},
    "distilroberta/*": {"family": "roberta", "encoder.type_vocab_size": 1, "encoder.layer_norm_eps": 1e-5},
}
"""Field values by pattern of names and dotted path; `objectives` by kind and weight."""


@pytest.mark.parametrize("pattern", PUBLISHED)
def test_fields_are_as_published(pattern: str) -> None:
    matching = [name for name in catalog.names() if fnmatchcase(name, pattern)]
    assert matching
    for name in matching:
        recipe = catalog.get(name)
        data = recipe.model_dump() | {"objectives": {each.kind: each.weight for each in recipe.objectives}}
        for path, value in PUBLISHED[pattern].items():
            expected = pytest.approx(value) if path.endswith("_shares") else value
            assert _at(data, path) == expected, (name, path)


@pytest.mark.parametrize(
    ("size", "shape", "rate", "decay", "warmup"),
    [
        ("mini", (7, 256, 384, 4), 3e-3, 3e-4, 4e9),
        ("small", (10, 384, 576, 6), 3e-3, 3e-4, 4e9),
        ("medium", (19, 512, 768, 8), 3e-3, 3e-4, 3e9),
        ("base", (22, 768, 1152, 12), 8e-4, 1e-5, 3e9),
        ("large", (28, 1024, 2624, 16), 5e-4, 1e-6, 2e9),
    ],
)
def test_modernbert_s_sizes_are_as_published(size, shape, rate, decay, warmup):
    recipe = catalog.get(f"modernbert/{size}")
    encoder, training = recipe.encoder, recipe.training
    assert (encoder.num_layers, encoder.hidden_size, encoder.intermediate_size, encoder.num_heads) == shape
    assert (training.learning_rate, training.optimizer.weight_decay_per_step) == (rate, decay)
    step = training.batch_sequences * training.phases[0].max_length
    assert training.warmup_steps * step == pytest.approx(warmup, rel=1e-3)
    assert training.decay_share * training.steps * step == pytest.approx(50e9, rel=0.02)


def _at(data: Any, path: str) -> Any:
    for step in path.split("."):
        data = data[step]
    return list(data) if path.endswith("phases") and path.startswith("training") else data


SHAPES = {
    (2, 128, 2): "bert/tiny",
    (4, 256, 4): "bert/mini",
    (4, 512, 8): "bert/small",
    (8, 512, 8): "bert/medium",
    (12, 256, 4): "electra/small",
    (12, 768, 12): "bert/base bert/base-cased bert/base-chinese bert/base-multilingual-cased roberta/base albert/base "
    "albert/base-v2 albert/base-chinese electra/base spanbert/base ernie/base macbert/base roberta-wwm/base",
    (24, 1024, 16): "bert/large bert/large-cased bert/large-chinese roberta/large albert/large albert/large-v2 "
    "electra/large spanbert/large macbert/large roberta-wwm/large",
    (24, 2048, 16): "albert/xlarge albert/xlarge-v2",
    (12, 4096, 64): "albert/xxlarge albert/xxlarge-v2",
    (3, 768, 12): "roberta-wwm/rbt3",
    (4, 768, 12): "roberta-wwm/rbt4",
    (6, 768, 12): "roberta-wwm/rbt6 distilbert/base distilroberta/base",
    (3, 1024, 16): "roberta-wwm/rbtl3",
}
VOCABULARIES = {
    (30522, True): "bert/base bert/large bert/tiny",
    (28996, False): "bert/base-cased bert/large-cased",
    (21128, True): "bert/base-chinese bert/large-chinese albert/base-chinese",
    (119547, False): "bert/base-multilingual-cased",
    (105879, True): "bert/base-multilingual-uncased",
}


def test_shapes_and_vocabularies_are_as_published() -> None:
    for shape, names in SHAPES.items():
        for name in names.split():
            encoder = catalog.get(name).encoder
            assert (encoder.num_layers, encoder.hidden_size, encoder.num_heads) == shape, name
            assert encoder.intermediate_size == 4 * encoder.hidden_size
    for (size, lowercase), names in VOCABULARIES.items():
        for name in names.split():
            tokenizer: Any = catalog.get(name).tokenizer
            assert (tokenizer.kind, tokenizer.vocab_size, tokenizer.lowercase) == ("wordpiece", size, lowercase), name


# The sizes of `embedder` are its own.
SMALL = [name for name in catalog.names() if catalog.get(name).summary.startswith("not pub") and "embedder" not in name]


def test_small_recipes_differ_from_published_ones_in_shape_and_training_alone() -> None:
    free = {"name", "summary", "paper", "encoder", "training", "generator", "tokenizer", "words"}
    for name in SMALL:
        system, _, size = name.partition("/")
        small, base = (catalog.get(each) for each in (name, f"{system}/base"))
        assert {field for field, value in small if value != getattr(base, field)} <= free, name
        if size != "base-english" and "distil" not in name and system != "modernbert":
            bert = catalog.get(f"bert/{size}").encoder
            shape = small.encoder.hidden_size, small.encoder.num_layers
            assert shape == (bert.hidden_size, bert.num_layers), name


@pytest.mark.parametrize("size", ["tiny", "mini", "small"])
def test_small_alberts_see_as_many_sequences(size: str) -> None:
    training = catalog.get(f"albert/{size}").training
    assert training.steps * training.batch_sequences == 125_000 * 4096
    assert training.learning_rate == pytest.approx(0.00176 * (training.batch_sequences / 4096) ** 0.5)
    assert training.warmup_steps / training.steps == 3125 / 125_000


@pytest.mark.parametrize(("size", "steps"), [("base", 10_000_000), ("large", 3_000_000), ("xxlarge", 3_000_000)])
def test_albert_s_second_version_is_trained_longer_without_dropout(size: str, steps: int) -> None:
    first, second = catalog.get(f"albert/{size}"), catalog.get(f"albert/{size}-v2")
    assert first.encoder.hidden_dropout == first.encoder.attention_dropout == (0.0 if size == "xxlarge" else 0.1)
    assert second.training == first.training.replace(steps=steps)
    assert second.encoder == first.encoder.replace(hidden_dropout=0.0, attention_dropout=0.0)


@pytest.mark.parametrize(
    ("name", "plain"),
    [("large-english", "large"), ("large-english-cased", "large-cased"), ("base-english", "base")],
)
def test_english_whole_word_bert_differs_from_bert_in_its_masking_alone(name: str, plain: str) -> None:
    recipe, bert = catalog.get(f"bert-wwm/{name}"), catalog.get(f"bert/{plain}")
    same = {"name", "summary", "paper", "masking"}
    assert recipe.masking.kind == "whole_word"
    assert recipe.model_dump(exclude=same) == bert.model_dump(exclude=same)


@pytest.mark.parametrize(
    ("name", "pair", "runs"), [("bert-wwm/base", 0, (100, 100)), ("bert-wwm/base-ext", 1, (1000, 400))]
)
def test_the_settings_for_bert_wwms_two_runs_give_those_two_runs(name: str, pair: int, runs: tuple[int, int]) -> None:
    settings = re.findall(r'--set "(training=.*)"', inspect.getsource(bert_wwm))[2 * pair : 2 * pair + 2]
    for setting, thousands, length, batch in zip(settings, runs, (128, 512), (2560, 384), strict=True):
        training = catalog.resolve(name, [setting]).training
        assert (training.steps, training.batch_sequences) == (1000 * thousands, batch)
        assert training.warmup_steps == training.steps / 10
        assert [(phase.share, phase.max_length) for phase in training.phases] == [(1.0, length)]


@pytest.mark.parametrize("size", ["tiny", "mini", "small", "medium", "base"])
def test_students_have_half_the_layers_of_the_size_in_their_name(size: str) -> None:
    for student, teacher in (("distilbert", "bert"), ("distilroberta", "roberta")):
        ours, theirs = (catalog.get(f"{system}/{size}").encoder for system in (student, teacher))
        assert 2 * ours.num_layers == theirs.num_layers
        for field in ("hidden_size", "num_heads", "intermediate_size", "position_offset", "layer_norm_eps"):
            assert getattr(ours, field) == getattr(theirs, field)


@pytest.mark.parametrize(
    ("name", "overrides", "hidden", "heads", "layers"),
    [
        ("electra/small", [], 64, 1, 12),
        ("electra/small", ["generator.size=1"], 256, 4, 12),  # the released Small++
        ("electra/base", [], 256, 4, 12),
        ("electra/large", [], 256, 4, 24),
    ],
)
def test_electra_s_generator_is_as_published(name, overrides, hidden, heads, layers):
    recipe = catalog.resolve(name, overrides)
    config = recipe.generator.config(recipe.encoder)
    assert (config.hidden_size, config.num_heads, config.num_layers) == (hidden, heads, layers)
    assert (config.intermediate_size, config.embedding_width) == (4 * hidden, recipe.encoder.embedding_width)


def full(length: int, sequences: int = 1) -> Instances:
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
def test_electra_s_slots_are_never_exceeded(length: int, rate: float, slots: int, selected: int) -> None:
    assert int((rate + 0.005) * length) == slots
    masking: Any = catalog.resolve("electra/small", [f"masking.rate={rate}"]).masking
    assert masking.budgets(full(length), None).tolist() == [selected]
    for shorter in range(5, length + 1):
        assert masking.budgets(full(shorter), None)[0] <= slots


@pytest.mark.parametrize(("length", "count", "distinct"), [(128, 19, 17.7), (512, 77, 71.5)])
def test_electra_s_original_samples_fewer_distinct_positions(length: int, count: int, distinct: float) -> None:
    # Ours are distinct (DEVIATION): k samples with replacement among n candidates hit n (1 - (1 - 1/n)^k) on average.
    rounds, instances = 4000, full(length)
    candidates = np.flatnonzero(~instances.special)
    expected = len(candidates) * (1 - (1 - 1 / len(candidates)) ** count)
    assert expected == pytest.approx(distinct, abs=0.05)
    theirs = np.sort(np.random.default_rng(0).choice(candidates, (rounds, count)))
    different = 1 + (np.diff(theirs) > 0).sum(axis=1)
    # The mean of so many rounds is off by more than 4.5 standard errors once in 100,000.
    assert abs(different.mean() - expected) < 4.5 * different.std() / np.sqrt(rounds)
    masking: Any = catalog.get("electra/small").masking
    rng_of_all = RandomNumbers(0, np.zeros(rounds, dtype=np.int64), np.arange(rounds))
    ours = masking.select(full(length, rounds), rng_of_all).positions
    assert len(np.unique(ours)) == len(ours)
    assert np.bincount(ours // length, minlength=rounds).tolist() == [count] * rounds


def test_spanbert_s_lengths_are_normalized_not_clipped() -> None:
    masking = catalog.get("spanbert/base").masking
    assert isinstance(masking, SpanMasking)
    lengths = np.arange(1, 11)
    geometric = 0.8 ** (lengths - 1) * 0.2
    assert masking.length_probabilities == pytest.approx(geometric / geometric.sum(), abs=1e-12)
    assert masking.length_probabilities[0] == pytest.approx(0.22406, abs=5e-6)
    assert masking.length_probabilities @ lengths == pytest.approx(3.7971, abs=5e-5)
    clipped = np.append(geometric[:9], 0.8**9)  # if all lengths beyond 10 became 10
    assert clipped.sum() == pytest.approx(1, abs=1e-12)
    assert clipped @ lengths == pytest.approx(4.4631, abs=5e-5)


def test_roberta_s_first_token_has_row_2_of_514() -> None:
    config = catalog.get("roberta/base").encoder
    assert count_parameters(config, 50265)["position embeddings"] == 514 * 768
    names = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
    tokens = SpecialTokens(pad=1, unk=3, cls=0, sep=2, mask=50264, vocab_size=50265, names=names)
    written = to_json(family_named("roberta"), config, tokens, frozenset({"mlm"}), 512)
    assert (written["max_position_embeddings"], written["pad_token_id"]) == (514, 1)


def test_ernie_s_unknown_token_is_the_last_of_its_vocabulary(tmp_path: Path) -> None:
    # The released vocab.txt: [PAD] [CLS] [SEP] [MASK], then characters and words, [UNK] as number 17963.
    entries = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", *(f"word{number}" for number in range(17959)), "[UNK]"]
    (tmp_path / "vocab.txt").write_text("\n".join(entries) + "\n", encoding="utf-8")
    special = Tokenizer.from_folder(tmp_path).special_tokens
    assert (special.pad, special.cls, special.sep, special.mask, special.unk) == (0, 1, 2, 3, 17963)
    assert special.vocab_size == 17964 <= catalog.get("ernie/base").tokenizer.vocab_size == 18000
