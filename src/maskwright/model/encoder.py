"""The encoder: embeddings, then layers applied by the plan, over a flat stream (Devlin et al. 2019)."""

import torch
from torch import Tensor, nn

from maskwright.core.row_counts import filled_up
from maskwright.core.tensors import EncoderOutput, FlatBatch
from maskwright.kernels.attention import (
    KEYED_DROPOUT_BACKENDS,
    AttentionPlan,
    Backend,
    choose_backend,
    plan_attention,
)
from maskwright.kernels.cuda.embeddings import embedded
from maskwright.kernels.cuda.embeddings import takes as takes_segments
from maskwright.kernels.cuda.launches import ACTIVATIONS
from maskwright.kernels.cuda.passes import CapturedPasses
from maskwright.kernels.cuda.rounded import Joined, OnGpu, rounded
from maskwright.kernels.cuda.runs import GpuRuns, runs_of, takes_own
from maskwright.kernels.cuda.sublayers import computes_on, fits
from maskwright.kernels.dropout import DropoutKey, dropout, seeded_kernels
from maskwright.kernels.setting import native_kernels_enabled
from maskwright.model.config import EncoderConfig
from maskwright.model.embeddings import sum_embeddings
from maskwright.model.layer import DROPOUT_CALLS, AttentionBlock, FeedForwardBlock
from maskwright.model.rows import cut_into_rows


