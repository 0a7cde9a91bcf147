"""Blocks of each layer under parameter sharing."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AlbertConfig
from transformers.models.albert.modeling_albert import AlbertTransformer

from maskwright.core.errors import RecipeError
from maskwright.core.spec import override, parse_overrides
from maskwright.kernels import ops
from maskwright.model.config import EncoderConfig

EACH = tuple(range(12))


@pytest.mark.parametrize(
    ("sharing", "attention", "ffn"),
    [("none", EACH, EACH), ("attention", (0,) * 12, EACH), ("ffn", EACH, (0,) * 12), ("all", (0,) * 12, (0,) * 12)],
)
def test_sharing_names_the_blocks_that_serve_all_layers(sharing, attention, ffn):
    config = EncoderConfig.model_validate({"sharing": sharing})
    assert (config.layer_plan("attention"), config.layer_plan("ffn")) == (attention, ffn)


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 4))
def test_groups_are_applied_as_albert_s_code_walks_through_them(rounds: int, groups: int, inner: int) -> None:
    groups = min(groups, rounds)
    config = EncoderConfig(num_layers=rounds * inner, sharing="all", num_groups=groups, blocks_per_group=inner)
    walked = []
    for layer in range(rounds):
        group = layer * groups // rounds
        for block in range(inner):
            walked.append(group * inner + block)
    assert config.layer_plan("attention") == tuple(walked)
    assert len(set(walked)) == groups * inner


# 18 layers in 14 groups: floating point decides at layer 9.
@pytest.mark.parametrize(("layers", "groups"), [(12, 4), (7, 3), (18, 14)])
def test_layers_are_put_into_groups_as_transformers_does(layers: int, groups: int) -> None:
    shape = {"embedding_size": 4, "hidden_size": 4, "num_attention_heads": 1, "intermediate_size": 4}
    numbers = {"num_hidden_layers": layers, "num_hidden_groups": groups}
    model = AlbertTransformer(AlbertConfig(**shape, **numbers, attn_implementation="eager")).eval()
    order: list[int] = []
    for number, group in enumerate(model.albert_layer_groups):
        group.register_forward_hook(lambda *_, number=number: order.append(number))
    model(torch.zeros(1, 2, 4))
    assert tuple(order) == EncoderConfig(num_layers=layers, sharing="all", num_groups=groups).layer_plan("ffn")


@given(st.integers(1, 48), st.data())
def test_every_group_is_used_in_ascending_order(layers: int, data: st.DataObject) -> None:
    # No weight is written that no layer applies.
    groups = data.draw(st.integers(1, layers))
    plan = EncoderConfig(num_layers=layers, sharing="all", num_groups=groups).layer_plan("ffn")
    assert sorted(set(plan)) == list(range(groups))
    assert sorted(plan) == list(plan)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("num_groups=4", "num_groups 4 has no effect with sharing 'none'"),
        ("blocks_per_group=2", "no effect with sharing 'none'"),
        ("sharing=all num_groups=13", "num_layers 12 cannot be 13 groups"),
        ("sharing=all blocks_per_group=5", "must be a multiple of blocks_per_group"),
        ("sharing=all num_groups=4 blocks_per_group=4", "at least num_groups times that"),
        ("sharing=fnn", "sharing"),
    ],
)
def test_sharing_that_is_impossible_is_refused(settings: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        override(EncoderConfig(), parse_overrides(settings.split()))


def test_albert_s_activation_is_the_tanh_approximation() -> None:
    one = torch.ones((), dtype=torch.float64)
    assert float(ops.activation("gelu_tanh", one)) == pytest.approx(0.841192, abs=5e-7)
    assert float(ops.activation("gelu", one)) == pytest.approx(0.841345, abs=5e-7)
