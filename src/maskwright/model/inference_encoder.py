"""An encoder for inference: the C layers where they are supported, else the modules."""

import copy
from collections.abc import Callable
from typing import cast, final

import torch
from torch import Tensor, nn

from maskwright.core.tensors import PackedBatch
from maskwright.core.types import MatmulPrecision
from maskwright.kernels import ops
from maskwright.machine.threads import inference_threads
from maskwright.model.encoder import Encoder
from maskwright.model.rotary import Rotation
from maskwright.model.sizes import flops_per_token
from maskwright.model.sublayers import FeedForward, SelfAttention


class PrecisionWarning(UserWarning):
    """The device does not support the requested precision; fp32 is used."""


@final
class InferenceEncoder:
    """Hidden states of an encoder in evaluation mode, without gradients. The weights of the layers may be copied.

    int8 covers attention and feed-forward; heads and pooler stay fp32.
    """

    def __init__(self, encoder: Encoder, precision: MatmulPrecision) -> None:
        self.layers = None if precision == "bf16" else _layers(encoder, precision)
        if precision == "bf16":
            encoder = _with_dense_layers(encoder, _bf16_weights)
        elif precision == "int8" and self.layers is None:
            encoder = _with_dense_layers(encoder, ops.Int8Linear)
        self._encoder, self.precision = encoder, precision
        self._flops_per_token = flops_per_token(encoder.config, length=1) / 3

    def __call__(self, batch: PackedBatch, output_positions: Tensor | None = None) -> Tensor:
        """Return hidden states in fp32: of all tokens, (T, H), or at positions (W,), int64, in any order, (W, H)."""
        flops = batch.num_tokens * self._flops_per_token
        with torch.inference_mode(), inference_threads(flops, batch.ids.device, self.precision):
            if self.layers is not None:
                hidden = self._encoder.embed(batch, None)
                sequences = ops.Sequences(batch.cu_seqlens, batch.max_seqlen)
                return self.layers(hidden, sequences, output_positions, batch.position_ids)
            with torch.autocast(batch.ids.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
                return self._encoder.encode(batch, output_positions).float()


def _with_dense_layers(encoder: Encoder, convert: Callable[[nn.Linear], nn.Module]) -> Encoder:
    """Return a copy whose sublayers have converted dense layers. Other parameters are shared."""
    copied = copy.deepcopy(encoder, {id(parameter): parameter for parameter in encoder.parameters()})
    for sublayer in (*copied.attention_blocks, *copied.ffn_blocks):
        for name, module in sublayer.named_children():
            if isinstance(module, nn.Linear):
                setattr(sublayer, name, convert(module))
    return copied


def _bf16_weights(layer: nn.Linear) -> nn.Linear:
    """Convert the matrix, so that autocast does not do it at every call."""
    layer.weight = nn.Parameter(layer.weight.to(torch.bfloat16), requires_grad=False)
    return layer


def _layers(encoder: Encoder, precision: ops.Precision) -> ops.InferenceLayers | None:
    config = encoder.config
    attention = [cast(SelfAttention, each) for each in encoder.attention_blocks]
    feed_forward = [cast(FeedForward, each) for each in encoder.ffn_blocks]
    rotations: dict[float, Tensor] = {}
    if config.positions == "rotary":
        positions = torch.arange(config.max_positions, device="cpu")
        for theta in {config.theta(layer) for layer in range(config.num_layers)}:
            rotations[theta] = torch.cat(Rotation.at(positions, config.head_size, theta), -1).flatten(1)
    return ops.inference_layers(
        [ops.Sublayer((each.query, each.key, each.value), each.output, each.norm) for each in attention],
        [ops.Sublayer((each.dense_in,), each.dense_out, each.norm) for each in feed_forward],
        [
            ops.InferenceLayer(*sublayers, config.window(layer), rotations.get(config.theta(layer)))
            for layer, sublayers in enumerate(encoder.plan)
        ],
        num_heads=config.num_heads,
        activation=config.hidden_activation,
        precision=precision,
        final_norm=encoder.final_norm,
    )
