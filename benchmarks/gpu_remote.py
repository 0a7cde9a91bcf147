"""The row `gpu` speaks to transformers' sides, which sit in processes of their own (`gpu_peer`)."""

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Protocol

from benchmarks.gpu_peer import Message, Worker

_ROOT = Path(__file__).parent.parent
_PATIENCE = 180.0
"""Seconds that a turn may take."""


class Line(Protocol):
    """To a side of transformers."""

    def send(self, message: Message) -> None:
        """Ask for something."""

    def receive(self, seconds: float = _PATIENCE) -> Message:
        """Return the answer to what was asked for first; {"error": ...} where none comes in time."""

    def close(self) -> None:
        """End it."""


class Remote:
    """A side in a process of its own.

    Args:
        log: File for what it says meanwhile.
        threads: Processes that its compiler may use.
    """

    def __init__(self, log: Path, threads: int) -> None:
        self._log = log
        # Caches of compiled code are each user's to place: TORCHINDUCTOR_CACHE_DIR is passed on as it is.
        # `Trainer` would take every GPU that it sees.
        usual = {"TORCHINDUCTOR_COMPILE_THREADS": str(threads), "CUDA_VISIBLE_DEVICES": "0"}
        with log.open("wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.gpu_peer"],
                cwd=_ROOT,
                env={**usual, **os.environ},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                bufsize=0,
            )
        self._read = b""

    def send(self, message: Message) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # It is gone: `receive` says so.
            self._process.stdin.write(json.dumps(message).encode() + b"\n")

    def receive(self, seconds: float = _PATIENCE) -> Message:
        assert self._process.stdout is not None
        if self._process.stdout.closed:
            return {"error": "ended"}
        file, until = self._process.stdout.fileno(), time.monotonic() + seconds
        while b"\n" not in self._read:
            ready, _, _ = select.select([file], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                self.close()  # What it would still say is the answer to this, not to what is asked next.
                return {"error": f"no answer within {seconds:.0f} s"}
            if not (more := os.read(file, 1 << 16)):
                return {"error": f"the process ended: {self._last_words()}"}
            self._read += more
        line, _, self._read = self._read.partition(b"\n")
        answer: Message = json.loads(line)
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "nothing was said")


class Here:
    """A side in this process."""

    def __init__(self) -> None:
        self._worker, self._asked = Worker(), list[Message]()

    def send(self, message: Message) -> None:
        self._asked.append(message)

    def receive(self, seconds: float = _PATIENCE) -> Message:
        return self._worker.answer(self._asked.pop(0))

    def close(self) -> None:
        self._asked.clear()
