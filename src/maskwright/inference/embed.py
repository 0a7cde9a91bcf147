"""Pooling: one vector per text (Reimers and Gurevych 2019, section 3)."""

from typing import get_args

import numpy as np
from numpy.typing import NDArray

from maskwright.checkpoints.sentence_folder import Pooling
from maskwright.core.errors import MaskwrightError, unknown_name

POOLINGS: tuple[Pooling, ...] = get_args(Pooling)


def check_pooling(name: str) -> None:
    """Raise MaskwrightError if there is no such pooling."""
    if name not in POOLINGS:
        problem, allowed, todo = unknown_name("pooling", name, POOLINGS)
        raise MaskwrightError(problem, allowed=allowed, todo=todo)


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
