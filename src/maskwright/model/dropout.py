"""The dropout sites of an encoder, and the mask at each (Devlin et al. 2019, appendix A.2)."""

from typing import NamedTuple

import torch
from torch import Tensor

from maskwright.kernels import ops
from maskwright.model.config import EncoderConfig


class LayerDropout(NamedTuple):
    """The dropout masks of one layer; None where nothing is dropped. The order of the sites is part of their keys."""

    attention_probabilities: ops.DropoutMask | None
    attention_output: ops.DropoutMask | None
    feed_forward_output: ops.DropoutMask | None


class EncoderDropout:
    """The dropout masks of one forward pass; for the key see `PackedBatch`, None drops nothing."""

    def __init__(self, config: EncoderConfig, key: int | Tensor | None, device: torch.device) -> None:
        self._config = config
        self._key = ops.DropoutKey(key, device, num_sites(config))

    def embeddings(self) -> ops.DropoutMask | None:
        """Return the mask of the embeddings."""
        return self._key.mask(0, self._config.hidden_dropout)

    def layer(self, layer: int) -> LayerDropout:
        """Return the masks of a layer."""
        first, config = 1 + len(LayerDropout._fields) * layer, self._config
        rates = config.attention_dropout, config.hidden_dropout, config.hidden_dropout
        return LayerDropout(*(self._key.mask(first + site, rate) for site, rate in enumerate(rates)))


def num_sites(config: EncoderConfig) -> int:
    """Return the number of dropout sites of an encoder; those of a head are numbered from there."""
    return 1 + len(LayerDropout._fields) * config.num_layers
