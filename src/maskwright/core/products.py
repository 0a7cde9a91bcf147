"""Which library multiplies fp32 matrices on a CPU: a setting of the process, made for a block."""

import contextlib
from collections.abc import Iterator
from typing import Literal

import torch

Setting = Literal["none", "bf16"]
"""Of torch.backends.mkldnn.matmul.fp32_precision: "none" is PyTorch's own choice; "bf16" lets oneDNN multiply, which
may then round to bfloat16 on some processors: who sets it looks first."""


@contextlib.contextmanager
def fp32_products(setting: Setting) -> Iterator[None]:
    """Let fp32 matrices be multiplied by a setting while the block runs."""
    matmul = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]  # set up at run time
    before = matmul.fp32_precision
    matmul.fp32_precision = setting
    try:
        yield
    finally:
        matmul.fp32_precision = before
