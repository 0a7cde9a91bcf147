"""The laid-out head scores the vocabulary as the trained module does, as far apart as is stated here."""

import pytest
import torch

from maskwright.core.types import ProductPrecision
from maskwright.inference.mlm_scores import packed_scores
from maskwright.model.config import EncoderConfig
from maskwright.model.encoder import Encoder
from maskwright.model.initialization import initialize
from maskwright.pretext.objectives.heads import MaskedLanguageModelingHead
from maskwright.pretext.objectives.mlm import MaskedLanguageModeling
from tests.precisions import skip_without

WORDS, WIDTH = 90, 64
# As a share of the greatest score.
ERRORS: dict[ProductPrecision, float] = {"fp32": 1e-5, "bf16": 0.05, "int8": 0.08}


@pytest.mark.parametrize("precision", ERRORS)
def test_packed_head_scores_as_the_module(precision: ProductPrecision) -> None:
    skip_without(precision)
    config = EncoderConfig(
        hidden_size=WIDTH,
        num_layers=1,
        num_heads=4,
        intermediate_size=128,
        max_positions=40,
        initializer_range=0.1,
        embedding_size=16,
        hidden_activation="gelu",
    )
    encoder = Encoder(config, WORDS)
    initialize(encoder, config, seed=1)
    torch.manual_seed(0)
    head = MaskedLanguageModelingHead(config.head_shape(WORDS)).eval()
    hidden, words = torch.randn(5, WIDTH), encoder.word_embeddings.weight
    with torch.inference_mode():
        found = packed_scores(head, words, precision)(hidden)
        wanted = MaskedLanguageModeling().logits(head, hidden, words)
    assert found.dtype == torch.float32
    assert found.shape == (5, WORDS)
    assert (found - wanted).abs().max() <= ERRORS[precision] * wanted.abs().max()
    assert found.argmax(1).tolist() == wanted.argmax(1).tolist()
