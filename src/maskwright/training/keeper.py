"""When to write a checkpoint: every minute, or less often where writing costs too much."""

import time
from collections.abc import Callable


class Keeper:
    """Calls `save` at a cadence.

    Args:
        save: Writes a checkpoint of a step.
        last_step: The step of the newest checkpoint, -1 for none.
        seconds: Time between checkpoints; 0 keeps every step (for checking resumption).
        share: Largest share of the time that writing may take.
    """

    def __init__(self, save: Callable[[], None], last_step: int, seconds: float = 60.0, share: float = 0.03) -> None:
        self._save, self._last_step = save, last_step
        self._seconds, self._share = seconds, share
        self._next = time.monotonic() + seconds

    def is_due(self) -> bool:
        """Whether the time has come."""
        return time.monotonic() >= self._next

    def keep(self, step: int) -> None:
        """Write a checkpoint of this step, unless there is one already."""
        if step == self._last_step:
            return
        begun = time.monotonic()
        self._save()
        ended = time.monotonic()
        self._last_step = step
        self._next = ended + (max(self._seconds, (ended - begun) / self._share) if self._seconds else 0.0)
