"""Torch value types passed between packages. T tokens, B sequences, H hidden, M targets, R row length.

The module does not import PyTorch, so that recipes, of which objectives are parts, are read without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from maskwright.core.types import IntArray

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedBatch:
    """Token sequences, one after the other, without padding: the encoder's input.

    Attributes:
        ids: Shape (T,), int64.
        position_ids: Shape (T,), int64, counted from 0 in each sequence (without the family's offset).
        segment_ids: Shape (T,), int64.
        cu_seqlens: Shape (B+1,), int32, the boundaries of the sequences, from 0 to T. No sequence is empty, except in
            the fixed memory of CUDA graphs.
        max_seqlen: Length of the longest sequence, or an upper bound of it.
        dropout_key: Key of the dropout masks, a scalar int64 tensor in CUDA graphs; None disables dropout.
    """

    ids: Tensor
    position_ids: Tensor
    segment_ids: Tensor
    cu_seqlens: Tensor
    max_seqlen: int
    dropout_key: int | Tensor | None = None

    @classmethod
    def of(
        cls,
        ids: IntArray,
        segment_ids: IntArray,
        lengths: IntArray,
        *,
        max_seqlen: int | None = None,
        dropout_key: int | None = None,
        device: torch.device | None = None,
    ) -> PackedBatch:
        """Make a batch, on the CPU by default; `ids` and `segment_ids` have shape (T,), `lengths` of sequences (B,)."""
        import torch

        cu_seqlens = np.append(0, np.cumsum(lengths))
        return cls(
            ids=torch.from_numpy(ids.astype(np.int64, copy=False)).to(device),
            position_ids=torch.from_numpy(np.arange(len(ids)) - np.repeat(cu_seqlens[:-1], lengths)).to(device),
            segment_ids=torch.from_numpy(segment_ids.astype(np.int64, copy=False)).to(device),
            cu_seqlens=torch.from_numpy(cu_seqlens.astype(np.int32)).to(device),
            max_seqlen=int(lengths.max()) if max_seqlen is None else max_seqlen,
            dropout_key=dropout_key,
        )

    @property
    def num_tokens(self) -> int:
        return len(self.ids)

    @property
    def num_sequences(self) -> int:
        return len(self.cu_seqlens) - 1

    @property
    def first_tokens(self) -> Tensor:
        """Offset of each sequence's first token (the classification token), shape (B,), int64."""
        return self.cu_seqlens[:-1].long()

    @property
    def lengths(self) -> Tensor:
        """Tokens of each sequence, shape (B,), int64."""
        return self.cu_seqlens.long().diff()


def mean_of_tokens(hidden: Tensor, batch: PackedBatch) -> Tensor:
    """Return the mean of each sequence's hidden states, special tokens included. Shape (T, H) to (B, H)."""
    import torch

    # Not index_add, which is nondeterministic on a GPU.
    return torch.segment_reduce(hidden, "mean", lengths=batch.lengths)


@dataclass(frozen=True, slots=True)
class EncoderOutput:
    """The encoder's output: hidden states of all tokens and, if it has a pooler, one vector a sequence.

    Attributes:
        hidden: Shape (T, H).
        pooled: Shape (B, H), tanh of a dense layer over each first token; None without a pooler.
        qkv: Queries, keys and values of one layer, before they are rotated, each of shape (T, H); None unless
            they were requested.
    """

    hidden: Tensor
    pooled: Tensor | None
    qkv: tuple[Tensor, Tensor, Tensor] | None = None


@dataclass(frozen=True, slots=True)
class LossTerm:
    """One objective's loss on one micro-batch: a sum, never a mean (`StepBatch.counts` has the divisors).

    Attributes:
        total: Scalar tensor, the summed negative log-likelihood in nats.
        correct: Scalar integer tensor: how many predictions were right; None where none can be right or wrong.
        tallies: Further sums over the predictions, by name, as scalar tensors (e.g. how many tokens are replaced);
            `Objective.details` turns them into shares.
        sampled: Shape (M,), int64: a token sampled from the predicted distribution at each target, where the targets
            carry the random numbers for it (a generator's samples); else None. No gradient.
    """

    total: Tensor
    correct: Tensor | None
    tallies: Mapping[str, Tensor] = field(default_factory=dict)
    sampled: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTensors:
    """`Targets` as tensors on the training device.

    Attributes:
        positions: Shape (M,), int64.
        labels: Shape (M,), int64.
        extra: Further aligned values an objective needs.
        anchors: Further aligned token offsets, counted like `positions`.
    """

    positions: Tensor
    labels: Tensor
    extra: Mapping[str, Tensor] = field(default_factory=dict)
    anchors: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedBatch:
    """An encoder's hidden states of a batch, with all that turns them into scores.

    Attributes:
        ids: The tokens it sees: with a generator, the encoder sees the samples. Shape (T,).
        output: Hidden states (T, H) and, with a pooler, vectors (B, H).
        word_embeddings: The tied output matrix. Shape (V, E).
        heads: The heads on this encoder, by the kind of their objective.
    """

    ids: Tensor
    output: EncoderOutput
    word_embeddings: Tensor
    heads: Mapping[str, nn.Module]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossInputs:
    """The inputs of an objective's loss.

    Attributes:
        encoded: The batch as the encoder that is trained encodes it.
        targets: Positions and labels; may be empty.
        teacher: The same batch as the teacher encodes it, without gradient; None without a teacher.
        batch: The batch itself, for objectives that use its sequences.
    """

    encoded: EncodedBatch
    targets: TargetTensors
    teacher: EncodedBatch | None = None
    batch: PackedBatch | None = None
