"""Ctrl-C and SIGTERM stop a run after the current step; a second signal stops it at once."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Whether a signal was received, and which."""

    def __init__(self) -> None:
        self.signal: str | None = None

    def __bool__(self) -> bool:
        return self.signal is not None


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Catch SIGINT and SIGTERM while the block runs (only in the main thread: elsewhere signals stay as they are)."""
    request = StopRequest()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if request:
            raise KeyboardInterrupt
        request.signal = signal.Signals(number).name
        # Written to the descriptor: a signal may come in the middle of another write.
        os.write(2, b"\nstopping after this step and saving; press Ctrl-C again to stop at once\n")

    previous = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            previous[number] = signal.signal(number, on_signal)
        except ValueError:  # Only the main thread can set handlers.
            break
    try:
        yield request
    finally:
        for number, handler in previous.items():
            if handler is not None:  # Handlers not set by Python cannot be restored.
                signal.signal(number, handler)
