"""Global switch for native kernels: C code for inference, Triton kernels on a GPU."""

import contextlib
import functools
import importlib.util
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Literal

import torch

Kernels = Literal["auto", "reference"]
"""Use native kernels wherever they are available, or PyTorch alone."""

_enabled = ContextVar("native_kernels_enabled", default=True)


@contextlib.contextmanager
def use_native_kernels(wish: bool) -> Iterator[None]:
    """Enable or disable native kernels in this thread while the block runs; other threads keep their own setting.

    An inference encoder keeps what was allowed when its weights were packed. int8 is a precision of its own and is not
    affected.
    """
    token = _enabled.set(wish)
    try:
        yield
    finally:
        _enabled.reset(token)


def native_kernels_enabled() -> bool:
    """Return whether native kernels may be used (see `use_native_kernels`)."""
    return _enabled.get()


@functools.cache
def has_kernels(device: torch.device) -> bool:
    """Return whether the Triton kernels run on a device.

    They need an NVIDIA GPU with bf16 (compute capability 8.0 or later) and Triton, which comes with PyTorch for CUDA on
    Linux.
    """
    if device.type != "cuda" or torch.version.cuda is None or importlib.util.find_spec("triton") is None:
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)
