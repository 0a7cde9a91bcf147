"""Errors for models that a family cannot hold name the field, its allowed values and a family that can."""

import pytest

from maskwright.checkpoints.families import FAMILIES, family_named
from maskwright.checkpoints.refusals import refuse_inexpressible
from maskwright.core.errors import ConversionError
from maskwright.model.config import EncoderConfig

SHAPE = EncoderConfig(hidden_size=48, num_layers=4, num_heads=4, intermediate_size=96, hidden_activation="gelu")
STUDENT = {"pooler": False, "type_vocab_size": 0}
MODERN = STUDENT | {
    **{"positions": "rotary", "norm_placement": "pre", "first_attention_norm": False, "feed_forward": "gated"},
    **{"norm_bias": False, "dense_bias": False, "attention_window": 4},
}


def _refuse(family, heads="mlm", pad=0, source="", **changes):
    refuse_inexpressible(family_named(family), SHAPE.replace(**changes), pad, frozenset(heads.split()), source)


@pytest.mark.parametrize(
    ("family", "heads", "changes", "parts"),
    [
        (
            "bert",
            "mlm nsp",
            {"embedding_size": 16},
            ("embedding_size 16", "no dense layer after", "Set encoder.embedding_size to 48", "albert or electra"),
        ),
        ("bert", "mlm", {"embedding_size": 16, "hidden_activation": "relu"}, ("or set family to albert.",)),
        ("ernie", "mlm", {"embedding_projection": "always"}, ("embedding_projection always", "family to albert.")),
        (
            "electra",
            "rtd",
            {"embedding_projection": "always"},
            ("Set encoder.embedding_projection to if_needed, or set family to albert.",),
        ),
        ("electra", "mlm", {"hidden_activation": "relu"}, ("hidden_activation to gelu", "family to bert or albert")),
        ("bert", "mlm", STUDENT, ("type_vocab_size 0", "type_vocab_size to 1, or set family to distilbert.")),
        ("bert", "mlm", {"type_vocab_size": 0}, ("Set encoder.type_vocab_size to 1, or set family to maskwright, ",)),
        ("bert", "mlm", {"norm_placement": "pre"}, ("norm_placement pre", "to post, or set family to maskwright")),
        ("albert", "mlm", {"attention_window": 4}, ("attention_window 4", "family to maskwright")),
        ("modernbert", "mlm", {}, ("type_vocab_size 2",)),
        ("distilbert", "mlm", STUDENT | {"pooler": True}, ("pooler true", "Set encoder.pooler to false")),
        ("distilbert", "mlm", {"pooler": False}, ("type_vocab_size to 0, or set family to bert",)),
        ("distilbert", "mlm", STUDENT | {"layer_norm_eps": 1e-5}, ("layer_norm_eps to 1e-12",)),
        ("distilbert", "mlm sop", STUDENT, ("no names for the head sop", "Drop that objective")),
        ("bert", "rtd", {}, ("no names for the head rtd", "Drop that objective, or set family to albert or electra.")),
        ("roberta", "mlm", {}, ("position_offset 0", "position_offset to 1")),
        ("bert", "mlm nsp sop", {}, ("one name for the heads nsp and sop", "Drop one of the two objectives")),
    ],
)
def test_refusals_name_field_value_and_remedy(family, heads, changes, parts):
    with pytest.raises(ConversionError) as caught:
        _refuse(family, heads, **changes)
    for part in (f"Hugging Face's '{family}' classes", *parts):
        assert part in str(caught.value)


def test_a_refused_file_is_named_and_no_recipe_is_advised():
    with pytest.raises(ConversionError, match=r"folder/config\.json: .* type_vocab_size 0") as caught:
        _refuse("bert", source="folder/config.json", type_vocab_size=0)
    assert "family" not in str(caught.value)


@pytest.mark.parametrize(
    ("family", "heads", "changes"),
    [
        ("bert", "mlm nsp", {}),
        ("bert", "mlm sop sbo", {"sharing": "attention"}),
        ("roberta", "mlm", {"position_offset": 1, "type_vocab_size": 1}),
        ("albert", "mlm sop", {"embedding_size": 16, "hidden_activation": "relu"}),
        ("albert", "rtd", {"sharing": "ffn", "embedding_projection": "always"}),
        ("electra", "rtd sop", {"embedding_size": 16}),
        ("electra", "rtd", {"hidden_activation": "gelu_tanh", "pooler": False}),
        ("electra", "mlm", {"embedding_size": 16, "pooler": False}),
        ("distilbert", "mlm soft_targets cosine", STUDENT),
        ("ernie", "mlm nsp", {"layer_norm_eps": 1e-5, "hidden_activation": "relu", "max_positions": 513}),
        # A head that nobody has names for yet.
        *(
            (family, "mlm tenth", {"distilbert": STUDENT, "modernbert": MODERN}.get(family, {}))
            for family in FAMILIES
            if family != "roberta"
        ),
    ],
)
def test_supported_models_are_accepted(family, heads, changes):
    _refuse(family, heads, **changes)
