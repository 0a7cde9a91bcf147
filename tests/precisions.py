"""Precisions that this machine computes in."""

import warnings

import pytest
import torch

from maskwright.core.types import MatmulPrecision
from maskwright.inference.precision import PrecisionWarning, choose_precision


def skip_without(precision: MatmulPrecision) -> None:
    """Skip a test whose precision has no instructions on this CPU."""
    with warnings.catch_warnings(action="ignore", category=PrecisionWarning):
        if choose_precision(precision, torch.device("cpu")) != precision:
            pytest.skip(f"this CPU has no instructions for {precision} matmuls")
