"""Initial weights of a student with smaller layers than its teacher's, on the principal axes of the teacher's states.

The student's hidden states stand for the teacher's on the axes along which these vary most over a sample of text.
Inputs of layers are projected as SliceGPT does (Ashkboos et al. 2024, arXiv:2401.15024). Its exact rotation needs norms
without gains: here LayerNorms and the outputs of sublayers are fitted to the teacher's by least squares, which also
replaces the heads and inner units that are left out.

T tokens; H and S hidden sizes of teacher and student.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn

from maskwright.checkpoints.checkpoint import EncoderWithHeads
from maskwright.core.tensors import PackedBatch
from maskwright.kernels import ops
from maskwright.model.config import EncoderConfig
from maskwright.model.encoder import Encoder
from maskwright.model.sublayers import FeedForward, SelfAttention

_RIDGE = 1e-3
"""Share of the inputs' mean square that is added to each: inputs that hardly vary get small weights."""
_SMALLEST = 1e-6
"""Added to variances, so that inputs which do not vary at all have no weight."""


@torch.no_grad()
def project_weights(
    config: EncoderConfig, teacher: EncoderWithHeads, layers: Sequence[int], batches: Sequence[PackedBatch]
) -> dict[str, Tensor]:
    """Return the weights of a student by their names in a run, on the teacher's device.

    Args:
        config: The student's shape. Both encoders are post-norm, with position tables and feed-forward layers without
            gates, and their heads have the same size.
        teacher: With a linear layer or the identity as a head for sentence vectors, the student gets one too.
        layers: The teacher's layer from which each of the student's is made, ascending.
        batches: A sample of text, some thousands of tokens.
    """
    encoder, width = teacher.encoder, config.hidden_size
    if not teacher.sees_segments:
        batches = [replace(each, segment_ids=torch.zeros_like(each.segment_ids)) for each in batches]
    sums = torch.cat([encoder.sum_embeddings(each) for each in batches])
    embedded = hidden = encoder.embedding_norm(sums)
    inputs, moments = dict[int, Tensor](), hidden.T @ hidden
    for layer in range(max(layers) + 1):
        computed = _compute(encoder, layer, hidden, batches)
        if layer in layers:
            inputs[layer] = hidden
            moments += computed.attended.T @ computed.attended + computed.hidden.T @ computed.hidden
        hidden = computed.hidden
    axes = torch.linalg.eigh(moments.double())[1][:, -width:].float()
    axes *= axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()  # Eigenvectors have no sign of their own.
    if width == encoder.config.hidden_size:
        axes = torch.eye(width, device=axes.device)
    weights = {f"{name}_embeddings.weight": table @ axes for name, table in _tables(config, encoder).items()}
    weights |= _fit_norm("embedding_norm", sums @ axes, embedded @ axes)
    blocks = zip(config.layer_plan("attention"), config.layer_plan("ffn"), layers, strict=True)
    for attention_block, ffn_block, layer in reversed(list(blocks)):  # A shared block is the first of its layers'.
        computed = _compute(encoder, layer, inputs[layer], batches)
        weights |= _project_attention(f"attention_blocks.{attention_block}", config, encoder, layer, computed, axes)
        weights |= _project_ffn(f"ffn_blocks.{ffn_block}", config, encoder, layer, computed, axes)
    weights = {f"encoder.{name}": tensor for name, tensor in weights.items()}
    if (head := teacher.heads.get("sentence_vectors")) is not None:
        linear = isinstance(head, nn.Linear)
        weight = cast(nn.Linear, head).weight @ axes if linear else axes
        weights["heads.sentence_vectors.weight"] = weight
        bias = cast(nn.Linear, head).bias if linear else None
        weights["heads.sentence_vectors.bias"] = weight.new_zeros(len(weight)) if bias is None else bias
    return weights


@dataclass(frozen=True, slots=True, eq=False)
class _LayerStates:
    """Intermediate results of a teacher layer: `context` is the input of attention's output layer, `inner` that of the
    feed-forward layer's, the sums are those that the norms see. Shapes (T, H), inner (T, inner size)."""

    context: Tensor
    attended_sum: Tensor
    attended: Tensor
    inner: Tensor
    hidden_sum: Tensor
    hidden: Tensor


def _sublayers(encoder: Encoder, layer: int) -> tuple[SelfAttention, FeedForward]:
    attention, ffn = encoder.plan[layer]
    return cast(SelfAttention, encoder.attention_blocks[attention]), cast(FeedForward, encoder.ffn_blocks[ffn])


