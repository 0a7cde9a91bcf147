"""Sizes: the published numbers of parameters, equal to those of the modules; FLOPs and memory."""

import pytest
import torch

from maskwright.model.encoder import Encoder
from maskwright.recipes import catalog
from maskwright.recipes.sizing import sizes, training_flops_per_token
from maskwright.training.steps.model import build_model

COUNTS = {
    # name: encoder with pooler, encoder, pretraining, masked language model alone
    "bert/tiny": (4_385_920, 4_369_408, 4_433_468, 4_416_698),
    "bert/mini": (11_170_560, 11_104_768, 11_267_900, 11_201_594),
    "bert/small": (28_763_648, 28_500_992, 29_058_876, 28_795_194),
    "bert/medium": (41_373_184, 41_110_528, 41_668_412, 41_404_730),
    "bert/base": (109_482_240, 108_891_648, 110_106_428, 109_514_298),
    "bert/large": (335_141_888, 334_092_288, 336_226_108, 335_174_458),
    "bert/base-cased": (108_310_272, 107_719_680, 108_932_934, 108_340_804),
    "bert/large-cased": (333_579_264, 332_529_664, 334_661_958, 333_610_308),
    "bert/base-chinese": (102_267_648,),
    "bert/large-chinese": (325_522_432,),
    "bert/base-multilingual-cased": (177_853_440,),
    "bert/base-multilingual-uncased": (167_356_416,),
    "albert/base": (11_683_584, 11_092_992, 11_813_810, 11_221_680),
    "albert/large": (17_683_968, 16_634_368, 17_847_474, 16_795_824),
    "albert/xlarge": (58_724_864, 54_528_512, 59_021_490, 54_821_040),
    "albert/xxlarge": (222_595_584, 205_814_272, 223_158_450, 206_368_944),
    "albert/base-v2": (11_683_584, 11_092_992, 11_813_810, 11_221_680),
    "albert/xxlarge-v2": (222_595_584, 205_814_272, 223_158_450, 206_368_944),
    "roberta/base": (124_055_040, 124_055_040, 124_697_433, 124_697_433),
    "roberta/large": (354_310_144, 354_310_144, 355_412_057, 355_412_057),
    "distilbert/base": (66_362_880, 66_362_880, 66_985_530, 66_985_530),  # Distillation has no weights.
    "distilbert/base-cased": (65_190_912, 65_190_912, 65_812_036, 65_812_036),
    "distilbert/base-multilingual-cased": (134_734_080, 134_734_080, 135_445_755, 135_445_755),
    "distilroberta/base": (81_527_808, 81_527_808, 82_170_201, 82_170_201),
    "spanbert/base": (107_719_680,),
    "spanbert/large": (332_529_664,),
    "bert-wwm/base": (102_267_648,),
    "macbert/base": (102_267_648,),
    "macbert/large": (325_522_432,),
    "ernie/base": (99_866_112, 99_275_520, 100_477_778),
    # Weller et al. 2025 (17M, 32M, 68M) and Warner et al. 2024 (149M, 395M: encoders); tiny is not published.
    "modernbert/mini": (16_797_440, 16_797_440, 16_913_600, 16_913_600),
    "modernbert/small": (31_883_136, 31_883_136, 32_081_344, 32_081_344),
    "modernbert/medium": (68_144_640, 68_144_640, 68_457_664, 68_457_664),
    "modernbert/base": (149_014_272, 149_014_272, 149_655_232, 149_655_232),
    "modernbert/large": (394_781_696, 394_781_696, 395_881_664, 395_881_664),
}


@pytest.mark.parametrize("name", COUNTS)
def test_published_numbers_of_parameters(name):
    counted = sizes(catalog.get(name))
    actual = (counted.encoder_and_pooler, counted.encoder, counted.pretraining, counted.masked_lm)
    assert actual[: len(COUNTS[name])] == COUNTS[name]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("roberta-wwm/base", 102_267_648),
        ("roberta-wwm/large", 325_522_432),
        ("roberta-wwm/rbt3", 38_476_800),
        ("roberta-wwm/rbt4", 45_564_672),
        ("roberta-wwm/rbt6", 59_740_416),
        ("roberta-wwm/rbtl3", 61_001_728),
        ("roberta/base", 124_645_632),
    ],
)
def test_published_models_with_an_untrained_pooler_have_their_number_of_parameters(name, parameters):
    with_pooler = catalog.resolve(name, ["encoder.pooler=true"])
    assert sizes(with_pooler).encoder_and_pooler == parameters


def test_spanbert_s_head_has_the_published_number_of_parameters():
    assert sizes(catalog.get("spanbert/base")).heads["sbo"] == 1_960_676
    large = catalog.resolve("spanbert/large", ["objectives.sbo.max_tokens=15"])
    assert sizes(large).heads["sbo"] == 3_388_668


@pytest.mark.parametrize(
    ("name", "overrides", "encoder", "discriminator", "generator"),
    [
        ("electra/small", [], 13_483_008, 13_549_057, 4_620_026),
        ("electra/small", ["generator.size=1"], 13_483_008, 13_549_057, 13_546_682),
        ("electra/base", [], 108_891_648, 109_483_009, 33_740_602),
        ("electra/large", [], 334_092_288, 335_142_913, 51_295_290),
    ],
)
def test_electra_has_the_published_numbers_of_parameters(name, overrides, encoder, discriminator, generator):
    counted = sizes(catalog.resolve(name, overrides))
    assert counted.encoder == counted.encoder_and_pooler == encoder
    assert counted.encoder + counted.heads["rtd"] == discriminator
    assert counted.masked_lm == generator
    # In training both exist, the embeddings and their LayerNorm once.
    parts = ("word embeddings", "position embeddings", "segment embeddings", "embedding norm")
    assert counted.pretraining == discriminator + generator - sum(counted.parts[part] for part in parts)
    separate = sizes(catalog.resolve(name, [*overrides, "generator.shared=none"]))
    assert separate.pretraining == discriminator + generator


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
        (["encoder.sharing=none", "encoder.embedding_size=64"], 87_648_000),
        (["encoder.sharing=none", "encoder.embedding_size=256"], 93_654_528),
        (["encoder.sharing=none", "encoder.embedding_size=768"], 109_081_344),
        (
            ["encoder.sharing=none", "encoder.embedding_size=768", "encoder.embedding_projection=always"],
            109_671_936,
        ),
        (["encoder.sharing=attention", "encoder.embedding_size=768"], 83_078_400),
        (["encoder.sharing=ffn", "encoder.embedding_size=768"], 57_117_696),
        (["encoder.num_groups=4"], 11_683_584 + 3 * 7_087_872),
        (["tokenizer={kind: wordpiece, vocab_size: 21128}"], 10_547_968),
    ],
)
def test_albert_s_ablations_are_one_setting_away(overrides, parameters):
    recipe = catalog.resolve("albert/base", overrides)
    assert sizes(recipe).encoder_and_pooler == parameters
    with torch.device("meta"):
        assert _parameters(Encoder(recipe.encoder, recipe.tokenizer.vocab_size)) == parameters


def test_every_recipe_s_counts_are_those_of_its_modules():
    for name in catalog.names():
        recipe = catalog.get(name)
        with torch.device("meta"):
            model = build_model(recipe, recipe.tokenizer.vocab_size)
        counted = sizes(recipe)
        assert _parameters(model.encoder) == counted.encoder_and_pooler, name
        assert {kind: _parameters(head) for kind, head in model.heads.items()} == counted.heads, name
        assert _parameters(model) == counted.pretraining, name  # Shared embeddings count once.


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
