"""An encoder that is only used: code laid out for a processor, or the modules as they are."""

import platform
from typing import Protocol, final

import torch
from torch import Tensor

from maskwright.core.tensors import PackedBatch
from maskwright.core.types import ProductPrecision
from maskwright.model.encoder import Encoder
from maskwright.model.packed.encoder import PackedEncoder
from maskwright.model.packed.native_encoder import NativeEncoder, takes

_PACKED_ON = ("x86_64", "AMD64")


class States(Protocol):
    """An encoder that is only used."""

    def __call__(self, batch: PackedBatch, read: Tensor | None = None) -> Tensor:
        """Encode a batch.

        Args:
            batch: A batch cut into rows.
            read: Shape (W,), int64: the slots to return; None returns all.

        Returns:
            Hidden states in fp32, shape (T, H) or (W, H).
        """


@final
class PlainEncoder:
    """The trained modules as they are, for devices that nothing is laid out for.

    Args:
        encoder: The encoder, in evaluation mode.
        precision: Of the products of matrices.
    """

    def __init__(self, encoder: Encoder, precision: ProductPrecision) -> None:
        self._encoder = encoder
        self._autocast = precision == "bf16"

    def __call__(self, batch: PackedBatch, read: Tensor | None = None) -> Tensor:
        """Encode a batch (see `States`)."""
        with torch.autocast(batch.ids.device.type, torch.bfloat16, enabled=self._autocast):
            hidden: Tensor = self._encoder(batch, read).hidden.float()
        return hidden if read is None else hidden[read]


def states_of(encoder: Encoder, precision: ProductPrecision) -> States:
    """Return the fastest way to compute an encoder's hidden states. It may keep copies of the weights as they are now.

    Args:
        encoder: The encoder, in evaluation mode.
        precision: Of its products of matrices.
    """
    if not packs(encoder, precision):
        return PlainEncoder(encoder, precision)
    if precision != "bf16" and takes(encoder.config, precision):
        return NativeEncoder(encoder, precision)
    return PackedEncoder(encoder, precision)


def packs(encoder: Encoder, precision: ProductPrecision) -> bool:
    """Say whether there is code laid out for where an encoder is: measured on x86 processors only (LOG.md)."""
    on_cpu = encoder.word_embeddings.weight.device.type == "cpu"
    has_library: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if not (on_cpu and has_library and platform.machine() in _PACKED_ON):
        return False
    # The library has no bf16 product for a processor without the instructions; autocast emulates it.
    return precision != "bf16" or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
