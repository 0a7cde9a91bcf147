"""Parameters of the published models: of transformers' own class, built from our config.json, and by our formula."""

import pytest
import torch
import transformers
from tiny_models import BERT_TOKENS

from maskwright.huggingface.config_json import to_json
from maskwright.huggingface.families import family_named
from maskwright.model.config import EncoderConfig
from maskwright.model.sizes import mlm_head_parameters, total_parameters

ENGLISH, CASED, CHINESE, ALBERT_V, ERNIE_V = 30522, 28996, 21128, 30000, 18000


def _config(layers, hidden, *, heads=None, **changes):
    shape = {
        "num_layers": layers,
        "hidden_size": hidden,
        "num_heads": heads or hidden // 64,
        "intermediate_size": 4 * hidden,
        "hidden_activation": "gelu",
    }
    return EncoderConfig(**{**shape, **changes})


def _albert(layers, hidden, *, width=128, groups=1, **changes):
    plan = tuple(layer * groups // layers for layer in range(layers))
    return _config(layers, hidden, embedding_size=width, attention_plan=plan, ffn_plan=plan, **changes)


def _electra(layers, hidden, *, width, **changes):
    return _config(layers, hidden, embedding_size=width, pooler=False, **changes)


def _distilbert():
    return _config(6, 768, type_vocab_size=0, pooler=False)


def _ernie():
    return _config(12, 768, max_positions=513, hidden_activation="relu", layer_norm_eps=1e-5)


CASES = [
    # recipes of Lan et al. 2020, Table 1; encoder + pooler, then with the heads
    ("AlbertModel", _albert(12, 768), ALBERT_V, 11_683_584),
    ("AlbertModel", _albert(24, 1024), ALBERT_V, 17_683_968),
    ("AlbertModel", _albert(24, 2048, heads=16), ALBERT_V, 58_724_864),
    ("AlbertModel", _albert(12, 4096), ALBERT_V, 222_595_584),
    ("AlbertForPreTraining", _albert(12, 768), ALBERT_V, 11_813_810),
    ("AlbertForPreTraining", _albert(24, 1024), ALBERT_V, 17_847_474),
    ("AlbertForPreTraining", _albert(24, 2048, heads=16), ALBERT_V, 59_021_490),
    ("AlbertForPreTraining", _albert(12, 4096), ALBERT_V, 223_158_450),
    ("AlbertModel", _albert(12, 768, width=64), ALBERT_V, 9_681_408),
    ("AlbertModel", _albert(12, 768, width=256), ALBERT_V, 15_687_936),
    ("AlbertModel", _albert(12, 768, width=768, embedding_projection="always"), ALBERT_V, 31_705_344),
    ("AlbertModel", _albert(12, 768, groups=12), ALBERT_V, 89_650_176),
    # Clark et al. 2020, Table 6: discriminators, generators
    ("ElectraModel", _electra(12, 256, width=128), ENGLISH, 13_483_008),
    ("ElectraModel", _electra(12, 768, width=768), ENGLISH, 108_891_648),
    ("ElectraModel", _electra(24, 1024, width=1024), ENGLISH, 334_092_288),
    ("ElectraForPreTraining", _electra(12, 256, width=128), ENGLISH, 13_549_057),
    ("ElectraForPreTraining", _electra(12, 768, width=768), ENGLISH, 109_483_009),
    ("ElectraForPreTraining", _electra(24, 1024, width=1024), ENGLISH, 335_142_913),
    ("ElectraForMaskedLM", _electra(12, 64, width=128), ENGLISH, 4_620_026),
    ("ElectraForMaskedLM", _electra(12, 256, width=768), ENGLISH, 33_740_602),
    ("ElectraForMaskedLM", _electra(24, 256, width=1024), ENGLISH, 51_295_290),
    ("ElectraForMaskedLM", _electra(12, 256, width=128), ENGLISH, 13_546_682),
    # Sanh et al. 2019
    ("DistilBertModel", _distilbert(), ENGLISH, 66_362_880),
    ("DistilBertForMaskedLM", _distilbert(), ENGLISH, 66_985_530),
    ("DistilBertModel", _distilbert(), CASED, 65_190_912),
    # Sun et al. 2019: 18000 rows, of which the vocabulary uses 17964
    ("ErnieModel", _ernie(), ERNIE_V, 99_866_112),
    ("ErnieForPreTraining", _ernie(), ERNIE_V, 100_477_778),
    # RBT3 and RBTL3 (Cui et al. 2021)
    ("BertModel", _config(3, 768), CHINESE, 38_476_800),
    ("BertModel", _config(3, 1024), CHINESE, 61_001_728),
]
HEADS = {
    "AlbertForPreTraining": {"mlm", "sop"},
    "ErnieForPreTraining": {"mlm", "nsp"},
    "ElectraForPreTraining": {"rtd"},
    "ElectraForMaskedLM": {"mlm"},
    "DistilBertForMaskedLM": {"mlm"},
}


def _closed_form(config, vocab_size, heads):
    hidden = config.hidden_size
    counts = {
        "mlm": mlm_head_parameters(config, vocab_size),
        "nsp": 2 * hidden + 2,
        "sop": 2 * hidden + 2,
        "rtd": hidden * hidden + hidden + hidden + 1,
    }
    return total_parameters(config, vocab_size) + sum(counts[kind] for kind in heads)


@pytest.mark.parametrize(("class_name", "config", "vocab_size", "published"), CASES)
def test_published_models_have_the_published_number_of_parameters(class_name, config, vocab_size, published):
    model_type = next(
        name for name in ("distilbert", "albert", "electra", "ernie", "bert") if name in class_name.lower()
    )
    heads = frozenset(HEADS.get(class_name, ()))
    tokens = BERT_TOKENS.__class__(
        **{name: getattr(BERT_TOKENS, name) for name in BERT_TOKENS.__slots__} | {"vocab_size": vocab_size}
    )
    data = to_json(family_named(model_type), config, tokens, heads, 512)
    assert data["architectures"] == [class_name]
    theirs = transformers.AutoConfig.for_model(**data)
    with torch.device("meta"):
        model = getattr(transformers, class_name)(theirs)
    assert sum(parameter.numel() for parameter in model.parameters()) == published
    assert _closed_form(config, vocab_size, heads) == published
