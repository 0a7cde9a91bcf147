"""Packed batches for tests, and a small encoder whose attention is far from uniform."""

import numpy as np

from maskwright.core.tensors import PackedBatch
from maskwright.model.config import EncoderConfig
from maskwright.model.encoder import Encoder
from maskwright.model.initialization import initialize

VOCAB_SIZE = 101
SMALL = EncoderConfig(
    hidden_size=48, num_layers=3, num_heads=4, intermediate_size=96, max_positions=32, initializer_range=0.2
)
PACKED = (10, 7, 3, 24, 20, 3, 5, 5, 5, 5, 4)


def packed(lengths: tuple[int, ...] = PACKED, max_seqlen: int = 24, key: int | None = None) -> PackedBatch:
    """Pack random sequences of the given lengths; a sequence's tokens depend on its number alone."""
    ids = [np.random.default_rng(number).integers(5, VOCAB_SIZE, length) for number, length in enumerate(lengths)]
    segments = np.concatenate([np.arange(length) > length // 2 for length in lengths])
    sizes = np.array(lengths)
    return PackedBatch.of(np.concatenate(ids), segments, sizes, max_seqlen=max_seqlen, dropout_key=key)


def encoder(config: EncoderConfig = SMALL, seed: int = 1) -> Encoder:
    """Build and initialize an encoder."""
    model = Encoder(config, VOCAB_SIZE)
    initialize(model, config, seed)
    return model
