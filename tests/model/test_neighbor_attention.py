import pytest
import torch

from maskwright.model.config import EncoderConfig
from maskwright.model.encoder import Encoder
from maskwright.model.initialization import initialize
from maskwright.model.neighbor_attention import offsets

LENGTH, SEQUENCES = 48, 12


def _encoder(config, words, seed=0):
    encoder = Encoder(config, words)
    initialize(encoder, config, seed)
    return encoder


def _first_attention(config):
    """Mean attention of each head from a token to the one its offset away, and to itself, in random texts."""
    encoder = _encoder(config, 3000)
    positions = torch.arange(LENGTH)
    ids = torch.randint(5, 3000, (SEQUENCES, LENGTH), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        hidden = encoder.word_embeddings(ids) + encoder.position_embeddings(positions + config.position_offset)
        if encoder.segment_embeddings is not None:
            hidden = hidden + encoder.segment_embeddings.weight[0]
        hidden = encoder.embedding_norm(hidden)
        if encoder.embedding_projection is not None:
            hidden = encoder.embedding_projection(hidden)
        block, heads = encoder.attention_blocks[0], config.num_heads
        size = config.hidden_size // heads
        query, key = (
            dense(hidden).view(SEQUENCES, LENGTH, heads, size).transpose(1, 2) for dense in (block.query, block.key)
        )
        shares = (query @ key.transpose(2, 3) / size**0.5).softmax(-1).mean(0)
    wanted = [torch.diagonal(shares[head], offset)[6:-6].mean().item() for head, offset in enumerate(offsets(heads))]
    return wanted, torch.diagonal(shares, dim1=1, dim2=2).mean().item()


@pytest.mark.parametrize(
    "shape",
    [
        {"hidden_size": 128, "num_heads": 2},
        {"hidden_size": 256, "num_heads": 4},
        {"hidden_size": 768, "num_heads": 12, "intermediate_size": 64},
        {"hidden_size": 128, "num_heads": 4, "type_vocab_size": 0, "position_offset": 2, "initializer": "normal"},
        {"hidden_size": 128, "num_heads": 2, "embedding_projection": "always", "sharing": "all"},
        {"hidden_size": 256, "num_heads": 4, "embedding_size": 128},
        {"hidden_size": 64, "num_heads": 1, "embedding_size": 128},
        {"hidden_size": 64, "num_heads": 1, "embedding_size": 256},
    ],
    ids=["tiny", "mini", "base", "roberta-like", "albert", "narrow-embeddings", "small-generator", "tiny-generator"],
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


@pytest.mark.parametrize("width", [1, 2, 3])
def test_heads_too_narrow_for_a_wave_change_nothing(width):
    config = EncoderConfig(hidden_size=width * 3, num_heads=3, num_layers=1, initial_attention="neighbors")
    encoder = _encoder(config, 10)
    assert all(torch.isfinite(parameter).all() for parameter in encoder.parameters())
