"""Pooling: one vector per text (Reimers and Gurevych 2019, section 3)."""

import warnings

import numpy as np
from numpy.typing import NDArray

from maskwright.checkpoints.sentence_folder import SentenceModules
from maskwright.core.errors import MaskwrightError


class UntrainedDimensions(UserWarning):
    """The leading dimensions of a model's embeddings were not trained to stand alone."""


def choose_dimensions(requested: int | None, modules: SentenceModules, width: int, name: str) -> int:
    """Return how many of the `width` dimensions of an embedding to keep: the requested number, else the folder's.

    Raises MaskwrightError if there are fewer. Warns if the model called `name` was not trained for this number.
    """
    if requested is None:
        return min(width, modules.truncate_dim or width)
    if not 1 <= requested <= width:
        raise MaskwrightError(f"dimensions is {requested}", allowed=f"1 to {width}, the width of {name}'s embeddings")
    if requested not in (width, *modules.trained_dimensions):
        trained = ", ".join(map(str, modules.trained_dimensions)) or "none"
        message = (
            f"the first {requested} of {width} dimensions may compare texts worse: {name} is not known to be trained "
            f"for them (matryoshka_dimensions in its config.json: {trained})"
        )
        warnings.warn(UntrainedDimensions(message), stacklevel=3)
    return requested


def nearest_texts(vectors: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Find for each vector (n, H), n at least 2, the other one with the highest cosine similarity.

    Returns indices (n,) and similarities in [-1, 1] (n,). A zero vector has similarity 0.
    """
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    directions = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
    similarity = directions @ directions.T
    np.fill_diagonal(similarity, -np.inf)
    nearest = similarity.argmax(axis=1)
    return nearest, similarity[np.arange(len(nearest)), nearest]
