"""Signals during training: Ctrl-C, SIGTERM and SIGHUP stop a run after the current step, another Ctrl-C at once."""

import contextlib
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from maskwright.training.ranks.distributed import all_reduce_max, rank


class StopRequest:
    """Whether a signal was received, and which."""

    def __init__(self) -> None:
        self.signal: str | None = None
        self._last = self._left_out = 0.0
        self._was_stopped = False

    def __bool__(self) -> bool:
        return self.signal is not None

    def agree(self) -> bool:
        """Return whether any process received a signal: the same on every rank, each of which must call it."""
        is_requested = bool(all_reduce_max(bool(self)))
        if is_requested and not self:
            self.signal = "a signal to another process"
        return is_requested

    def running(self, now: float) -> float:
        """Return the time on a clock without the time in which the process was stopped (Ctrl-Z, SIGSTOP).

        After a stop the time since the last call is left out: a step during which the process was stopped counts
        nothing.
        """
        if self._was_stopped:
            self._was_stopped = False
            self._left_out += now - self._last
        self._last = now
        return now - self._left_out

    def _continued(self, number: int, frame: FrameType | None) -> None:
        self._was_stopped = True


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Catch signals while the block runs (only in the main thread: elsewhere they stay as they are)."""
    request, was_received = StopRequest(), False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal was_received
        if was_received:  # SIGTERM and SIGHUP often come twice: from the system, and from torchrun or a shell.
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            return
        was_received = True
        request.signal = signal.Signals(number).name
        # Written to the descriptor: a signal may come in the middle of another write, or because the terminal is gone.
        with contextlib.suppress(OSError):
            if rank() == 0:
                os.write(2, b"\nstopping after this step and saving; press Ctrl-C (again) to stop at once\n")

    handlers = {"SIGINT": on_signal, "SIGTERM": on_signal, "SIGHUP": on_signal, "SIGCONT": request._continued}
    previous = {}
    for name, handler in handlers.items():
        number = getattr(signal, name, None)  # Windows lacks the last two.
        if number is None or (name == "SIGHUP" and signal.getsignal(number) is signal.SIG_IGN):  # as under nohup
            continue
        try:
            previous[number] = signal.signal(number, handler)
        except ValueError:  # Only the main thread can set handlers.
            break
    try:
        yield request
    finally:
        for number, before in previous.items():
            if before is not None:  # Handlers not set by Python cannot be restored.
                signal.signal(number, before)
