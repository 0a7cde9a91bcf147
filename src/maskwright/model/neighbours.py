"""A beginning for short runs: the first layer's heads already look at a token's neighbours.

Where attention begins at random, a model must first find out which positions lie side by side, and until then it
knows nothing but how frequent words are: small models stay there for millions of tokens (LOG.md). Here the position
table begins as waves, and the first layer's queries and keys as turns of those waves, so that head 0 looks at the token
before, head 1 at the one behind, head 2 at the second before, and so on. Everything stays free to change, and the
shape of the model is the same.

Sinusoids as positions are Vaswani et al.'s (2017, section 3.5); first weights that imitate the attention of trained
models are Trockman and Kolter's (2023, "Mimetic Initialization of Self-Attention Layers"). The offsets are our own.
"""

import math

import torch
from torch import Tensor

from maskwright.model.encoder import Encoder
from maskwright.model.layer import AttentionBlock

NEIGHBOUR_SCORE = 6.0
"""Attention score of the wanted neighbour above all others, in nats: about half of a head's attention is then there."""


def look_at_neighbours(encoder: Encoder) -> None:
    """Let an encoder whose weights have just been drawn begin with its first layer's heads at neighbouring tokens.

    The drawn weights stay below what is added to them, so that no two heads or seeds are alike. Where the
    embeddings are widened, the dense layer between begins with orthogonal columns of the drawn size, since the waves
    must pass through it; where they are narrowed (a small generator's), it begins by passing some of the waves.

    Args:
        encoder: Changed in place: the position table, the first layer's query and key weights, and the dense layer
            after the embeddings if there is one.
    """
    with torch.no_grad():
        table = encoder.position_embeddings.weight
        angles = _angles(table.shape[1])
        first = encoder.config.position_offset  # Rows before it belong to RoBERTa's padding.
        spread = float(table[first:].std())
        table[first:] = spread * _waves(len(table) - first, table.shape[1], angles)
        waves, back = torch.arange(len(angles)), None
        if encoder.embedding_projection is not None:
            weight = encoder.embedding_projection.weight
            waves = _passing_waves(*weight.shape)
            weight.copy_(_passing_through(weight, waves))
            back = weight.T / weight.square().sum(0 if weight.shape[0] >= weight.shape[1] else 1).mean()
        block = encoder.attention_blocks[encoder.config.layer_plan("attention")[0]]
        assert isinstance(block, AttentionBlock)
        # Words, positions and segments begin with one spread, so that positions are that share of what LayerNorm gives.
        share = 1 / (2 if encoder.segment_embeddings is None else 3)
        _turn_heads(block, encoder.config.num_heads, angles, waves, share, back)


def offsets(num_heads: int) -> tuple[int, ...]:
    """Say where each head looks: -1, 1, -2, 2, ... tokens away.

    Example:
        >>> offsets(4)
        (-1, 1, -2, 2)
    """
    return tuple((head // 2 + 1) * (1 if head % 2 else -1) for head in range(num_heads))


def _angles(width: int) -> Tensor:
    """Turn of each wave from one position to the next, in radians, spread over (0, pi). Shape (width // 2,).

    Turns spread so cancel out between any two different positions, so that a head sees one place and not a region.
    They are drawn, one in each stretch, since evenly spaced ones would make positions alike that lie far apart.
    """
    count = width // 2
    return math.pi * (torch.arange(count) + _between(count, 0)) / max(1, count)


def _between(count: int, number: int) -> Tensor:
    """The same numbers in [0, 1) for every model, whatever its seed."""
    return torch.rand(count, generator=torch.Generator().manual_seed(number), dtype=torch.float64)


def _waves(positions: int, width: int, angles: Tensor) -> Tensor:
    """Cosine and sine of each wave side by side, at a standard deviation of 1. Shape (positions, width)."""
    turned = torch.arange(positions, dtype=torch.float64)[:, None] * angles
    waves = torch.zeros(positions, width, dtype=torch.float64)
    waves[:, 0 : 2 * len(angles) : 2] = turned.cos()
    waves[:, 1 : 2 * len(angles) : 2] = turned.sin()
    return (waves * math.sqrt(2)).float()


def _turn_heads(
    block: AttentionBlock, num_heads: int, angles: Tensor, waves: Tensor, share: float, back: Tensor | None
) -> None:
    """Add to each head's keys some of the waves, and to its queries the same waves turned by the head's offset.

    Args:
        block: The first layer's attention.
        num_heads: N.
        angles: From `_angles`.
        waves: Numbers of the waves that reach the layer.
        share: Part of the variance of what the layer reads that is positions'.
        back: Shape (E, H), leads from hidden states back to embeddings; None where they are the same.
    """
    width = block.key.weight.shape[1] if back is None else len(back)
    head_size = len(block.key.weight) // num_heads
    count = min(head_size // 2, len(waves))
    if not count:
        return
    # At the neighbour, each wave adds scale^2 x 2 x share to the product of query and key.
    scale = math.sqrt(NEIGHBOUR_SCORE * math.sqrt(head_size) / (2 * share * count))
    for head, offset in enumerate(offsets(num_heads)):
        # One wave of each stretch, another one in every head.
        stretch = len(waves) / count
        chosen = waves[((torch.arange(count) + _between(count, 1 + head)) * stretch).long().clamp_max(len(waves) - 1)]
        rows, cosines, sines = 2 * torch.arange(count), 2 * chosen, 2 * chosen + 1
        key, query = torch.zeros(2 * count, width), torch.zeros(2 * count, width)
        key[rows, cosines] = key[rows + 1, sines] = 1.0
        turn = (angles[chosen] * offset).float()
        query[rows, cosines] = query[rows + 1, sines] = turn.cos()
        query[rows, sines], query[rows + 1, cosines] = -turn.sin(), turn.sin()
        if back is not None:
            key, query = key @ back, query @ back
        own = slice(head * head_size, head * head_size + 2 * count)
        block.key.weight[own] += scale * key
        block.query.weight[own] += scale * query


def _passing_waves(hidden: int, width: int) -> Tensor:
    """Numbers of the waves that pass a dense layer from `width` to `hidden`: as many as there is room for."""
    count = min(hidden, width) // 2
    return ((torch.arange(count) + 0.5) * (width // 2) / max(1, count)).long()


def _passing_through(weight: Tensor, waves: Tensor) -> Tensor:
    """A matrix of the same spread through which the waves pass undistorted. Shape (H, E), as `weight`.

    Its columns are orthogonal and equally long; where it narrows, its rows are, each of one coordinate of a wave.
    """
    length = weight.std() * math.sqrt(max(weight.shape))
    if weight.shape[0] >= weight.shape[1]:
        directions: Tensor = torch.linalg.qr(weight.double()).Q
        return directions.to(weight.dtype) * length
    passing = weight.clone()
    passing[: 2 * len(waves)] = 0
    rows = torch.arange(len(waves))
    passing[2 * rows, 2 * waves] = passing[2 * rows + 1, 2 * waves + 1] = length
    return passing
