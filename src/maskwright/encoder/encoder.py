"""The encoder: embeddings, then layers applied by the plan, over a flat stream (Devlin et al. 2019)."""

import torch
from torch import Tensor, nn

from maskwright.core.row_counts import filled_up
from maskwright.core.tensors import EncoderOutput, FlatBatch
from maskwright.encoder.attention import Backend, choose_backend, plan_attention, share_of_pairs
from maskwright.encoder.block import DROPOUT_CALLS, AttentionBlock, FeedForwardBlock
from maskwright.encoder.config import EncoderConfig
from maskwright.encoder.dropout import DropoutKey, dropout
from maskwright.encoder.embeddings import sum_embeddings
from maskwright.encoder.rows import cut_into_rows


class Encoder(nn.Module):
    """A post-norm Transformer encoder.

    Dense layers, LayerNorms and dropout see the flat stream (T, H); only attention knows of sequences. The
    module lists hold distinct blocks: which layer uses which is said by `config.layer_plan`.

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
        self.attention_blocks = nn.ModuleList(
            AttentionBlock(config, is_shared=self._attention_plan.count(number) > 1)
            for number in sorted(set(self._attention_plan))
        )
        self.ffn_blocks = nn.ModuleList(
            FeedForwardBlock(config, is_shared=self._ffn_plan.count(number) > 1)
            for number in sorted(set(self._ffn_plan))
        )
        self.pooler = nn.Linear(hidden, hidden) if config.pooler else None

    def forward(self, batch: FlatBatch, read: Tensor | None = None) -> EncoderOutput:
        """Encode a flat batch. Dropout is applied in training mode if the batch has a key.

        The last layer need not transform tokens that nobody reads: with `read` it attends from all tokens, and
        everything behind the attention sees those only. What is read, and every gradient, stays the same, but for
        the hidden dropout behind that attention: its masks are keyed by the place among what is read, since drawing
        those of all tokens would cost most of what is spared.

        Args:
            batch: Ids, positions and segments of T tokens. A batch in rows is used as it is; another is cut
                into rows of one sequence each.
            read: Shape (W,), int64, the offsets whose hidden states are read, each once; with a pooler each
                sequence's first token must be among them. None reads all.

        Returns:
            Hidden states in the order of the batch's tokens. Those at filler slots are finite and mean
            nothing; those that are not read are zero, or finite and mean nothing.
        """
        key = None
        if self.training and batch.dropout_key is not None:
            key = DropoutKey.on(batch.ids.device, batch.dropout_key)
        if batch.row_length is None:
            cut = cut_into_rows(batch)
            first_tokens = batch.first_tokens
            hidden = self._encode(cut.batch, key, None)[cut.places]
        else:
            first_tokens = batch.first_tokens
            hidden = self._encode(batch, key, read)
        return self.pooled(hidden, first_tokens)

    def pooled(self, hidden: Tensor, first_tokens: Tensor) -> EncoderOutput:
        """Put beside hidden states (T, H) the pooled vectors (B, H) of first tokens (B,), if there is a pooler."""
        if self.pooler is None:
            return EncoderOutput(hidden, None)
        # In training the number of sequences differs from one micro-batch to the next.
        first = filled_up(first_tokens) if self.training else first_tokens
        return EncoderOutput(hidden, torch.tanh(self.pooler(hidden[first])[: len(first_tokens)]))

    def _encode(self, batch: FlatBatch, key: DropoutKey | None, read: Tensor | None) -> Tensor:
        config = self.config
        plan = plan_attention(batch, *self._backend(batch, drops=key is not None and config.attention_dropout > 0))
        hidden: Tensor = self.embedding_norm(
            sum_embeddings(
                batch,
                self.word_embeddings,
                self.position_embeddings,
                self.segment_embeddings,
                config.position_offset,
            )
        )
        hidden = dropout(hidden, config.hidden_dropout, key, 0)
        if self.embedding_projection is not None:
            hidden = self.embedding_projection(hidden)
        for layer, (attention, ffn) in enumerate(zip(self._attention_plan, self._ffn_plan, strict=True)):
            call = 1 + DROPOUT_CALLS * layer
            chosen = read if layer == config.num_layers - 1 else None
            hidden = self.attention_blocks[attention](hidden, plan, key, call, chosen)
            hidden = self.ffn_blocks[ffn](hidden, key, call + 2)
        if read is None:
            return hidden
        return hidden.new_zeros(len(batch.ids), config.hidden_size).index_copy(0, read, hidden)

    def _backend(self, batch: FlatBatch, *, drops: bool) -> tuple[Backend, torch.dtype]:
        weight = self.word_embeddings.weight
        kind = weight.device.type
        # Autocast leaves fp64 as it is.
        casts = torch.is_autocast_enabled(kind) and weight.dtype != torch.float64
        dtype = torch.get_autocast_dtype(kind) if casts else weight.dtype
        assert batch.row_length is not None
        if self.backend is not None:
            return self.backend, dtype
        head_size = self.config.hidden_size // self.config.num_heads
        pairs = share_of_pairs(batch, dtype)
        chosen = choose_backend(batch.row_length, kind, dtype, drops=drops, head_size=head_size, pairs=pairs)
        return chosen, dtype
