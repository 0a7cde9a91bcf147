import numpy as np
import pytest
import torch

from maskwright.core.tensors import PackedBatch
from maskwright.model.config import EncoderConfig
from maskwright.model.encoder import Encoder
from maskwright.model.initialization import initialize
from maskwright.model.neighbor_attention import attend_to_neighbors, offsets
from maskwright.model.rotary import Rotation

LENGTH, SEQUENCES = 48, 12
ROTARY = {"positions": "rotary", "norm_placement": "pre", "first_attention_norm": False, "type_vocab_size": 0}


def _encoder(config, words, seed=0):
    encoder = Encoder(config, words)
    initialize(encoder, config, seed)
    return encoder


def _first_attention(config):
    """Mean attention of each head from a token to the one its offset away, and to itself, in random texts."""
    encoder = _encoder(config, 3000)
    ids = np.random.default_rng(1).integers(5, 3000, SEQUENCES * LENGTH)
    batch = PackedBatch.of(ids, np.zeros(len(ids)), np.full(SEQUENCES, LENGTH))
    with torch.no_grad():
        block, heads = encoder.attention_blocks[0], config.num_heads
        hidden, size = block.before(encoder.embed(batch, None)), config.head_size
        query, key = block.query(hidden), block.key(hidden)
        if config.positions == "rotary":
            rotation = Rotation.at(batch.position_ids, size, config.theta(0))
            query, key = rotation(query, heads), rotation(key, heads)
        query, key = (each.view(SEQUENCES, LENGTH, heads, size).transpose(1, 2) for each in (query, key))
        shares = (query @ key.transpose(2, 3) / size**0.5).softmax(-1).mean(0)
    wanted = [torch.diagonal(shares[head], offset)[6:-6].mean().item() for head, offset in enumerate(offsets(heads))]
    return wanted, torch.diagonal(shares, dim1=1, dim2=2).mean().item()


@pytest.mark.parametrize(
    "shape",
    [
        {"hidden_size": 128, "num_heads": 2},
        {"hidden_size": 256, "num_heads": 4},
        pytest.param({"hidden_size": 768, "num_heads": 12, "intermediate_size": 64}, marks=pytest.mark.slow),
        {"hidden_size": 128, "num_heads": 4, "type_vocab_size": 0, "position_offset": 2, "initializer": "normal"},
        {"hidden_size": 128, "num_heads": 2, "embedding_projection": "always", "sharing": "all"},
        {"hidden_size": 256, "num_heads": 4, "embedding_size": 128},
        {"hidden_size": 64, "num_heads": 1, "embedding_size": 128},
        {"hidden_size": 64, "num_heads": 1, "embedding_size": 256},
        {"hidden_size": 256, "num_heads": 4, **ROTARY},
        pytest.param({"hidden_size": 768, "num_heads": 12, "intermediate_size": 64, **ROTARY}, marks=pytest.mark.slow),
        {"hidden_size": 128, "num_heads": 2, "positions": "rotary"},
        {"hidden_size": 256, "num_heads": 4, "embedding_size": 128, "positions": "rotary", "sharing": "all"},
        {"hidden_size": 256, "num_heads": 4, "embedding_size": 128, "positions": "rotary", "norm_placement": "pre"},
    ],
    ids=[
        "tiny",
        "mini",
        "base",
        "roberta-like",
        "albert",
        "narrow-embeddings",
        "small-generator",
        "tiny-generator",
        "modern-mini",
        "modern-base",
        "rotary",
        "rotary-albert",
        "rotary-pre",
    ],
)
def test_each_head_begins_at_its_neighbor(shape):
    spread = 0.02 * (768 / shape["hidden_size"]) ** 0.5
    config = EncoderConfig(num_layers=2, initializer_range=spread, initial_attention="neighbors", **shape)
    wanted, itself = _first_attention(config)
    assert min(wanted) > 0.3  # Of 48 tokens, by chance 0.02.
    assert itself < 0.03
    by_chance, _ = _first_attention(config.replace(initial_attention="random"))
    assert max(by_chance) < 0.05


def test_only_positions_and_first_queries_and_keys_differ():
    config = EncoderConfig(hidden_size=64, num_heads=2, num_layers=2, intermediate_size=128, max_positions=32)
    drawn, begun = (_encoder(config.replace(initial_attention=each), 100, 3) for each in ("random", "neighbors"))
    others = begun.state_dict()
    changed = {name for name, value in drawn.state_dict().items() if not torch.equal(value, others[name])}
    assert changed == {"position_embeddings.weight", "attention_blocks.0.query.weight", "attention_blocks.0.key.weight"}
    before, after = drawn.position_embeddings.weight, begun.position_embeddings.weight
    assert after.std().item() == pytest.approx(before.std().item(), rel=0.05)
    assert torch.unique(after.detach(), dim=0).shape[0] == 32


def test_far_positions_are_not_alike():
    config = EncoderConfig(hidden_size=128, num_heads=2, num_layers=1, initial_attention="neighbors")
    encoder = _encoder(config, 10)
    table = torch.nn.functional.normalize(encoder.position_embeddings.weight.detach(), dim=1)
    likeness = table @ table.T - torch.eye(512)
    assert likeness.abs().max() < 0.7
    assert likeness.abs().mean() < 0.12


def test_rotary_positions_change_words_and_first_queries_and_keys_and_only_once():
    config = EncoderConfig(hidden_size=64, num_heads=2, num_layers=2, intermediate_size=128, **ROTARY)
    random, encoder = (_encoder(config.replace(initial_attention=each), 100, 3) for each in ("random", "neighbors"))
    before, after = random.state_dict(), encoder.state_dict()
    changed = {name for name, value in before.items() if not torch.equal(value, after[name])}
    assert changed == {"word_embeddings.weight", "attention_blocks.0.query.weight", "attention_blocks.0.key.weight"}
    added = after["word_embeddings.weight"] - before["word_embeddings.weight"]
    torch.testing.assert_close(added, added[:1].expand(100, -1), atol=1e-6, rtol=0)
    words = encoder.word_embeddings.weight.detach().clone()
    attend_to_neighbors(encoder)  # As a generator with the same embeddings does.
    torch.testing.assert_close(encoder.word_embeddings.weight, words, atol=1e-6, rtol=0)


@pytest.mark.parametrize("width", [1, 2, 3])
def test_heads_too_narrow_for_a_wave_change_nothing(width):
    config = EncoderConfig(hidden_size=width * 3, num_heads=3, num_layers=1, initial_attention="neighbors")
    encoder = _encoder(config, 10)
    assert all(torch.isfinite(parameter).all() for parameter in encoder.parameters())
