"""A layer without training that averages hidden states, for heads on the first token of a frozen encoder."""

from dataclasses import replace

import torch

from maskwright.checkpoints.checkpoint import Checkpoint

_MEAN_WEIGHT = 1000.0
"""Weight of the mean beside the residual, the first token's hidden state, before the LayerNorm."""


def with_mean_layer(existing: Checkpoint) -> Checkpoint:
    """Return the model with one more layer, whose output at each token is the mean of the sequence, normalized.

    Queries and keys of 0 attend to all tokens alike, values are the hidden states, and the feed-forward sublayer is 0.
    Vectors of first tokens are poor features unless they are trained, and no class of transformers averages. Models
    that share layers, or normalize before them, are returned as they are, and so are those that end with such a layer.
    """
    config, state = existing.config, dict(existing.state)
    last = config.num_layers - 1
    if config.norm_placement != "post" or config.sharing != "none":
        return existing
    if not state[f"encoder.attention_blocks.{last}.query.weight"].any():
        return existing
    for blocks in ("attention_blocks", "ffn_blocks"):
        prefix = f"encoder.{blocks}.{last}."
        for name in [name for name in state if name.startswith(prefix)]:
            made = torch.zeros_like(state[name])
            match name.removeprefix(prefix):
                case "value.weight":
                    made = torch.eye(len(made))
                case "output.weight":
                    made = _MEAN_WEIGHT * torch.eye(len(made))
                case "norm.weight":
                    made = torch.ones_like(made)
            state[f"encoder.{blocks}.{last + 1}.{name.removeprefix(prefix)}"] = made
    return replace(existing, config=config.replace(num_layers=config.num_layers + 1), state=state)
