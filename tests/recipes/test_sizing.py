"""Sizes: the published numbers of parameters, exactly, and equal to those of the modules themselves."""

import pytest
import torch

from maskwright.recipes import catalog
from maskwright.recipes.sizing import sizes, training_flops_per_token
from maskwright.training.model import build_model


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
    ("name", "with_pooler", "encoder", "pretraining", "masked_lm"),
    [
        ("albert/base", 11_683_584, 11_092_992, 11_813_810, 11_221_680),
        ("albert/large", 17_683_968, 16_634_368, 17_847_474, 16_795_824),
        ("albert/xlarge", 58_724_864, 54_528_512, 59_021_490, 54_821_040),
        ("albert/xxlarge", 222_595_584, 205_814_272, 223_158_450, 206_368_944),
    ],
)
def test_albert_has_the_published_number_of_parameters(name, with_pooler, encoder, pretraining, masked_lm):
    for version in (name, f"{name}-v2"):
        counted = sizes(catalog.get(version))
        assert counted.encoder_and_pooler == with_pooler
        assert counted.encoder == encoder
        assert counted.pretraining == pretraining
        assert counted.masked_lm == masked_lm


@pytest.mark.parametrize(
    ("overrides", "parameters"),
    [
        (["encoder.embedding_size=64"], 9_681_408),
        (["encoder.embedding_size=256"], 15_687_936),
        (["encoder.embedding_size=768"], 31_114_752),
        (["encoder.embedding_size=768", "encoder.embedding_projection=always"], 31_705_344),
        (["encoder.sharing=none"], 89_650_176),
        (["encoder.sharing=attention"], 63_647_232),
        (["encoder.sharing=ffn"], 37_686_528),
        (["encoder.sharing=none", "encoder.embedding_size=768"], 109_081_344),
        (["encoder.sharing=attention", "encoder.embedding_size=768"], 83_078_400),
        (["encoder.sharing=ffn", "encoder.embedding_size=768"], 57_117_696),
        (["encoder.num_groups=4"], 11_683_584 + 3 * 7_087_872),
        (["tokenizer={kind: wordpiece, vocab_size: 21128}"], 10_547_968),
    ],
)
def test_albert_s_ablations_are_one_setting_away(overrides, parameters):
    assert sizes(catalog.resolve("albert/base", overrides)).encoder_and_pooler == parameters


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
    with torch.device("meta"):
        model = build_model(recipe, recipe.tokenizer.vocab_size)
    counted = sizes(recipe)
    assert _parameters(model.encoder) == counted.encoder_and_pooler
    assert {kind: _parameters(head) for kind, head in model.heads.items()} == counted.heads
    assert _parameters(model) == counted.pretraining  # What two towers share counts once.


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


def test_memory_counts_a_teacher_s_weights_and_nothing_more_of_it():
    counted = sizes(catalog.get("distilbert/base"))
    # BERT base without a pooler or segments, and its masked-token head.
    teacher = 108_891_648 - 2 * 768 + (768 * 768 + 768 + 2 * 768 + 30522)
    assert counted.memory["teacher"] == 4 * teacher
    assert sum(counted.memory.values()) == 16 * counted.pretraining + 4 * teacher


def test_overrides_change_sizes():
    counted = sizes(catalog.resolve("bert/base", ["encoder.num_layers=6", "tokenizer.vocab_size=1000"]))
    assert counted.parts["attention"] == 6 * 2_363_904
    assert counted.parts["ffn"] == 6 * 4_723_968
    assert counted.parts["word embeddings"] == 768_000


@pytest.mark.parametrize("name", catalog.names())
def test_head_parameters_are_those_of_the_modules(name: str) -> None:
    recipe = catalog.get(name)
    for objective in recipe.objectives:
        shape = recipe.encoder.head_shape(recipe.tokenizer.vocab_size)
        with torch.device("meta"):
            head = objective.head(shape)
        assert objective.num_parameters(shape) == sum(each.numel() for each in head.parameters())
