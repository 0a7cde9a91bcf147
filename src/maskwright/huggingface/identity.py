"""A dense layer that changes nothing, for classes that always have one after the embeddings (ALBERT's).

The original ALBERT has that layer only where E differs from H (modeling.py:1081-1088), and so has our encoder. Where
they are the same an identity is written, and an exact identity that is read is left out again.
"""

import torch
from torch import Tensor

from maskwright.huggingface.families import Family
from maskwright.model.config import EncoderConfig


def identity_projection(family: Family, config: EncoderConfig, prefix: str) -> dict[str, Tensor]:
    """Return the layer that a family's classes have and the encoder has not, under their names; or nothing."""
    if not family.always_projects or config.projects_embeddings:
        return {}
    values = (torch.eye(config.hidden_size), torch.zeros(config.hidden_size))
    return {prefix + theirs: value for (_, theirs), value in zip(family.projection, values, strict=True)}


def without_identity(
    tensors: dict[str, Tensor], family: Family, config: EncoderConfig, prefix: str
) -> tuple[dict[str, Tensor], EncoderConfig]:
    """Leave out a layer that changes nothing; one of equal widths that does is the encoder's own.

    Args:
        tensors: All weights of a folder, by their names.
        family: The tables.
        config: The shape that config.json says.
        prefix: What stands before the body's names.

    Returns:
        The weights, and the shape with the layer if there is one.
    """
    names = [prefix + theirs for _, theirs in family.projection]
    if not family.always_projects or config.projects_embeddings or not tensors.keys() >= set(names):
        return tensors, config
    weight, bias = (tensors[name] for name in names)
    if weight.dim() != 2 or not torch.equal(weight, torch.eye(*weight.shape)) or bias.any():
        return tensors, config.replace(embedding_projection="always")
    return {name: tensor for name, tensor in tensors.items() if name not in names}, config
