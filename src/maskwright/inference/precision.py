"""What a model in use multiplies matrices in: exactly, or faster with a small error that is stated."""

import warnings
from typing import Literal, get_args

import torch

from maskwright.core.errors import MaskwrightError, unknown_name
from maskwright.core.types import ProductPrecision
from maskwright.kernels.cpu.int8_support import multiplies_int8
from maskwright.training.device import multiplies_bf16

Precision = Literal["auto", "fp32", "bf16", "int8"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


class PrecisionChanged(UserWarning):
    """The device does not do by itself what was asked for, and computes in fp32."""


def choose_precision(name: str, device: torch.device) -> ProductPrecision:
    """Return what is computed in, fp32 where the device has no fast way to do what was asked.

    Args:
        name: "fp32", "bf16" (products of bfloat16 numbers), "int8" (products of 8-bit numbers, on a processor), or
            "auto": bf16 on a GPU that has it, else fp32, as in training.
        device: Where.

    Raises:
        MaskwrightError: If there is no precision of that name.
    """
    if name == "fp32":
        return "fp32"
    if name == "auto":
        return "bf16" if device.type == "cuda" and multiplies_bf16(device) else "fp32"
    if name == "bf16":
        if multiplies_bf16(device):
            return "bf16"
        return _exactly(f"{device} does not multiply bf16 numbers by itself; emulated, they are slower than fp32")
    if name == "int8":
        if device.type != "cpu":
            return _exactly(f"int8 is for processors, and the model is on {device}")
        if multiplies_int8():
            return "int8"
        return _exactly("this processor has no instructions for products of 8-bit numbers (AVX512_VNNI, AVX_VNNI, AMX)")
    problem, allowed, todo = unknown_name("precision", name, PRECISIONS)
    raise MaskwrightError(problem, allowed=allowed, todo=todo)


def _exactly(why: str) -> ProductPrecision:
    warnings.warn(f"computing in fp32: {why}", PrecisionChanged, stacklevel=4)
    return "fp32"
