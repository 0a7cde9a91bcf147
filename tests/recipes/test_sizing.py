"""Sizes: the published numbers of parameters, exactly, and equal to those of the modules themselves."""

import pytest
import torch

from maskwright.core.tensors import HeadShape
from maskwright.encoder.encoder import Encoder
from maskwright.recipes import catalog
from maskwright.recipes.sizing import sizes, training_flops_per_token


@pytest.mark.parametrize(
    ("name", "with_pooler", "encoder", "pretraining", "masked_lm"),
    [
        ("bert/tiny", 4_385_920, 4_369_408, 4_433_468, 4_416_698),
        ("bert/mini", 11_170_560, 11_104_768, 11_267_900, 11_201_594),
        ("bert/small", 28_763_648, 28_500_992, 29_058_876, 28_795_194),
        ("bert/medium", 41_373_184, 41_110_528, 41_668_412, 41_404_730),
        ("bert/base", 109_482_240, 108_891_648, 110_106_428, 109_514_298),
        ("bert/large", 335_141_888, 334_092_288, 336_226_108, 335_174_458),
        ("bert/base-cased", 108_310_272, 107_719_680, 108_932_934, 108_340_804),
        ("bert/large-cased", 333_579_264, 332_529_664, 334_661_958, 333_610_308),
    ],
)
def test_bert_has_the_published_number_of_parameters(name, with_pooler, encoder, pretraining, masked_lm):
    counted = sizes(catalog.get(name))
    assert counted.encoder_and_pooler == with_pooler
    assert counted.encoder == encoder
    assert counted.pretraining == pretraining
    assert counted.masked_lm == masked_lm


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("bert/base-chinese", 102_267_648),
        ("bert/large-chinese", 325_522_432),
        ("bert/base-multilingual-cased", 177_853_440),
        ("bert/base-multilingual-uncased", 167_356_416),
    ],
)
def test_bert_of_other_languages_has_the_published_number_of_parameters(name, parameters):
    assert sizes(catalog.get(name)).encoder_and_pooler == parameters


@pytest.mark.parametrize(
    ("name", "encoder", "masked_lm"),
    [("roberta/base", 124_055_040, 124_697_433), ("roberta/large", 354_310_144, 355_412_057)],
)
def test_roberta_has_the_published_number_of_parameters(name, encoder, masked_lm):
    counted = sizes(catalog.get(name))
    assert counted.encoder == counted.encoder_and_pooler == encoder
    assert counted.pretraining == counted.masked_lm == masked_lm


@pytest.mark.parametrize("name", catalog.names())
def test_every_recipe_s_counts_are_those_of_its_modules(name):
    recipe = catalog.get(name)
    config, vocab_size = recipe.encoder, recipe.tokenizer.vocab_size
    shape = HeadShape(
        hidden_size=config.hidden_size,
        embedding_size=config.embedding_width,
        vocab_size=vocab_size,
        hidden_activation=config.hidden_activation,
        layer_norm_eps=config.layer_norm_eps,
    )
    with torch.device("meta"):
        encoder = Encoder(config, vocab_size)
        heads = [objective.head(shape) for objective in recipe.objectives]
    counted = sizes(recipe)
    assert _parameters(encoder) == counted.encoder_and_pooler
    assert _parameters(encoder) + sum(map(_parameters, heads)) == counted.pretraining


def _parameters(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_operations_follow_the_schedule():
    counted = sizes(catalog.get("bert/base"))
    short, long = counted.phases
    assert (short.max_length, short.share, long.max_length, long.share) == (128, 0.9, 512, 0.1)
    # Two operations a weight and token forward, twice that backward; attention and heads come on top.
    body = 2 * 12 * (12 * 768 * 768)
    assert short.inference == pytest.approx(body + 12 * 4 * 128 * 768 + 2 * 768 * 768 / 128, rel=1e-12)
    assert short.training > 3 * short.inference
    assert long.training > short.training
    assert short.total == pytest.approx(900_000 * 256 * 128 * short.training)
    assert counted.training_flops == short.total + long.total


def test_operations_follow_the_objectives():
    both = sizes(catalog.get("bert/base"))
    one = sizes(catalog.resolve("bert/base", ["objectives=[mlm]"]))
    assert one.phases[0].training < both.phases[0].training
    assert one.phases[0].inference == both.phases[0].inference
    assert one.pretraining == both.pretraining - 1538


def test_training_flops_follow_what_a_batch_holds():
    recipe = catalog.get("bert/base")
    full = training_flops_per_token(recipe, 30522, length=128)
    assert full == sizes(recipe).phases[0].training
    share = {"mlm": 0.15, "nsp": 1 / 128}
    assert training_flops_per_token(recipe, 30522, length=128, predictions_per_token=share) == full
    more = training_flops_per_token(recipe, 30522, length=128, predictions_per_token={**share, "mlm": 0.25})
    assert more - full == pytest.approx(3 * 0.1 * 2 * (768 * 768 + 768 * 30522), rel=1e-6)
    # The pair head: two classes, once a sequence.
    alone = training_flops_per_token(catalog.resolve("bert/base", ["objectives=[mlm]"]), 30522, length=128)
    assert full - alone == pytest.approx(3 * 2 * 768 * 2 / 128, rel=1e-4)


def test_memory_counts_two_moments_and_gradients():
    counted = sizes(catalog.get("bert/base"))
    assert counted.memory["weights"] == 4 * counted.pretraining
    assert sum(counted.memory.values()) == 16 * counted.pretraining


def test_overrides_change_sizes():
    counted = sizes(catalog.resolve("bert/base", ["encoder.num_layers=6", "tokenizer.vocab_size=1000"]))
    assert counted.parts["attention"] == 6 * 2_363_904
    assert counted.parts["ffn"] == 6 * 4_723_968
    assert counted.parts["word embeddings"] == 768_000
