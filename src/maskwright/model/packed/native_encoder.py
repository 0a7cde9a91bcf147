"""The encoder of `fp32.c` and of `int8.c`: its structures, filled from the modules, and the call.

S slots, T tokens (slots that are no filler), W of them read, H width.
"""

import ctypes
from typing import cast, final

import torch
from torch import Tensor, nn

from maskwright.core.tensors import PackedBatch
from maskwright.core.types import ProductPrecision
from maskwright.kernels.cpu.dense import joined
from maskwright.kernels.cpu.layouts import (
    ROUNDING,
    BatchLayout,
    BlockLayout,
    EncoderLayout,
    NormLayout,
    RoomLayout,
    TablesLayout,
    given,
    room,
)
from maskwright.kernels.cpu.native_dense import ACTIVATIONS, NativeDense
from maskwright.kernels.cpu.products import LANES, PRODUCTS, NativePrecision, fits
from maskwright.model.config import EncoderConfig
from maskwright.model.encoder import Encoder
from maskwright.model.layer import AttentionBlock, FeedForwardBlock
from maskwright.model.packed.embedding import Embedding

_WORD = 4
"""Bytes of an fp32 number."""
_NUMBER = 8
"""Bytes of an int64 number."""


def takes(config: EncoderConfig, precision: ProductPrecision) -> bool:
    """Say whether the code for a precision is there, may be used, and computes encoders of this shape."""
    widths = (config.hidden_size, config.intermediate_size, config.hidden_size // config.num_heads)
    return all(width % LANES == 0 and fits(width, precision) for width in widths)


@final
class NativeEncoder:
    """An encoder that is only used, with all its layers in one call.

    Of a short text's time much would be calls of PyTorch, 10 to 20 microseconds each since the weights have driven out
    of the cache what they need: there are few.

    Args:
        encoder: Weights in fp32 on the CPU, of a shape that `takes` takes. Its embeddings are used as they are, its
            blocks are copied.
        precision: Of the products in its layers.
    """

    def __init__(self, encoder: Encoder, precision: NativePrecision) -> None:
        products = PRODUCTS[precision]
        found = products.code.needed()
        self._survey, self._embed, self._encode = found.survey, found.embed, found.encode
        self._numbers_needed = found.numbers_needed
        self._rounds = products.rounds
        self._config = config = encoder.config
        self._embedding = Embedding(encoder)
        attention = [_attention(cast(AttentionBlock, block), precision) for block in encoder.attention_blocks]
        ffn = [_ffn(cast(FeedForwardBlock, block), precision) for block in encoder.ffn_blocks]
        blocks = [(BlockLayout * len(each))(*(block for block, _ in each)) for each in (attention, ffn)]
        plans = [(ctypes.c_int64 * config.num_layers)(*config.layer_plan(part)) for part in ("attention", "ffn")]
        tables, self._embeddings = _tables(encoder)
        self._kept = (attention, ffn, blocks, plans)
        self._layout = EncoderLayout(
            tables,
            *map(ctypes.addressof, blocks),
            *map(ctypes.addressof, plans),
            config.num_layers,
            config.hidden_size,
            config.intermediate_size,
            config.num_heads,
            ACTIVATIONS[config.hidden_activation],
            config.layer_norm_eps,
        )

    def __call__(self, batch: PackedBatch, read: Tensor | None = None) -> Tensor:
        """Encode a batch (see `states.States`). Hidden states at filler slots are zero."""
        with torch.inference_mode():
            tokens = batch.num_tokens
            lengths = batch.lengths
            owners = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
            numbers = [each.contiguous() for each in (batch.ids, batch.position_ids, batch.segment_ids, owners)]
            # Offsets, then places.
            found = room(2 * tokens + 1, dtype=torch.int64)
            call = BatchLayout(
                *(each.data_ptr() for each in numbers),
                found.data_ptr(),
                found.data_ptr() + _NUMBER * (tokens + 1),
                slots=tokens,
                row_length=0,
            )
            if self._survey(ctypes.byref(self._layout), ctypes.byref(call)):
                self._embedding(batch)  # Looking up what is not there, PyTorch says what it is.
                raise IndexError("a batch asks for embeddings that this encoder does not have")
            embedded = room(tokens, self._layout.tables.width)
            call.embedded = embedded.data_ptr()
            self._embed(ctypes.byref(self._layout), ctypes.byref(call), torch.get_num_threads())
            hidden = given(self._embedding.finish(embedded))
            # Indexing refuses what is no token; the C code would read there.
            return self._all_layers(call, hidden, None if read is None else torch.arange(tokens)[read])

    def _all_layers(self, call: BatchLayout, hidden: Tensor, read: Tensor | None) -> Tensor:
        """Encode a batch that was surveyed.

        Args:
            call: The batch.
            hidden: Shape (T, H), what the first layer gets. It is overwritten.
            read: Shape (W,), from 0 to T - 1; None returns all.

        Returns:
            Shape (T, H) or (W, H).
        """
        config, team = self._config, torch.get_num_threads()
        tokens, width = hidden.shape
        num_read = tokens if read is None else len(read)
        if not tokens or not num_read:
            return hidden.new_zeros(num_read, width)
        result = hidden if read is None else room(num_read, width)
        most, widest = max(tokens, num_read), max(width, config.intermediate_size)
        sizes = {
            "projected": most * 3 * width,
            "mixed": most * width,
            "other": most * width,
            "inner": most * widest,
            "scores": team * self._numbers_needed(width // config.num_heads, call.longest, False),
            "whole": most * widest // _WORD if self._rounds else 0,
            "roundings": most * ROUNDING if self._rounds else 0,
        }
        ends, end = {}, 0
        for name, size in sizes.items():
            ends[name] = end
            end += -(-size // LANES) * LANES
        meanwhile = room(end)
        begin = meanwhile.data_ptr()
        call.hidden, call.result, call.num_read = hidden.data_ptr(), result.data_ptr(), num_read
        call.read = None if read is None else read.data_ptr()
        self._encode(
            ctypes.byref(self._layout),
            ctypes.byref(call),
            ctypes.byref(RoomLayout(**{name: begin + _WORD * place for name, place in ends.items()})),
            team,
        )
        return result


def _tables(encoder: Encoder) -> tuple[TablesLayout, tuple[Tensor, ...]]:
    """Return where the embeddings are, and what they are kept in."""
    words, positions = given(encoder.word_embeddings.weight), given(encoder.position_embeddings.weight)
    segments = None if encoder.segment_embeddings is None else given(encoder.segment_embeddings.weight)
    tables = TablesLayout(
        words.data_ptr(),
        positions.data_ptr(),
        None if segments is None else segments.data_ptr(),
        len(words),
        len(positions),
        0 if segments is None else len(segments),
        encoder.config.position_offset,
        words.shape[1],
    )
    return tables, (words, positions, *(() if segments is None else (segments,)))


def _attention(block: AttentionBlock, precision: NativePrecision) -> tuple[BlockLayout, tuple[object, ...]]:
    return _laid_out(joined(block.query, block.key, block.value), block.output, block.norm, precision)


def _ffn(block: FeedForwardBlock, precision: NativePrecision) -> tuple[BlockLayout, tuple[object, ...]]:
    return _laid_out(joined(block.dense_in), block.dense_out, block.norm, precision)


def _laid_out(
    first: tuple[Tensor, Tensor], output: nn.Linear, norm: nn.LayerNorm, precision: NativePrecision
) -> tuple[BlockLayout, tuple[object, ...]]:
    """Return a block, and what it points to."""
    denses = [NativeDense(*each, precision=precision) for each in (first, joined(output))]
    scale, shift = given(norm.weight).clone(), given(norm.bias).clone()
    to_norm = NormLayout(scale.data_ptr(), shift.data_ptr())
    return BlockLayout(*(dense.layout for dense in denses), to_norm), (*denses, scale, shift)
