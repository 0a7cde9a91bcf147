"""The encoder: embeddings, then layers in the order of the plan, over packed sequences (Devlin et al. 2019)."""

import torch
from torch import Tensor, nn

from maskwright.core.tensors import EncoderOutput, PackedBatch
from maskwright.kernels import ops
from maskwright.model.config import EncoderConfig
from maskwright.model.layer import DROPOUT_CALLS, AttentionBlock, FeedForwardBlock


class Encoder(nn.Module):
    """A post-norm Transformer encoder.

    Dense layers, LayerNorms and dropout see all tokens (T, H); only attention separates sequences. The module lists
    hold distinct blocks; `config.layer_plan` says which layer uses which.

    Args:
        config: The shape.
        vocab_size: V, rows of the word embeddings.
    """

    def __init__(self, config: EncoderConfig, vocab_size: int) -> None:
        super().__init__()
        self.config = config
        width, hidden = config.embedding_width, config.hidden_size
        self.word_embeddings = nn.Embedding(vocab_size, width)
        self.position_embeddings = nn.Embedding(config.position_offset + config.max_positions, width)
        self.segment_embeddings = nn.Embedding(config.type_vocab_size, width) if config.type_vocab_size else None
        self.embedding_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.embedding_projection = nn.Linear(width, hidden) if config.projects_embeddings else None
        self.plan = tuple(zip(config.layer_plan("attention"), config.layer_plan("ffn"), strict=True))
        self.attention_blocks = nn.ModuleList(AttentionBlock(config) for _ in set(config.layer_plan("attention")))
        self.ffn_blocks = nn.ModuleList(FeedForwardBlock(config) for _ in set(config.layer_plan("ffn")))
        self.pooler = nn.Linear(hidden, hidden) if config.pooler else None

    @property
    def head_size(self) -> int:
        """Width of an attention head."""
        return self.config.head_size

    def forward(self, batch: PackedBatch, output_positions: Tensor | None = None) -> EncoderOutput:
        """Encode a batch. Dropout is applied in training mode if the batch has a key.

        With output positions, the last layer attends from and to all tokens, but computes what follows the attention
        at those positions only. Their hidden states and all gradients stay the same, except for the hidden dropout
        behind that attention: its masks are keyed by the place among the output positions, since generating those of
        all tokens would cost most of what is saved.

        Args:
            batch: T tokens of B sequences.
            output_positions: Shape (W,), int64, the tokens whose hidden states are used, each once; with a pooler each
                sequence's first token must be among them. None for all.

        Returns:
            Hidden states of all tokens; those of other than the output positions are zero.
        """
        return self.finish(self.encode(batch, output_positions), batch, output_positions)

    def encode(self, batch: PackedBatch, output_positions: Tensor | None) -> Tensor:
        """Return the last hidden states of the output positions, shape (W, H), or of all tokens, (T, H)."""
        config, count = self.config, batch.num_tokens if output_positions is None else len(output_positions)
        batch = ops.pad_rows(batch)
        output_positions = None if output_positions is None else ops.pad_positions(output_positions)
        key = batch.dropout_key if self.training else None
        dropout = ops.DropoutKey(key, batch.ids.device, num_calls=1 + DROPOUT_CALLS * config.num_layers)
        sequences = ops.Sequences(batch.cu_seqlens, batch.max_seqlen)
        hidden = self.embed(batch, dropout.mask(0, config.hidden_dropout))
        for layer, (attention, ffn) in enumerate(self.plan):
            call = 1 + DROPOUT_CALLS * layer
            chosen = output_positions if layer == config.num_layers - 1 else None
            hidden = self.attention_blocks[attention](hidden, sequences, dropout, call, chosen)
            hidden = self.ffn_blocks[ffn](hidden, dropout, call + 2)
        return hidden[:count]

    def embed(self, batch: PackedBatch, dropout: ops.DropoutMask | None) -> Tensor:
        """Return the input of the first layer, shape (T, H): what a token brings, projected to H if need be."""
        offset = self.config.position_offset
        hidden = ops.embeddings(
            batch.ids,
            batch.position_ids + offset if offset else batch.position_ids,
            batch.segment_ids,
            self.word_embeddings,
            self.position_embeddings,
            self.segment_embeddings,
            self.embedding_norm,
            dropout,
        )
        return hidden if self.embedding_projection is None else self.embedding_projection(hidden)

    def finish(self, hidden: Tensor, batch: PackedBatch, output_positions: Tensor | None) -> EncoderOutput:
        """Return the output for the hidden states of `encode`."""
        if output_positions is not None:
            hidden = hidden.new_zeros(batch.num_tokens, hidden.shape[1]).index_copy(0, output_positions, hidden)
        return EncoderOutput(hidden, None if self.pooler is None else self.pool(hidden[batch.first_tokens]))

    def pool(self, first: Tensor) -> Tensor:
        """Apply the pooler to the hidden states of first tokens. Shapes (B, H)."""
        assert self.pooler is not None
        return torch.tanh(self.pooler(first))
