"""Small encoders of every kind whose rounding matters, and texts laid out for them."""

from functools import cache

import numpy as np
import torch
from torch import Tensor

from maskwright.core.types import ProductPrecision
from maskwright.inference.batching import TextBatch, batches
from maskwright.kernels.cpu.int8_support import multiplies_int8
from maskwright.model.config import EncoderConfig
from maskwright.model.encoder import Encoder
from maskwright.model.initialization import initialize
from maskwright.training.device import multiplies_bf16

CPU = torch.device("cpu")
WORDS = 90
SHAPES = {
    "bert": {"hidden_activation": "gelu"},
    "google's bert": {"hidden_activation": "gelu_tanh", "num_heads": 1},
    "roberta": {"position_offset": 2, "type_vocab_size": 1, "layer_norm_eps": 1e-5, "hidden_activation": "gelu"},
    "albert": {"embedding_size": 16, "sharing": "all", "num_groups": 2},
    "electra": {"embedding_size": 16, "hidden_activation": "gelu"},
    "distilbert": {"type_vocab_size": 0, "hidden_activation": "gelu"},
    "ernie": {"hidden_activation": "relu", "layer_norm_eps": 1e-5},
    "a plan of its own": {"attention_plan": (0, 1, 0), "ffn_plan": (0, 0, 1), "embedding_projection": "always"},
}
# The error allowed, as a share of the largest value, and the least cosine. Weights are drawn five times as wide as
# usual, so that what is rounded matters.
ROUNDED: dict[ProductPrecision, tuple[float, float]] = {
    "fp32": (1e-5, 0.999999),
    "bf16": (0.05, 0.999),
    "int8": (0.08, 0.998),
}


def has_precision(precision: ProductPrecision) -> bool:
    """Return whether this processor multiplies numbers of a precision by instructions of its own."""
    return {"fp32": True, "bf16": multiplies_bf16(CPU), "int8": multiplies_int8()}[precision]


@cache
def encoder(name: str) -> Encoder:
    """Return an encoder of three layers."""
    return make_encoder(**SHAPES[name])


def make_encoder(**shape: object) -> Encoder:
    """Make an encoder that differs from the usual small one as said."""
    config = EncoderConfig(
        **{
            "hidden_size": 64,
            "num_layers": 3,
            "num_heads": 4,
            "intermediate_size": 128,
            "max_positions": 40,
            "initializer_range": 0.1,
            **shape,
        }
    )
    made = Encoder(config, WORDS)
    initialize(made, config, seed=1)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() == 1:  # Biases begin at zero: any mistake with them would be invisible.
                parameter.add_(torch.linspace(-0.3, 0.3, len(parameter)))
    return made.eval()


def texts(lengths: list[int]) -> list[np.ndarray]:
    """Draw texts of these lengths."""
    generator = np.random.default_rng(len(lengths))
    return [generator.integers(0, WORDS, n) for n in lengths]


def laid(lengths: list[int], tokens: int = 1000) -> list[TextBatch]:
    """Lay out texts of these lengths."""
    return list(batches(texts(lengths), tokens=tokens, device=CPU))


def expected(name: str, text_batch: TextBatch) -> Tensor:
    """Return hidden states of the module, exact."""
    module = encoder(name)
    before, module.backend = module.backend, "reference"
    with torch.no_grad():
        hidden = module(text_batch.batch).hidden
    module.backend = before
    return hidden


def assert_near(found: Tensor, wanted: Tensor, precision: ProductPrecision) -> None:
    """Check that numbers are as near to exact ones as their precision allows."""
    error, cosine = ROUNDED[precision]
    assert found.dtype == torch.float32
    assert (found - wanted).abs().max() <= error * wanted.abs().max()
    assert torch.cosine_similarity(found, wanted, dim=-1).min() >= cosine
