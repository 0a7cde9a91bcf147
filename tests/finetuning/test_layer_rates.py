"""Rates that fall by layer: ELECTRA's published shares, and AdamW with them against AdamW written plainly."""

import pytest
import torch
from torch import nn

from maskwright.finetuning.seed_run import rate_share
from maskwright.model.config import EncoderConfig
from maskwright.recipes.optimization import AdamW
from maskwright.training.optimizer import Optimizer

BASE = EncoderConfig(num_layers=12)
LARGE = EncoderConfig(num_layers=24, hidden_size=1024, num_heads=16)
TOY = EncoderConfig(num_layers=2, hidden_size=8, num_heads=2, intermediate_size=16, max_positions=8)


@pytest.mark.parametrize(
    ("name", "config", "decay", "share"),
    [
        ("head.output.weight", BASE, 0.8, 1.0),
        ("encoder.attention_blocks.11.query.weight", BASE, 0.8, 0.64),
        ("encoder.ffn_blocks.0.dense_in.bias", BASE, 0.8, 0.0550),
        ("encoder.word_embeddings.weight", BASE, 0.8, 0.0440),
        ("encoder.embedding_norm.weight", BASE, 0.8, 0.0440),
        ("encoder.embedding_projection.weight", BASE, 0.8, 0.0440),
        ("encoder.ffn_blocks.23.norm.weight", LARGE, 0.9, 0.81),
        ("encoder.position_embeddings.weight", LARGE, 0.9, 0.0646),
    ],
)
def test_electras_rates_fall_as_its_code_has_them(name: str, config: EncoderConfig, decay: float, share: float) -> None:
    assert rate_share(name, config, decay) == pytest.approx(share, abs=5e-5)


def test_the_pooler_lies_between_the_top_layer_and_the_head() -> None:
    assert rate_share("encoder.pooler.weight", BASE, 0.8) == pytest.approx(0.8)


def test_shared_blocks_learn_as_the_highest_layer_they_serve() -> None:
    shared = EncoderConfig(num_layers=12, sharing="all", num_groups=4)
    shares = [rate_share(f"encoder.ffn_blocks.{block}.norm.bias", shared, 0.5) for block in range(4)]
    assert shares == [0.5**11, 0.5**8, 0.5**5, 0.5**2]


def parameters(seed: int) -> dict[str, nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    shapes = {
        "encoder.word_embeddings.weight": (5, 4),
        "encoder.ffn_blocks.0.dense_in.weight": (4, 4),
        "encoder.ffn_blocks.1.norm.weight": (4,),
        "head.output.weight": (2, 4),
        "head.output.bias": (2,),
    }
    return {name: nn.Parameter(torch.randn(shape, generator=generator)) for name, shape in shapes.items()}


@pytest.mark.parametrize("bias_correction", [True, False])
def test_updates_are_those_of_adamw_written_plainly(bias_correction: bool) -> None:
    found, decay, rate = parameters(0), 0.8, 0.01
    constants = AdamW(weight_decay=0.1, bias_correction=bias_correction)
    optimizer = Optimizer(found.items(), constants, lambda name: rate_share(name, TOY, decay))
    plain = {name: parameter.detach().double().clone() for name, parameter in found.items()}
    first = {name: torch.zeros_like(value) for name, value in plain.items()}
    second = {name: torch.zeros_like(value) for name, value in plain.items()}
    generator = torch.Generator().manual_seed(1)
    for step in range(1, 6):
        for name, parameter in found.items():
            gradient = torch.randn(parameter.shape, generator=generator)
            parameter.grad = gradient
            first[name] = 0.9 * first[name] + 0.1 * gradient.double()
            second[name] = 0.999 * second[name] + 0.001 * gradient.double() ** 2
            m, v = first[name], second[name]
            if bias_correction:
                m, v = m / (1 - 0.9**step), v / (1 - 0.999**step)
            update = m / (v.sqrt() + 1e-6) + (0.1 * plain[name] if plain[name].ndim > 1 else 0)
            plain[name] = plain[name] - rate * rate_share(name, TOY, decay) * update
        optimizer.step(rate)
    for name, parameter in found.items():
        torch.testing.assert_close(parameter.detach().double(), plain[name], atol=1e-5, rtol=1e-4)
