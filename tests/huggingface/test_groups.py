"""ALBERT's groups: transformers' numbering, and back from a plan to groups."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.huggingface.families.base import Groups, group_places, groups_of
from maskwright.model.config import EncoderConfig


def _config(plan, ffn=None):
    return EncoderConfig(num_layers=len(plan), attention_plan=plan, ffn_plan=plan if ffn is None else ffn)


def test_twelve_layers_in_four_groups():
    assert Groups(12, 4, 1).plan == (0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3)


def test_inner_blocks_follow_each_other_within_a_group():
    assert Groups(3, 2, 2).plan == (0, 1, 0, 1, 2, 3)
    assert Groups(3, 2, 2).places[1::2] == ("0.albert_layers.1", "0.albert_layers.1", "1.albert_layers.1")


# 18 layers in 14 groups: floating point decides at layer 9.
@pytest.mark.parametrize(("layers", "groups", "inner"), [(12, 4, 1), (7, 3, 1), (5, 2, 3), (18, 14, 1)])
def test_layers_are_put_into_groups_as_transformers_does(layers, groups, inner):
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
        inner_group_num=inner,
        attn_implementation="eager",
    )
    model = AlbertTransformer(config).eval()
    order = []
    for group, member in enumerate(model.albert_layer_groups):
        for place, block in enumerate(member.albert_layers):
            name = f"{group}.albert_layers.{place}"
            block.register_forward_hook(lambda *_, name=name: order.append(name))
    model(torch.zeros(1, 2, 4))
    assert tuple(order) == Groups(layers, groups, inner).places


@given(st.integers(1, 48), st.data())
def test_a_plan_of_groups_is_found_again(layers, data):
    groups, inner = data.draw(st.integers(1, layers)), data.draw(st.integers(1, 4))
    given = Groups(layers, groups, inner)
    found = groups_of(_config(given.plan))
    assert found is not None
    assert found.plan == given.plan
    assert found.inner <= inner
    # Every group is used, so that no weight is written that no layer applies.
    assert set(given.plan) == set(range(groups * inner))


@pytest.mark.parametrize(
    ("attention", "ffn"), [((1, 0), (1, 0)), ((0, 1, 0), (0, 1, 0)), ((0, 0), (0, 1)), ((0, 1, 1, 0), (0, 1, 1, 0))]
)
def test_other_plans_are_written_layer_by_layer(attention, ffn):
    config = _config(attention, ffn)
    assert groups_of(config) is None
    assert group_places(config) == tuple(f"{layer}.albert_layers.0" for layer in range(len(attention)))
