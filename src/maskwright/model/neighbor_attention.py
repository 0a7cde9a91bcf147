"""Initial weights with which the first layer attends to neighboring tokens, for short runs.

From random weights a model must first learn which positions are adjacent, and until then it knows only how frequent
words are: small models stay there for millions of tokens (LOG.md). Here the position table starts as sinusoids, and the
first layer's queries and keys as rotations of them, so that head 0 attends to the previous token, head 1 to the next
one, head 2 to the second before, and so on. All weights stay trainable.

Sinusoids as positions: Vaswani et al. (2017, section 3.5). Initial weights that imitate the attention of trained
models: Trockman and Kolter (2023), "Mimetic Initialization of Self-Attention Layers". The offsets are of this package.

E embedding size, H hidden size.
"""

import math

import torch
from torch import Tensor

from maskwright.model.encoder import Encoder
from maskwright.model.sublayers import SelfAttention

NEIGHBOR_SCORE = 6.0
"""Attention score of the intended neighbor above all others, in nats: it gets about half of a head's attention. With
rotary positions it is the score of each frequency."""
_FREQUENCIES = 4
"""Rotary frequencies of a head, the highest ones, that find its neighbor."""


def attend_to_neighbors(encoder: Encoder) -> None:
    """Change the random initial weights of an encoder, in place, so that its first layer attends to neighbors.

    The random weights of queries and keys stay and the rotations are added, so that heads and seeds differ. A dense
    layer that widens the embeddings gets orthogonal columns of the same scale, so that the sinusoids pass through; one
    that narrows them (a small generator's) passes some of the sinusoids.
    """
    with torch.no_grad():
        if encoder.position_embeddings is None:
            _attend_by_rotation(encoder)
            return
        table = encoder.position_embeddings.weight
        angles = _angles(table.shape[1])
        first = encoder.config.position_offset  # Rows before it belong to RoBERTa's padding.
        deviation = float(table[first:].std())
        table[first:] = deviation * _sinusoids(len(table) - first, table.shape[1], angles)
        passed, back = torch.arange(len(angles)), None
        if encoder.embedding_projection is not None:
            weight = encoder.embedding_projection.weight
            passed = _passed_sinusoids(*weight.shape)
            weight.copy_(_passing_projection(weight, passed))
            back = weight.T / weight.square().sum(0 if weight.shape[0] >= weight.shape[1] else 1).mean()
        attention = encoder.attention_blocks[encoder.config.layer_plan("attention")[0]]
        assert isinstance(attention, SelfAttention)
        # Words, positions and segments start with one standard deviation: the positions' share of LayerNorm's variance.
        share = 1 / (2 if encoder.segment_embeddings is None else 3)
        _rotate_heads(attention, encoder.config.num_heads, angles, passed, share, back)


def _attend_by_rotation(encoder: Encoder) -> None:
    """Make the first layer attend to neighbors by its rotary positions, which have no table to shape.

    One vector is added to all word embeddings, so that every token has a known component. Head h's keys read it into
    the fastest rotating pairs, its queries read it rotated by the head's offset; the score of two tokens then adds
    `NEIGHBOR_SCORE` times the sum over these frequencies of cos(frequency (distance - offset)). In the output layer,
    whose matrix is the word embeddings, the vector changes all logits alike. Calling it twice changes nothing, since
    a generator may share the embeddings.
    """
    config, table = encoder.config, encoder.word_embeddings.weight
    size = config.embedding_width
    direction = torch.randn(size, generator=torch.Generator().manual_seed(0))
    direction -= direction.mean()
    direction = (direction / direction.norm()).to(table)
    length = float(table.std(0).mean()) * math.sqrt(size)
    table += (length - (table @ direction).mean()) * direction
    # The share of LayerNorm's variance: words, the vector and perhaps segments have one standard deviation.
    share = 1 / (2 if encoder.segment_embeddings is None else 3)
    component, has_norm = direction * math.sqrt(share * size), config.norm_placement == "pre"
    if encoder.embedding_projection is not None:
        component = encoder.embedding_projection.weight @ component
        if has_norm and config.first_attention_norm:
            component *= math.sqrt(share * config.hidden_size) / component.norm()
    attention = encoder.attention_blocks[config.layer_plan("attention")[0]]
    assert isinstance(attention, SelfAttention)
    half = config.head_size // 2
    count = min(_FREQUENCIES, half)
    frequencies = config.theta(0) ** (-torch.arange(count, dtype=torch.float64) / half)
    scale = math.sqrt(NEIGHBOR_SCORE * math.sqrt(config.head_size)) / component.norm()
    reads = scale * component / component.norm()
    for head, offset in enumerate(offsets(config.num_heads)):
        start = head * config.head_size
        first, second = slice(start, start + count), slice(start + half, start + half + count)
        angles = (frequencies * offset).to(reads)
        attention.key.weight[first] += reads
        attention.query.weight[first] += angles.cos()[:, None] * reads
        attention.query.weight[second] += angles.sin()[:, None] * reads


