"""Parameters of the published models: in transformers' own class, built from our config.json, and by our formula."""

from dataclasses import replace

import pytest
import torch
import transformers
from tiny_models import BERT_TOKENS

from maskwright.checkpoints.config_json import to_json
from maskwright.checkpoints.families import family_named
from maskwright.model.encoder import Encoder
from maskwright.model.sizes import mlm_head_parameters, total_parameters
from maskwright.recipes import catalog

GENERATOR = "generator of "
POOLER = ("encoder.pooler=true",)
CASES = [
    # Lan et al. 2020, Table 1; encoder and pooler, then with the heads
    ("AlbertModel", "albert/base", (), 11_683_584),
    ("AlbertModel", "albert/large", (), 17_683_968),
    ("AlbertModel", "albert/xlarge", (), 58_724_864),
    ("AlbertModel", "albert/xxlarge", (), 222_595_584),
    ("AlbertForPreTraining", "albert/base", (), 11_813_810),
    ("AlbertForPreTraining", "albert/large", (), 17_847_474),
    ("AlbertForPreTraining", "albert/xlarge", (), 59_021_490),
    ("AlbertForPreTraining", "albert/xxlarge", (), 223_158_450),
    ("AlbertModel", "albert/base", ("encoder.embedding_size=64",), 9_681_408),
    ("AlbertModel", "albert/base", ("encoder.embedding_size=256",), 15_687_936),
    ("AlbertModel", "albert/base", ("encoder.embedding_size=768", "encoder.embedding_projection=always"), 31_705_344),
    ("AlbertModel", "albert/base", ("encoder.sharing=none",), 89_650_176),
    # Clark et al. 2020, Table 6: discriminators, generators
    ("ElectraModel", "electra/small", (), 13_483_008),
    ("ElectraModel", "electra/base", (), 108_891_648),
    ("ElectraModel", "electra/large", (), 334_092_288),
    ("ElectraForPreTraining", "electra/small", (), 13_549_057),
    ("ElectraForPreTraining", "electra/base", (), 109_483_009),
    ("ElectraForPreTraining", "electra/large", (), 335_142_913),
    ("ElectraForMaskedLM", GENERATOR + "electra/small", (), 4_620_026),
    ("ElectraForMaskedLM", GENERATOR + "electra/base", (), 33_740_602),
    ("ElectraForMaskedLM", GENERATOR + "electra/large", (), 51_295_290),
    ("ElectraForMaskedLM", GENERATOR + "electra/small", ("generator.size=1",), 13_546_682),
    # Sanh et al. 2019
    ("DistilBertModel", "distilbert/base", (), 66_362_880),
    ("DistilBertForMaskedLM", "distilbert/base", (), 66_985_530),
    ("DistilBertModel", "distilbert/base-cased", (), 65_190_912),
    # Sun et al. 2019: 18000 rows, of which the vocabulary uses 17964
    ("ErnieModel", "ernie/base", (), 99_866_112),
    ("ErnieForPreTraining", "ernie/base", (), 100_477_778),
    # Weller et al. 2025 (17M, 32M, 68M) and Warner et al. 2024 (149M, 395M)
    ("ModernBertForMaskedLM", "modernbert/mini", (), 16_913_600),
    ("ModernBertForMaskedLM", "modernbert/base", (), 149_655_232),
    # Cui et al. 2021
    ("BertModel", "roberta-wwm/rbt3", POOLER, 38_476_800),
    ("BertModel", "roberta-wwm/rbtl3", POOLER, 61_001_728),
]
HEADS = {
    "AlbertForPreTraining": {"mlm", "sop"},
    "ErnieForPreTraining": {"mlm", "nsp"},
    "ElectraForPreTraining": {"rtd"},
    "ElectraForMaskedLM": {"mlm"},
    "DistilBertForMaskedLM": {"mlm"},
    "ModernBertForMaskedLM": {"mlm"},
}


def _count(module):
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(("class_name", "name", "overrides", "published"), CASES)
def test_published_models_have_the_published_number_of_parameters(class_name, name, overrides, published):
    recipe = catalog.resolve(name.removeprefix(GENERATOR), overrides)
    config = recipe.generator.config(recipe.encoder) if name.startswith(GENERATOR) else recipe.encoder
    heads, vocab_size = frozenset(HEADS.get(class_name, ())), recipe.tokenizer.vocab_size
    data = to_json(family_named(recipe.family), config, replace(BERT_TOKENS, vocab_size=vocab_size), heads, 512)
    assert data["architectures"] == [class_name]
    with torch.device("meta"):
        model = getattr(transformers, class_name)(transformers.AutoConfig.for_model(**data))
        ours = Encoder(config, vocab_size)
    assert _count(model) == published
    hidden = config.hidden_size
    pairs = dict.fromkeys(("nsp", "sop"), 2 * hidden + 2)
    counts = {"mlm": mlm_head_parameters(config, vocab_size), "rtd": hidden * hidden + hidden + hidden + 1, **pairs}
    assert total_parameters(config, vocab_size) == _count(ours) == published - sum(counts[kind] for kind in heads)
