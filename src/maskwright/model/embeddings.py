"""What a token brings to the first layer: word + position + segment (Devlin et al. 2019, figure 2)."""

from torch import Tensor, nn

from maskwright.core.tensors import PackedBatch


def sum_embeddings(
    batch: PackedBatch,
    words: nn.Embedding,
    positions: nn.Embedding,
    segments: nn.Embedding | None,
    position_offset: int,
) -> Tensor:
    """Add up the embeddings of each token.

    Args:
        batch: Ids, positions from 0 and segments, each of shape (T,).
        words: V rows of width E.
        positions: `position_offset` rows that are skipped, then one row a position.
        segments: One row a segment. A table of one row is added to every token, whatever its segment
            (RoBERTa); None adds nothing (DistilBERT).
        position_offset: Rows skipped at the front of the position table.

    Returns:
        Shape (T, E).
    """
    position_ids = batch.position_ids + position_offset if position_offset else batch.position_ids
    summed: Tensor = words(batch.ids) + positions(position_ids)
    if segments is None:
        return summed
    return summed + (segments(batch.segment_ids) if segments.num_embeddings > 1 else segments.weight[0])
