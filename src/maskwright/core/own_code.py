"""Whether code of our own computes where there is some, or PyTorch's alone: one choice for all of it."""

import contextlib
import functools
import importlib.util
from collections.abc import Iterator
from contextvars import ContextVar

import torch

_ALLOWED: ContextVar[bool] = ContextVar("whether our own code is used where it is there", default=True)


@contextlib.contextmanager
def allowed(wish: bool) -> Iterator[None]:
    """Use our own code where it is there (C on a processor, Triton on a GPU), or do without, while the block runs.

    A run goes on as it was begun. An encoder in use keeps what was allowed when its weights were laid out. Products of
    8-bit integers are a precision of their own, and not asked about.
    """
    before = _ALLOWED.set(wish)
    try:
        yield
    finally:
        _ALLOWED.reset(before)


def is_allowed() -> bool:
    """Say whether our own code may be used (see `allowed`)."""
    return _ALLOWED.get()


@functools.cache
def has_kernels(device: torch.device) -> bool:
    """Say whether our GPU kernels can be made for a device: an NVIDIA GPU with bf16 (compute capability 8.0 on), and
    Triton, which comes with PyTorch for CUDA on Linux."""
    if device.type != "cuda" or torch.version.cuda is None or importlib.util.find_spec("triton") is None:
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)
