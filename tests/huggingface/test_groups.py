"""ALBERT's groups: transformers' numbering, and back from a plan to groups."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.huggingface.families import family_named
from maskwright.huggingface.families.base import group_numbers, groups_of
from maskwright.model.config import EncoderConfig


def _config(plan, ffn=None):
    return EncoderConfig(num_layers=len(plan), attention_plan=plan, ffn_plan=plan if ffn is None else ffn)


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
    assert tuple(order) == group_numbers(layers, groups)


@given(st.integers(1, 48), st.data())
def test_a_plan_of_groups_is_found_again(layers, data):
    groups = data.draw(st.integers(1, layers))
    plan = group_numbers(layers, groups)
    assert groups_of(_config(plan)) == groups
    # Every group is used, so that no weight is written that no layer applies.
    assert set(plan) == set(range(groups))


@pytest.mark.parametrize(
    ("attention", "ffn"), [((1, 0), (1, 0)), ((0, 1, 0), (0, 1, 0)), ((0, 0), (0, 1)), ((0, 1, 0, 1), (0, 1, 0, 1))]
)
def test_other_plans_are_written_layer_by_layer(attention, ffn):
    config = _config(attention, ffn)
    assert groups_of(config) is None
    names = {theirs for _, theirs in family_named("albert").pairs(config, frozenset(), "")}
    assert all(f"encoder.albert_layer_groups.{n}.albert_layers.0.ffn.bias" in names for n in range(len(attention)))