class Encoder(nn.Module):
    """A post-norm Transformer encoder.

    Dense layers, LayerNorms and dropout see the flat stream (T, H); only attention knows of sequences. The
    module lists hold distinct blocks: which layer uses which is said by `config.layer_plan`. Where code of our own
    computes in training, modules are passed over and their hooks not called.

    Args:
        config: The shape.
        vocab_size: V, rows of the word embeddings.
        backend: How attention is computed; None chooses the fastest for each batch.

    Attributes:
        passes: Captured graphs of forward and backward passes on a GPU, for sizes of batches that come again.
        native_kernels_verified: Whether the Triton kernels passed their check on this GPU; they are not used before.
    """

    def __init__(self, config: EncoderConfig, vocab_size: int, backend: Backend | None = None) -> None:
        super().__init__()
        self.config = config
        self.backend = backend
        self.passes: CapturedPasses | None = None
        self.native_kernels_verified = False
        self._fits: dict[torch.dtype, bool] = {}
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
        drops = key is not None and config.attention_dropout > 0
        backend, dtype = self._backend(batch, drops=drops)
        if backend != "kernels":
            numbers = self._with_numbers(batch, key, drops=drops and backend in KEYED_DROPOUT_BACKENDS)
            hidden = self.layers(batch, plan_attention(batch, backend, dtype), numbers, read)
        else:
            # FlashAttention draws masks of its own, all layers' one after the other; it has no keys.
            seeds = key if drops and not takes_own(batch.row_length or 0, config.head_size) else None
            with seeded_kernels(seeds, 0):
                captured = None if self.passes is None else self.passes(batch, key, read)
                hidden = self._forward_native(batch, runs_of(batch), key, read) if captured is None else captured
        if read is None:
            return hidden
        return hidden.new_zeros(len(batch.ids), config.hidden_size).index_copy(0, read, hidden)

    def _with_numbers(self, batch: FlatBatch, key: DropoutKey | None, *, drops: bool) -> DropoutKey | None:
        # On a processor one call's random numbers are some twenty small operations: all calls' are made at once.
        if key is None or batch.row_slots is None or batch.ids.device.type != "cpu":
            return key
        if not drops and not self.config.hidden_dropout:
            return key
        return key.with_table(*numbers_of_dropout(self.config, batch, drops=drops))

    def uses_native_kernels(self, device: torch.device, dtype: torch.dtype) -> bool:
        """Return whether native kernels compute the layers: in training on a GPU, under autocast to bfloat16.

        Args:
            device: Where.
            dtype: Precision of the products.
        """
        if not (computes_on(device, dtype) and torch.is_autocast_enabled(device.type) and torch.is_grad_enabled()):
            return False
        kept = self.word_embeddings.weight.dtype
        if kept not in self._fits:
            blocks = (*self.attention_blocks, *self.ffn_blocks)
            its = fits(self.embedding_norm, *(each for block in blocks for each in block.children()))
            self._fits[kept] = its and self.config.hidden_activation in ACTIVATIONS
        return self._fits[kept] and native_kernels_enabled() and self.native_kernels_verified

    def capture_passes(self) -> None:
        """Let passes that come again be captured as CUDA graphs and replayed, where our own kernels compute them."""
        self.passes = CapturedPasses(self._forward_native, self)

    def _forward_native(self, batch: FlatBatch, runs: GpuRuns, key: DropoutKey | None, read: Tensor | None) -> Tensor:
        assert batch.row_length is not None
        blocks = [each for each in self.modules() if isinstance(each, AttentionBlock | FeedForwardBlock)]
        products = [each.products() for each in blocks]
        weights = iter(rounded(together for each in products for together in each))
        of_blocks: dict[nn.Module, list[Joined]] = {
            block: [next(weights) for _ in each] for block, each in zip(blocks, products, strict=True)
        }
        plan = AttentionPlan("kernels", batch.row_length, on_gpu=OnGpu(runs, of_blocks))
        # The random numbers of all calls at once.
        drops = self.config.attention_dropout > 0 and takes_own(batch.row_length or 0, self.config.head_size)
        table = None if key is None else key.with_table(*numbers_of_dropout(self.config, batch, drops=drops))
        return self.layers(batch, plan, table, read)

    def layers(self, batch: FlatBatch, plan: AttentionPlan, key: DropoutKey | None, read: Tensor | None) -> Tensor:
        """Compute embeddings and all layers.

        Args:
            batch: A batch cut into rows.
            plan: How it attends.
            key: Of the dropout masks; None drops nothing.
            read: As in `forward`.

        Returns:
            Shape (T, H), or (W, H): of what is read.
        """
        config = self.config
        hidden = self._embed(batch, key, on_gpu=plan.on_gpu is not None)
        if self.embedding_projection is not None:
            hidden = self.embedding_projection(hidden)
        for layer, (attention, ffn) in enumerate(zip(self._attention_plan, self._ffn_plan, strict=True)):
            call = 1 + DROPOUT_CALLS * layer
            chosen = read if layer == config.num_layers - 1 else None
            hidden = self.attention_blocks[attention](hidden, plan, key, call, chosen)
            hidden = self.ffn_blocks[ffn](hidden, key, call + 2, plan=plan)
        return hidden

    def _embed(self, batch: FlatBatch, key: DropoutKey | None, *, on_gpu: bool) -> Tensor:
        config = self.config
        tables = self.word_embeddings, self.position_embeddings, self.segment_embeddings
        if on_gpu and takes_segments(self.segment_embeddings):
            return embedded(
                batch,
                *tables,
                self.embedding_norm,
                position_offset=config.position_offset,
                rate=config.hidden_dropout,
                key=key,
                call=0,
            )
        summed = self.embedding_norm(sum_embeddings(batch, *tables, config.position_offset))
        return dropout(summed, config.hidden_dropout, key, 0)

    def _backend(self, batch: FlatBatch, *, drops: bool) -> tuple[Backend, torch.dtype]:
        weight = self.word_embeddings.weight
        kind = weight.device.type
        # Autocast leaves fp64 as it is.
        casts = torch.is_autocast_enabled(kind) and weight.dtype != torch.float64
        dtype = torch.get_autocast_dtype(kind) if casts else weight.dtype
        assert batch.row_length is not None
        if self.backend is not None:
            return self.backend, dtype
        if batch.row_slots is not None and self.uses_native_kernels(weight.device, dtype):
            return "kernels", dtype
        return choose_backend(batch.row_length, kind, dtype, drops=drops), dtype


def numbers_of_dropout(config: EncoderConfig, batch: FlatBatch, *, drops: bool) -> tuple[int, int]:
    """Return how many dropout calls a pass over a stream makes, and the values of the largest.

    Args:
        config: The encoder's shape.
        batch: The stream.
        drops: Whether attention drops probabilities by the key, of whole rows' pairs.
    """
    assert batch.num_rows is not None
    assert batch.row_length is not None
    squares = batch.num_rows * config.num_heads * batch.row_length**2 if drops else 0
    values = len(batch.ids) * max(config.hidden_size, config.embedding_width)
    return 1 + DROPOUT_CALLS * config.num_layers, max(values, squares)
