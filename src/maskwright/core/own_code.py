"""Whether code of our own computes where there is some, or PyTorch's alone: one choice for all of it."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

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
