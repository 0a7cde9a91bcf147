"""The encoder: embeddings, then layers of self-attention and feed-forward, over packed sequences (Devlin et al. 2019).

T tokens, B sequences, W output positions, E embedding size, H hidden size, V vocabulary.
"""

from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from maskwright.core.tensors import EncoderOutput, PackedBatch
from maskwright.kernels import ops
from maskwright.model.config import EncoderConfig
from maskwright.model.rotary import Rotation
from maskwright.model.sublayers import FeedForward, LayerDropout, SelfAttention, layer_norm, num_sites


class Encoder(nn.Module):
    """A Transformer encoder, post-norm or pre-norm.

    Dense layers, LayerNorms and dropout see all tokens (T, H); only attention separates sequences. The module lists
    hold distinct sublayers; `config.layer_plan` says which layer uses which. The word embeddings have V = `vocab_size`
    rows.
    """

    def __init__(self, config: EncoderConfig, vocab_size: int) -> None:
        super().__init__()
        self.config = config
        embedding_size, hidden_size = config.embedding_width, config.hidden_size
        segments, projects = config.type_vocab_size, config.projects_embeddings
        self.word_embeddings = _embedding(vocab_size, embedding_size)
        rows = config.position_offset + config.max_positions
        self.position_embeddings = _embedding(rows, embedding_size) if config.positions == "absolute" else None
        self.segment_embeddings = _embedding(segments, embedding_size) if segments else None
        self.embedding_norm = layer_norm(config, embedding_size)
        self.embedding_projection = nn.Linear(embedding_size, hidden_size) if projects else None
        self.plan = tuple(zip(config.layer_plan("attention"), config.layer_plan("ffn"), strict=True))
        self._windows = tuple(config.window(layer) for layer in range(config.num_layers))
        self._thetas = tuple(config.theta(layer) for layer in range(config.num_layers))
        self.attention_blocks = nn.ModuleList(
            SelfAttention(config, has_norm=block > 0 or config.first_attention_norm)
            for block in range(len(set(config.layer_plan("attention"))))
        )
        self.ffn_blocks = nn.ModuleList(FeedForward(config) for _ in set(config.layer_plan("ffn")))
        self.final_norm = layer_norm(config, hidden_size) if config.norm_placement == "pre" else None
        self.pooler = nn.Linear(hidden_size, hidden_size) if config.pooler else None

    @property
    def head_size(self) -> int:
        return self.config.head_size

    @property
    def attention_dropout(self) -> float:
        return self.config.attention_dropout

    def forward(
        self, batch: PackedBatch, output_positions: Tensor | None = None, qkv_layer: int | None = None
    ) -> EncoderOutput:
        """Encode a batch. Dropout is applied in training mode if the batch has a key.

        With output positions, the last layer attends from and to all tokens, but computes what follows the attention
        at those positions only. Their hidden states and all gradients stay the same, except for the hidden dropout
        after that attention: its masks are keyed by the place among the output positions, since generating those of
        all tokens would cost most of what is saved.

        Args:
            batch: T tokens of B sequences.
            output_positions: Shape (W,), int64, the tokens whose hidden states are used, each once; with a pooler each
                sequence's first token must be among them. None for all.
            qkv_layer: The layer whose queries, keys and values are returned too, counted from 0; None for none.

        Returns:
            Hidden states of all tokens; those of other than the output positions are zero.
        """
        hidden, qkv = self._encode(batch, output_positions, qkv_layer)
        return replace(self.finish(hidden, batch, output_positions), qkv=qkv)

    def encode(self, batch: PackedBatch, output_positions: Tensor | None) -> Tensor:
        """Return the last hidden states of the output positions, shape (W, H), or of all tokens, (T, H)."""
        return self._encode(batch, output_positions, None)[0]

    def _encode(
        self, batch: PackedBatch, output_positions: Tensor | None, qkv_layer: int | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor] | None]:
        """Return hidden states as `encode` does, and the queries, keys and values of a layer."""
        num_tokens, kept = batch.num_tokens, None
        count = num_tokens if output_positions is None else len(output_positions)
        # Few tokens are appended, in training on a CPU only; their hidden states are cut off at the end.
        batch, output_positions = ops.pad_to_few_sizes(batch, output_positions)
        key_of_step = batch.dropout_key if self.training else None
        dropout_key = ops.DropoutKey(key_of_step, batch.ids.device, num_sites(self.config))
        sequences = ops.Sequences(batch.cu_seqlens, batch.max_seqlen)
        hidden = self.embed(batch, dropout_key.mask(0, self.config.hidden_dropout))
        rotations = self._rotations(batch)
        for layer, (attention, ffn) in enumerate(self.plan):
            positions = output_positions if layer == len(self.plan) - 1 else None
            block = cast(SelfAttention, self.attention_blocks[attention])
            dropout = LayerDropout.of(dropout_key, self.config, layer)
            query, key, value = qkv = block.project(hidden)
            if layer == qkv_layer:
                kept = query[:num_tokens], key[:num_tokens], value[:num_tokens]
            hidden = block(
                hidden,
                qkv,
                sequences,
                dropout,
                positions,
                rotation=rotations.get(self._thetas[layer]),
                window=self._windows[layer],
            )
            hidden = self.ffn_blocks[ffn](hidden, dropout)
        return (hidden if self.final_norm is None else self.final_norm(hidden))[:count], kept

    def _rotations(self, batch: PackedBatch) -> dict[float, Rotation]:
        """Return the rotation of the tokens for each theta; none with a position table."""
        if self.position_embeddings is not None:
            return {}
        return {theta: Rotation.at(batch.position_ids, self.head_size, theta) for theta in sorted({*self._thetas})}

    def embed(self, batch: PackedBatch, dropout: ops.DropoutMask | None) -> Tensor:
        """Return the input of the first layer, shape (T, H): word + position + segment embeddings, projected if E != H.

        Rotary positions are not part of it. A segment table of one row is added to every token, whatever its segment
        (RoBERTa).
        """
        hidden = ops.dropout(self.embedding_norm(self.sum_embeddings(batch)), dropout)
        return hidden if self.embedding_projection is None else self.embedding_projection(hidden)

    def sum_embeddings(self, batch: PackedBatch) -> Tensor:
        """Return word + position + segment embeddings, shape (T, E)."""
        offset, segments = self.config.position_offset, self.segment_embeddings
        hidden: Tensor = self.word_embeddings(batch.ids)
        if self.position_embeddings is not None:
            positions = batch.position_ids + offset if offset else batch.position_ids
            hidden = hidden + self.position_embeddings(positions)
        if segments is not None:
            hidden = hidden + (segments(batch.segment_ids) if segments.num_embeddings > 1 else segments.weight[0])
        return hidden

    def finish(self, hidden: Tensor, batch: PackedBatch, output_positions: Tensor | None) -> EncoderOutput:
        """Return the output for the hidden states of `encode`."""
        if output_positions is not None:
            hidden = hidden.new_zeros(batch.num_tokens, hidden.shape[1]).index_copy(0, output_positions, hidden)
        return EncoderOutput(hidden, None if self.pooler is None else self.pool(hidden[batch.first_tokens]))

    def pool(self, first: Tensor) -> Tensor:
        """Apply the pooler to the hidden states of first tokens. Shapes (B, H)."""
        assert self.pooler is not None
        return torch.tanh(self.pooler(first))


def _embedding(rows: int, width: int) -> nn.Embedding:
    # On the meta device `nn.Embedding` would import PyTorch's compiler, for 1.5 s, to sample no weights.
    weight = torch.empty(rows, width)
    return nn.Embedding(rows, width, _weight=weight if weight.is_meta else None)
