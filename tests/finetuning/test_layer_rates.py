"""Rates that fall by layer: ELECTRA's published shares."""

import pytest

from maskwright.finetuning.seed_run import rate_share
from maskwright.model.config import EncoderConfig

BASE = EncoderConfig(num_layers=12)
LARGE = EncoderConfig(num_layers=24, hidden_size=1024, num_heads=16)


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


def test_shared_blocks_learn_as_the_highest_layer_they_serve() -> None:
    shared = EncoderConfig(num_layers=12, sharing="all", num_groups=4)
    shares = [rate_share(f"encoder.ffn_blocks.{block}.norm.bias", shared, 0.5) for block in range(4)]
    assert shares == [0.5**11, 0.5**8, 0.5**5, 0.5**2]