def offsets(num_heads: int) -> tuple[int, ...]:
    """Return the position that each head attends to, relative to the token: -1, 1, -2, 2, ...

    Example:
        >>> offsets(4)
        (-1, 1, -2, 2)
    """
    return tuple((head // 2 + 1) * (1 if head % 2 else -1) for head in range(num_heads))


def _angles(embedding_size: int) -> Tensor:
    """Rotation of each sinusoid from one position to the next, in radians, spread over (0, pi). Shape (E // 2,).

    Angles that are spread cancel out between different positions, so that a head attends to one place. They are random,
    one in each interval, since evenly spaced ones would make distant positions similar.
    """
    count = embedding_size // 2
    return math.pi * (torch.arange(count) + _uniform(count, 0)) / max(1, count)


def _uniform(count: int, seed: int) -> Tensor:
    """Numbers in [0, 1), the same for every model, whatever the seed of the run."""
    return torch.rand(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _sinusoids(positions: int, embedding_size: int, angles: Tensor) -> Tensor:
    """Cosine and sine of each sinusoid side by side, with standard deviation 1. Shape (positions, E)."""
    phases = torch.arange(positions, dtype=torch.float64)[:, None] * angles
    table = torch.zeros(positions, embedding_size, dtype=torch.float64)
    table[:, 0 : 2 * len(angles) : 2] = phases.cos()
    table[:, 1 : 2 * len(angles) : 2] = phases.sin()
    return (table * math.sqrt(2)).float()


def _rotate_heads(
    attention: SelfAttention, num_heads: int, angles: Tensor, passed: Tensor, share: float, back: Tensor | None
) -> None:
    """Add some sinusoids to each head's keys, and to its queries the same ones rotated by the head's offset.

    `passed` has the numbers of the sinusoids that reach the layer, `share` is that of positions in the variance of its
    input, and `back`, shape (E, H), maps hidden states to embeddings, None where they are the same.
    """
    embedding_size = attention.key.weight.shape[1] if back is None else len(back)
    head_size = len(attention.key.weight) // num_heads
    count = min(head_size // 2, len(passed))
    if not count:
        return
    # At the neighbor, each sinusoid adds scale^2 x 2 x share to the dot product of query and key.
    scale = math.sqrt(NEIGHBOR_SCORE * math.sqrt(head_size) / (2 * share * count))
    for head, offset in enumerate(offsets(num_heads)):
        # One sinusoid of each interval, a different one in every head.
        interval = len(passed) / count
        chosen = passed[
            ((torch.arange(count) + _uniform(count, 1 + head)) * interval).long().clamp_max(len(passed) - 1)
        ]
        rows, cosines, sines = 2 * torch.arange(count), 2 * chosen, 2 * chosen + 1
        key, query = torch.zeros(2 * count, embedding_size), torch.zeros(2 * count, embedding_size)
        key[rows, cosines] = key[rows + 1, sines] = 1.0
        rotation = (angles[chosen] * offset).float()
        query[rows, cosines] = query[rows + 1, sines] = rotation.cos()
        query[rows, sines], query[rows + 1, cosines] = -rotation.sin(), rotation.sin()
        if back is not None:
            key, query = key @ back, query @ back
        head_rows = slice(head * head_size, head * head_size + 2 * count)
        attention.key.weight[head_rows] += scale * key
        attention.query.weight[head_rows] += scale * query


def _passed_sinusoids(hidden_size: int, embedding_size: int) -> Tensor:
    """Numbers of the sinusoids that pass a dense layer from E to H: as many as fit."""
    count = min(hidden_size, embedding_size) // 2
    return ((torch.arange(count) + 0.5) * (embedding_size // 2) / max(1, count)).long()


def _passing_projection(weight: Tensor, passed: Tensor) -> Tensor:
    """A matrix of the same scale through which the sinusoids pass undistorted. Shape (H, E), as `weight`.

    Its columns are orthogonal and equally long; where it narrows, its rows are, each for one coordinate of a sinusoid.
    """
    length = weight.std() * math.sqrt(max(weight.shape))
    if weight.shape[0] >= weight.shape[1]:
        directions: Tensor = torch.linalg.qr(weight.double()).Q
        return directions.to(weight.dtype) * length
    passing = weight.clone()
    passing[: 2 * len(passed)] = 0
    rows = torch.arange(len(passed))
    passing[2 * rows, 2 * passed] = passing[2 * rows + 1, 2 * passed + 1] = length
    return passing