def _compute(encoder: Encoder, layer: int, hidden: Tensor, batches: Sequence[PackedBatch]) -> _LayerStates:
    attention, ffn = _sublayers(encoder, layer)
    assert attention.norm is not None
    assert ffn.norm is not None
    config, sizes = encoder.config, [each.num_tokens for each in batches]
    queries, keys, values = (torch.split(each, sizes) for each in attention.project(hidden))
    sequences = [ops.Sequences(each.cu_seqlens, each.max_seqlen) for each in batches]
    parts = zip(queries, keys, values, sequences, strict=True)
    context = torch.cat([ops.attention(*each, num_heads=config.num_heads) for each in parts])
    attended_sum = attention.output(context) + hidden
    attended = attention.norm(attended_sum)
    inner = ops.activation(config.hidden_activation, ffn.dense_in(attended))
    hidden_sum = ffn.dense_out(inner) + attended
    return _LayerStates(context, attended_sum, attended, inner, hidden_sum, ffn.norm(hidden_sum))


def _tables(config: EncoderConfig, encoder: Encoder) -> dict[str, Tensor]:
    """Return the embeddings that the student has; without segments, its positions include the teacher's segment 0."""
    positions, segments = encoder.position_embeddings, encoder.segment_embeddings
    assert positions is not None
    table = positions.weight[: config.position_offset + config.max_positions]
    tables = {"word": encoder.word_embeddings.weight, "position": table}
    if segments is not None:
        tables |= {"segment": segments.weight} if config.type_vocab_size else {"position": table + segments.weight[0]}
    return tables


def _project_attention(
    block: str, config: EncoderConfig, encoder: Encoder, layer: int, states: _LayerStates, axes: Tensor
) -> dict[str, Tensor]:
    attention, size = _sublayers(encoder, layer)[0], config.head_size
    # The heads that contribute most.
    heads = zip(torch.split(states.context, size, 1), torch.split(attention.output.weight, size, 1), strict=True)
    contributions = torch.stack([(context @ weight.T).square().mean() for context, weight in heads])
    kept = contributions.topk(config.num_heads).indices.sort().values
    rows = (kept[:, None] * size + torch.arange(size, device=kept.device)).flatten()
    weights = dict[str, Tensor]()
    for name in ("query", "key", "value"):
        layer_in = cast(nn.Linear, getattr(attention, name))
        weights |= {
            f"{block}.{name}.weight": (layer_in.weight @ axes)[rows],
            f"{block}.{name}.bias": layer_in.bias[rows],
        }
    weights |= _fit_linear(f"{block}.output", states.context[:, rows], attention.output(states.context) @ axes)
    return weights | _fit_norm(f"{block}.norm", states.attended_sum @ axes, states.attended @ axes)


def _project_ffn(
    block: str, config: EncoderConfig, encoder: Encoder, layer: int, states: _LayerStates, axes: Tensor
) -> dict[str, Tensor]:
    ffn = _sublayers(encoder, layer)[1]
    contributions = states.inner.square().mean(0) * ffn.dense_out.weight.square().sum(0)
    units = contributions.topk(config.intermediate_size).indices.sort().values
    weights = {
        f"{block}.dense_in.weight": (ffn.dense_in.weight @ axes)[units],
        f"{block}.dense_in.bias": ffn.dense_in.bias[units],
    }
    weights |= _fit_linear(f"{block}.dense_out", states.inner[:, units], ffn.dense_out(states.inner) @ axes)
    return weights | _fit_norm(f"{block}.norm", states.hidden_sum @ axes, states.hidden @ axes)


def _fit_linear(name: str, inputs: Tensor, outputs: Tensor) -> dict[str, Tensor]:
    """Fit a linear layer by ridge regression. Shapes (T, n), (T, m)."""
    mean_in, mean_out = inputs.mean(0), outputs.mean(0)
    centered = (inputs - mean_in).double()
    moments = centered.T @ centered
    moments.diagonal().add_(_RIDGE * moments.diagonal().mean() + _SMALLEST)
    weight = torch.linalg.solve(moments, centered.T @ (outputs - mean_out).double()).T.float()
    return {f"{name}.weight": weight, f"{name}.bias": mean_out - weight @ mean_in}


def _fit_norm(name: str, sums: Tensor, outputs: Tensor) -> dict[str, Tensor]:
    """Fit gain and bias of a LayerNorm, each feature by itself. Shapes (T, S)."""
    normalized = nn.functional.layer_norm(sums, sums.shape[1:])
    mean_in, mean_out = normalized.mean(0), outputs.mean(0)
    centered = normalized - mean_in
    gain = (centered * (outputs - mean_out)).mean(0) / (centered.square().mean(0) + _SMALLEST)
    return {f"{name}.weight": gain, f"{name}.bias": mean_out - gain * mean_in}
