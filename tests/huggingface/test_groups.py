"""ALBERT's groups: transformers' numbering."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.model.config import EncoderConfig


def _plan(layers, groups):
    return EncoderConfig(num_layers=layers, sharing="all", num_groups=groups).layer_plan("ffn")


# 18 layers in 14 groups: floating point decides at layer 9.
@pytest.mark.parametrize(("layers", "groups"), [(12, 4), (7, 3), (18, 14)])
def test_layers_are_put_into_groups_as_transformers_does(layers, groups):
    import torch
    from transformers import AlbertConfig
    from transformers.models.albert.modeling_albert import AlbertTransformer

    config = AlbertConfig(
        embedding_size=4,
        hidden_size=4,
        num_attention_heads=1,
        intermediate_size=4,
        num_hidden_layers=layers,
        num_hidden_groups=groups,
        attn_implementation="eager",
    )
    model = AlbertTransformer(config).eval()
    order = []
    for number, group in enumerate(model.albert_layer_groups):
        group.register_forward_hook(lambda *_, number=number: order.append(number))
    model(torch.zeros(1, 2, 4))
    assert tuple(order) == _plan(layers, groups)


@given(st.integers(1, 48), st.data())
def test_every_group_is_used_in_ascending_order(layers, data):
    # No weight is written that no layer applies.
    groups = data.draw(st.integers(1, layers))
    plan = _plan(layers, groups)
    assert sorted(set(plan)) == list(range(groups))
    assert sorted(plan) == list(plan)
