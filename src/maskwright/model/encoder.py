"""The encoder: embeddings, then layers in the order of the plan, over packed sequences (Devlin et al. 2019)."""

import torch
from torch import Tensor, nn

from maskwright.core.tensors import EncoderOutput, PackedBatch
from maskwright.kernels.attention import AttentionPlan, Backend, choose_backend, plan_attention
from maskwright.kernels.dropout import DropoutKey, dropout
from maskwright.model.config import EncoderConfig
from maskwright.model.embeddings import sum_embeddings
from maskwright.model.layer import DROPOUT_CALLS, AttentionBlock, FeedForwardBlock


class Encoder(nn.Module):
    """A post-norm Transformer encoder.

    Dense layers, LayerNorms and dropout see all tokens (T, H); only attention separates sequences. The module lists
    hold distinct blocks; `config.layer_plan` says which layer uses which.

    Args:
        config: The shape.
        vocab_size: V, rows of the word embeddings.
        backend: How attention is computed; None chooses the fastest for each batch.
    """

    def __init__(self, config: EncoderConfig, vocab_size: int, backend: Backend | None = None) -> None:
        super().__init__()
        self.config = config
        self.backend = backend
        width, hidden = config.embedding_width, config.hidden_size
        self.word_embeddings = nn.Embedding(vocab_size, width)
        self.position_embeddings = nn.Embedding(config.position_offset + config.max_positions, width)
        self.segment_embeddings = nn.Embedding(config.type_vocab_size, width) if config.type_vocab_size else None
        self.embedding_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.embedding_projection = nn.Linear(width, hidden) if config.projects_embeddings else None
        self._attention_plan = config.layer_plan("attention")
        self._ffn_plan = config.layer_plan("ffn")
        self.attention_blocks = nn.ModuleList(AttentionBlock(config) for _ in set(self._attention_plan))
        self.ffn_blocks = nn.ModuleList(FeedForwardBlock(config) for _ in set(self._ffn_plan))
        self.pooler = nn.Linear(hidden, hidden) if config.pooler else None

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
        key = None
        if self.training and batch.dropout_key is not None:
            key = DropoutKey.on(batch.ids.device, batch.dropout_key)
        plan = self._plan(batch, drops=key is not None and self.config.attention_dropout > 0)
        hidden = self._embed(batch, key)
        for layer, (attention, ffn) in enumerate(zip(self._attention_plan, self._ffn_plan, strict=True)):
            call = 1 + DROPOUT_CALLS * layer
            chosen = output_positions if layer == self.config.num_layers - 1 else None
            hidden = self.attention_blocks[attention](hidden, plan, key, call, chosen)
            hidden = self.ffn_blocks[ffn](hidden, key, call + 2)
        if output_positions is not None:
            hidden = hidden.new_zeros(batch.num_tokens, hidden.shape[1]).index_copy(0, output_positions, hidden)
        return EncoderOutput(hidden, None if self.pooler is None else self.pool(hidden[batch.first_tokens]))

    def pool(self, first: Tensor) -> Tensor:
        """Apply the pooler to the hidden states of first tokens. Shapes (B, H)."""
        assert self.pooler is not None
        return torch.tanh(self.pooler(first))

    def _embed(self, batch: PackedBatch, key: DropoutKey | None) -> Tensor:
        tables = self.word_embeddings, self.position_embeddings, self.segment_embeddings
        summed = self.embedding_norm(sum_embeddings(batch, *tables, self.config.position_offset))
        hidden = dropout(summed, self.config.hidden_dropout, key, 0)
        return hidden if self.embedding_projection is None else self.embedding_projection(hidden)

    def _plan(self, batch: PackedBatch, *, drops: bool) -> AttentionPlan:
        weight = self.word_embeddings.weight
        kind = weight.device.type
        # Autocast leaves fp64 as it is.
        casts = torch.is_autocast_enabled(kind) and weight.dtype != torch.float64
        dtype = torch.get_autocast_dtype(kind) if casts else weight.dtype
        return plan_attention(batch, self.backend or choose_backend(batch.max_seqlen, kind, dtype, drops=drops), dtype)
