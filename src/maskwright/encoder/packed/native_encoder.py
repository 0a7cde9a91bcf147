"""The encoder of `int8.c`: its structures, filled from the modules, and the call.

T tokens, W of them read, H width, F inner width, N heads, R the longest run.
"""

import ctypes
from typing import cast, final

import torch
from torch import Tensor, nn

from maskwright.core.tensors import FlatBatch
from maskwright.encoder.attention import run_offsets
from maskwright.encoder.block import AttentionBlock, FeedForwardBlock
from maskwright.encoder.config import EncoderConfig
from maskwright.encoder.encoder import Encoder
from maskwright.encoder.native.int8 import CODE
from maskwright.encoder.packed.dense import joined
from maskwright.encoder.packed.embedding import Embedding
from maskwright.encoder.packed.native_dense import (
    ACTIVATIONS,
    DenseLayout,
    NativeDense,
    RoomLayout,
    fits,
    given,
    room,
    rounding_room,
)


class _Block(ctypes.Structure):
    _fields_ = [
        ("first", DenseLayout),
        ("second", DenseLayout),
        ("norm_weight", ctypes.c_void_p),
        ("norm_bias", ctypes.c_void_p),
    ]


class _Encoder(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("attention", "ffn", "attention_plan", "ffn_plan")),
        *((name, ctypes.c_int64) for name in ("layers", "width", "inner", "heads", "activation")),
        ("epsilon", ctypes.c_float),
    ]


class _Batch(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("hidden", "offsets", "read")),
        *((name, ctypes.c_int64) for name in ("tokens", "runs", "longest", "num_read")),
    ]


def takes(config: EncoderConfig) -> bool:
    """Say whether `int8.c` is there and computes encoders of this shape."""
    widths = (config.hidden_size, config.intermediate_size, config.hidden_size // config.num_heads)
    return all(map(fits, widths))


@final
class NativeEncoder:
    """An encoder that is only used, in 8-bit numbers, with all its layers in one call.

    Args:
        encoder: Weights in fp32 on the CPU, of a shape that `takes` takes. Its embeddings are used as they are, its
            blocks are copied.
    """

    def __init__(self, encoder: Encoder) -> None:
        found = CODE.library()
        assert found is not None
        self._encode, self._numbers_needed = found.encode, found.numbers_needed
        self._config = config = encoder.config
        self._embedding = Embedding(encoder)
        attention = [_attention(cast(AttentionBlock, block)) for block in encoder.attention_blocks]
        ffn = [_ffn(cast(FeedForwardBlock, block)) for block in encoder.ffn_blocks]
        blocks = [(_Block * len(each))(*(block for block, _ in each)) for each in (attention, ffn)]
        plans = [(ctypes.c_int64 * config.num_layers)(*config.layer_plan(part)) for part in ("attention", "ffn")]
        self._kept = (attention, ffn, blocks, plans)
        self._layout = _Encoder(
            *map(ctypes.addressof, blocks),
            *map(ctypes.addressof, plans),
            config.num_layers,
            config.hidden_size,
            config.intermediate_size,
            config.num_heads,
            ACTIVATIONS[config.hidden_activation],
            config.layer_norm_eps,
        )

    def __call__(self, batch: FlatBatch, read: Tensor | None = None) -> Tensor:
        """Encode a batch (see `states.States`). Hidden states at filler slots are zero."""
        with torch.inference_mode():
            slots, real = len(batch.ids), batch.sequence_ids >= 0
            offsets = run_offsets(batch.sequence_ids, batch.row_length or slots or 1)
            hidden = self._embedding(batch)
            if bool(real.all()):
                # Indexing refuses what is no slot; the C code would read there.
                return self._all_layers(hidden, offsets, None if read is None else torch.arange(slots)[read])
            # Attention is computed run by run here: rows are not needed, and so no filler.
            lengths = offsets.diff()[real[offsets[:-1]]]
            offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
            if read is None:
                encoded = self._all_layers(hidden[real], offsets, None)
                return encoded.new_zeros(slots, encoded.shape[1]).masked_scatter_(real[:, None], encoded)
            # Filler that is read has no place among the real tokens: another's is computed, and thrown away.
            places = (real.cumsum(0) - 1).clamp_min_(0)[read]
            return self._all_layers(hidden[real], offsets, places).masked_fill_(~real[read][:, None], 0)

    def _all_layers(self, hidden: Tensor, offsets: Tensor, read: Tensor | None) -> Tensor:
        """Encode runs of tokens.

        Args:
            hidden: Shape (T, H). It is overwritten.
            offsets: Where runs begin and end. Shape (runs + 1,), from 0 to T.
            read: Shape (W,), from 0 to T - 1; None returns all.

        Returns:
            Shape (T, H) or (W, H).
        """
        config, team = self._config, torch.get_num_threads()
        hidden = given(hidden)
        tokens, width = hidden.shape
        num_read = tokens if read is None else len(read)
        if not tokens or not num_read:
            return hidden.new_zeros(num_read, width)
        longest = int(offsets.diff().max())
        most, widest = max(tokens, num_read), max(width, config.intermediate_size)
        meanwhile = {
            "projected": room(most, 3 * width),
            "mixed": room(most, width),
            "other": room(most, width),
            "inner": room(most, widest),
            "scores": room(team, self._numbers_needed(width // config.num_heads, longest, False)),
            **rounding_room(most, widest),
        }
        self._encode(
            ctypes.byref(self._layout),
            ctypes.byref(
                _Batch(
                    hidden.data_ptr(),
                    offsets.data_ptr(),
                    None if read is None else read.data_ptr(),
                    tokens,
                    len(offsets) - 1,
                    longest,
                    num_read,
                )
            ),
            ctypes.byref(RoomLayout(**{name: tensor.data_ptr() for name, tensor in meanwhile.items()})),
            team,
        )
        # The tokens read lie at the front of `projected`.
        return hidden if read is None else meanwhile["projected"].view(-1)[: num_read * width].view(num_read, width)


def _attention(block: AttentionBlock) -> tuple[_Block, tuple[object, ...]]:
    return _laid_out(NativeDense(*joined(block.query, block.key, block.value)), block.output, block.norm)


def _ffn(block: FeedForwardBlock) -> tuple[_Block, tuple[object, ...]]:
    return _laid_out(NativeDense(*joined(block.dense_in)), block.dense_out, block.norm)


def _laid_out(first: NativeDense, output: nn.Linear, norm: nn.LayerNorm) -> tuple[_Block, tuple[object, ...]]:
    """Return a block, and what it points to."""
    second = NativeDense(*joined(output))
    scale, shift = given(norm.weight).clone(), given(norm.bias).clone()
    return _Block(first.layout, second.layout, scale.data_ptr(), shift.data_ptr()), (first, second, scale, shift)
