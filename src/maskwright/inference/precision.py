"""Precision of matmuls in inference."""

import warnings
from typing import Literal, get_args

import torch

from maskwright.core.errors import MaskwrightError, unknown_name
from maskwright.core.types import MatmulPrecision
from maskwright.kernels import ops
from maskwright.model.inference_encoder import PrecisionWarning
from maskwright.training.ranks.device import multiplies_bf16

Precision = Literal["auto", "fp32", "bf16", "int8"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


def choose_precision(name: str, device: torch.device) -> MatmulPrecision:
    """Return the precision to use: fp32, with a warning, where the device does not support the requested one.

    "auto" is bf16 on a GPU that has it, else fp32, as in training. Raises MaskwrightError for an unknown name.
    """
    if name == "fp32":
        return "fp32"
    if name == "auto":
        return "bf16" if device.type == "cuda" and multiplies_bf16(device) else "fp32"
    if name == "bf16":
        if multiplies_bf16(device):
            return "bf16"
        return _fp32(f"{device} has no bf16 instructions; emulated bf16 is slower than fp32")
    if name == "int8":
        if device.type != "cpu":
            return _fp32(f"int8 is for CPUs, and the model is on {device}")
        unavailable = ops.int8_problem()
        return "int8" if unavailable is None else _fp32(unavailable.problem)
    raise unknown_name(MaskwrightError, "precision", name, PRECISIONS)


def _fp32(why: str) -> MatmulPrecision:
    warnings.warn(f"computing in fp32: {why}", PrecisionWarning, stacklevel=4)
    return "fp32"
