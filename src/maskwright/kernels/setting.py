"""The switch for kernels: C code for inference and attention, Triton kernels and CUDA graphs on a GPU."""

import contextlib
import functools
import importlib.util
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Literal

import torch

Kernels = Literal["auto", "reference"]
"""Use kernels wherever they are available, or PyTorch alone."""

_enabled = ContextVar("kernels_enabled", default=True)


@contextlib.contextmanager
def use_kernels(enabled: bool) -> Iterator[None]:
    """Enable or disable kernels in this thread while the block runs; other threads keep their own setting.

    An encoder for inference keeps the setting under which it was made. int8 is a precision of its own and is not
    affected.
    """
    token = _enabled.set(enabled)
    try:
        yield
    finally:
        _enabled.reset(token)


def kernels_enabled() -> bool:
    """Return whether kernels may be used (see `use_kernels`)."""
    return _enabled.get()


@functools.cache
def has_kernels(device: torch.device) -> bool:
    """Return whether the Triton kernels run on a device.

    They need an NVIDIA GPU with bf16 (compute capability 8.0) and Triton, which PyTorch for CUDA on Linux brings.
    """
    if device.type != "cuda" or torch.version.cuda is None or importlib.util.find_spec("triton") is None:
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)


def kernel_errors() -> tuple[type[Exception], ...]:
    """Return the errors of kernels that do not compile, do not launch or run out of memory."""
    try:
        from triton.errors import TritonError
    except ImportError:
        return (RuntimeError,)
    return RuntimeError, TritonError
