import math

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits
from torch import nn

from maskwright.model.config import EncoderConfig
from maskwright.model.encoder import Encoder
from maskwright.model.initialization import initialize, start_from_vectors

CONFIG = EncoderConfig(hidden_size=128, num_layers=2, num_heads=2, intermediate_size=512, max_positions=64)


class _Model(nn.Module):
    def __init__(self, config: EncoderConfig, heads: int) -> None:
        super().__init__()
        self.encoder = Encoder(config, 3000)
        self.heads = nn.ModuleList(nn.Linear(128, 40) for _ in range(heads))
        self.bias = nn.Parameter(torch.ones(3000))


def _model(config=CONFIG, heads=1, seed=0):
    model = _Model(config, heads)
    initialize(model, config, seed)
    return model


def test_weights_are_truncated_normal_biases_zero_norms_one():
    model = _model()
    words = model.encoder.word_embeddings.weight
    # The standard deviation of a normal cut at two: sqrt(1 - 4 phi(2) / (2 Phi(2) - 1)).
    cut = math.sqrt(1 - 4 * math.exp(-2) / math.sqrt(2 * math.pi) / math.erf(math.sqrt(2)))
    assert words.std().item() == pytest.approx(0.02 * cut, rel=0.01)
    assert abs(words.mean().item()) < 4 * 0.02 / math.sqrt(words.numel())
    for name, parameter in model.named_parameters():
        if parameter.dim() >= 2:
            assert 0 < parameter.abs().max() <= 0.04
            assert parameter.std() > 0.015
        else:
            assert (parameter == (1 if name.endswith("norm.weight") else 0)).all(), name


def test_normal_is_not_cut():
    words = _model(CONFIG.replace(initializer="normal", initializer_range=0.5)).encoder.word_embeddings.weight
    assert words.std().item() == pytest.approx(0.5, rel=0.01)
    assert words.abs().max() > 1.5


def test_megatron_divides_output_layers():
    plain, divided = (
        _model(CONFIG.replace(initializer=each)).state_dict() for each in ("truncated_normal", "megatron")
    )
    for name, value in plain.items():
        factor = 4**-0.5 if name.endswith(("output.weight", "dense_out.weight")) else 1  # Of 2 layers.
        torch.testing.assert_close(divided[name], factor * value)


def test_a_head_or_layer_more_changes_no_other_parameter():
    small, large = _model(), _model(CONFIG.replace(num_layers=3), heads=3)
    state = large.state_dict()
    for name, value in small.state_dict().items():
        assert torch.equal(value, state[name]), name


def test_seeds_and_parameters_differ():
    model, other = _model(), _model(seed=1)
    query, key = model.encoder.attention_blocks[0].query.weight, model.encoder.attention_blocks[0].key.weight
    assert not torch.equal(query, key)
    assert not torch.equal(query, other.encoder.attention_blocks[0].query.weight)


def test_rows_of_the_padding_are_zero_for_roberta_only():
    roberta = _model(CONFIG.replace(position_offset=2)).encoder
    assert (roberta.word_embeddings.weight[1] == 0).all()
    assert (roberta.position_embeddings.weight[:2] == 0).all()
    assert (roberta.word_embeddings.weight[0] != 0).any()
    bert = _model().encoder
    assert (bert.word_embeddings.weight[0] != 0).any()
    assert (bert.position_embeddings.weight[0] != 0).any()


@pytest.mark.parametrize("width", [32, 64, 128])
def test_embeddings_have_the_directions_of_vectors_and_the_norms_of_random_rows(width):
    config = CONFIG.replace(embedding_size=width, initial_embeddings="cooccurrence")
    vectors = np.random.default_rng(0).standard_normal((3000, 64), dtype=np.float32)
    vectors[7] = 0
    before, after, other = _model(config), _model(config), _model(config)
    start_from_vectors(after, vectors, 0)
    start_from_vectors(other, vectors, 1)
    drawn, begun = before.encoder.word_embeddings.weight, after.encoder.word_embeddings.weight
    assert torch.equal(begun[7], drawn[7])  # A token without a vector.
    torch.testing.assert_close(begun.norm(dim=1), drawn.norm(dim=1))
    kept = torch.from_numpy(vectors[:, : min(width, 64)])
    first, second = (nn.functional.normalize(each[8:200]) for each in (kept, begun))
    torch.testing.assert_close(second @ second.T, first @ first.T, atol=1e-5, rtol=0)
    assert not torch.equal(begun, other.encoder.word_embeddings.weight)  # Another rotation.
    for (name, was), now in zip(before.named_parameters(), after.parameters(), strict=True):
        assert torch.equal(was, now) == (name != "encoder.word_embeddings.weight"), name


def test_vectors_leave_random_embeddings_and_empty_rows_alone():
    vectors = np.ones((3000, 64), dtype=np.float32)
    plain = _model()
    start_from_vectors(plain, vectors, 0)
    assert all(map(torch.equal, plain.parameters(), _model().parameters()))
    roberta = _model(CONFIG.replace(position_offset=2, initial_embeddings="cooccurrence"))
    start_from_vectors(roberta, vectors, 0)
    assert not roberta.encoder.word_embeddings.weight[1].any()  # Of padding.


def test_a_generator_and_the_number_of_threads_change_no_embedding():
    config = CONFIG.replace(initial_embeddings="cooccurrence")
    vectors = np.random.default_rng(0).standard_normal((3000, 128), dtype=np.float32)
    tables = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            model = _model(config)
            if threads == 2:
                model.generator = Encoder(config.replace(num_layers=1), 3000)
                model.generator.word_embeddings = model.encoder.word_embeddings
            start_from_vectors(model, vectors, 0)
            tables.append(model.encoder.word_embeddings.weight)
    assert torch.equal(*tables)
