"""What computes a model's hidden states and scores: code laid out for a processor, or the modules as they are."""

import platform
from typing import Protocol

import torch
from torch import Tensor

from maskwright.core.tensors import FlatBatch
from maskwright.encoder.encoder import Encoder
from maskwright.inference.packed.encoder import PackedEncoder
from maskwright.inference.packed.head import PackedHead
from maskwright.inference.plain import PlainEncoder, PlainHead
from maskwright.inference.precision import Chosen
from maskwright.pretext.objectives.mlm import MaskedLanguageModelingHead

_PACKED_ON = ("x86_64", "AMD64")


class States(Protocol):
    """An encoder that is only used."""

    def __call__(self, batch: FlatBatch, read: Tensor | None = None) -> Tensor:
        """Encode a batch.

        Args:
            batch: A batch cut into rows.
            read: Shape (W,), int64: the slots to return; None returns all.

        Returns:
            Hidden states in fp32, shape (T, H) or (W, H).
        """


class Scores(Protocol):
    """A masked-language-model head that is only used."""

    def __call__(self, hidden: Tensor) -> Tensor:
        """Turn hidden states (M, H) into scores of all vocabulary entries (M, V), fp32."""


def states_of(encoder: Encoder, precision: Chosen) -> States:
    """Return the fastest way to compute an encoder's hidden states.

    Args:
        encoder: The encoder, in evaluation mode.
        precision: Of its products of matrices.
    """
    return (PackedEncoder if _packs(encoder) else PlainEncoder)(encoder, precision)


def scores_of(head: MaskedLanguageModelingHead, encoder: Encoder, precision: Chosen) -> Scores:
    """Return the fastest way to score the vocabulary.

    Args:
        head: The head, in evaluation mode.
        encoder: Has the word embeddings that the output is tied to.
        precision: Of its products of matrices.
    """
    return (PackedHead if _packs(encoder) else PlainHead)(head, encoder.word_embeddings.weight, precision)


def _packs(encoder: Encoder) -> bool:
    # Measured on x86 processors only (LOG.md); elsewhere the modules as they are.
    on_cpu = encoder.word_embeddings.weight.device.type == "cpu"
    has_library: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return on_cpu and has_library and platform.machine() in _PACKED_ON
