"""Number of threads of PyTorch and of the C code."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def with_threads(number: int) -> Iterator[None]:
    """Compute with so many threads while the block runs."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
