"""The library that multiplies fp32 matrices on a CPU."""

import contextlib
from collections.abc import Iterator
from typing import Literal

import torch

Setting = Literal["none", "bf16"]
"""Value of torch.backends.mkldnn.matmul.fp32_precision: "none" leaves the choice to PyTorch; "bf16" lets oneDNN
multiply, which may round to bfloat16 on some CPUs (`training.ranks.device` measures that first)."""


@contextlib.contextmanager
def fp32_matmul_setting(setting: Setting) -> Iterator[None]:
    """Use a setting of fp32 matmuls while the block runs."""
    matmul = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]  # set up at run time
    before = matmul.fp32_precision
    matmul.fp32_precision = setting
    try:
        yield
    finally:
        matmul.fp32_precision = before
