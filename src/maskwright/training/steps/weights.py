"""The weights of a pretraining model by name: all of them, and those of each model that is saved."""

from collections.abc import Mapping

import torch
from torch import Tensor

from maskwright.core.errors import ConversionError
from maskwright.recipes.recipe import SHARED_EMBEDDINGS
from maskwright.training.steps.model import PretrainingModel


def all_weights(model: PretrainingModel) -> dict[str, Tensor]:
    """Return all weights, shared ones once, as the encoder's."""
    shared = tuple(f"generator.{part}." for part in SHARED_EMBEDDINGS) if model.shares_embeddings else ()
    return {name: tensor for name, tensor in model.state_dict().items() if not name.startswith(shared)}


def encoder_weights(model: PretrainingModel) -> dict[str, Tensor]:
    """Return the weights of the encoder and of the heads on it."""
    return _weights_of(model, "encoder")


def generator_weights(model: PretrainingModel) -> dict[str, Tensor]:
    """Return the weights of the generator and its heads, named as those of a model: "encoder.*", "heads.*"."""
    weights = _weights_of(model, "generator")
    return {name.replace("generator.", "encoder.", 1): each for name, each in weights.items()}


def _weights_of(model: PretrainingModel, encoder: str) -> dict[str, Tensor]:
    parts = (f"{encoder}.", *(f"heads.{each.kind}." for each in model.objectives_of[encoder]))
    return {name: each for name, each in model.state_dict().items() if name.startswith(parts)}


@torch.no_grad()
def copy_weights(weights: Mapping[str, Tensor], model: PretrainingModel) -> None:
    """Write weights into a model that has them all."""
    target = all_weights(model)
    for name, weight in weights.items():
        target[name].copy_(weight)


def load_weights(model: PretrainingModel, weights: Mapping[str, Tensor], source: str) -> None:
    """Load all weights of exactly this model.

    Raises ConversionError if a name is missing or too many, or a shape differs.
    """
    problem = f"the weights in {source} do not fit the recipe"
    try:
        result = model.load_state_dict(dict(weights), strict=False)
    except RuntimeError as error:
        raise ConversionError(f"{problem}: {error}") from error
    # Not missing are shared weights, which come with their first name.
    if wrong := [*result.unexpected_keys, *(all_weights(model).keys() & result.missing_keys)]:
        raise ConversionError(f"{problem}; unknown or missing: {', '.join(sorted(wrong)[:5])}")
