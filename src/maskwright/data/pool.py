"""Work on a stream of items in several processes: results in the order of the items, few items in flight.

The processes are plain Python interpreters that talk through pipes, one thread of this process for each. Unlike those
of `multiprocessing` they never import the caller's script, so a script needs no `if __name__ == "__main__":`,
what it imports (torch) costs nothing here, and nothing is forked while threads hold locks.
"""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from itertools import chain, islice
from queue import SimpleQueue
from typing import Any, BinaryIO, TypeVar

from maskwright.core.errors import DataError, MaskwrightError

Item = TypeVar("Item")
Result = TypeVar("Result")

_MOST_WORKERS = 16
_IN_FLIGHT_PER_WORKER = 2
# A process takes about half a second to start; fewer items than this are done sooner without.
_WORTH_A_POOL = 3
_START = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); from maskwright.data.pool import serve; serve()"
)


def default_workers() -> int:
    """Return how many processes to use: the cores this process may run on, at most 16."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MOST_WORKERS)


_KEPT: ContextVar[list["_Worker"] | None] = ContextVar("worker processes that have nothing to do", default=None)


@contextlib.contextmanager
def kept_workers() -> Iterator[None]:
    """Let worker processes serve one `ordered_map` after the other while the block runs, instead of starting anew."""
    if _KEPT.get() is not None:
        yield
        return
    kept: list[_Worker] = []
    before = _KEPT.set(kept)
    try:
        yield
    finally:
        _KEPT.reset(before)
        _end(kept)


def ordered_map(
    function: Callable[[Item], Result], items: Iterable[Item], *, workers: int | None = None
) -> Iterator[Result]:
    """Yield `function(item)` for each item, in order.

    Reading the items happens here, a few ahead of the results, so memory stays bounded. An error comes where its
    item's result would have come, whichever process met it first: the same error for any number of workers.

    Args:
        function: A function that pickles: of the top level of a module, or a partial of one.
        items: Items that pickle; read lazily.
        workers: Processes; 1 works in this process, None chooses.

    Raises:
        DataError: If a worker process died.
    """
    workers = default_workers() if workers is None else max(1, workers)
    iterator = iter(items)
    if workers > 1 and sys.executable:
        first, failure = _take(iterator, _WORTH_A_POOL)
        if failure is None and len(first) == _WORTH_A_POOL:
            yield from _in_processes(function, chain(first, iterator), workers)
            return
        yield from map(function, first)
        if failure is not None:
            raise failure
        return
    yield from map(function, iterator)


def _take(iterator: Iterator[Item], count: int) -> tuple[list[Item], MaskwrightError | None]:
    taken: list[Item] = []
    try:
        taken.extend(islice(iterator, count))
    except MaskwrightError as error:
        return taken, error
    return taken, None


def _in_processes(function: Callable[[Item], Result], items: Iterator[Item], workers: int) -> Iterator[Result]:
    idle: SimpleQueue[_Worker] = SimpleQueue()
    kept = _KEPT.get()
    processes: list[_Worker] = []

    def call(item: Item) -> Any:
        process = idle.get()
        try:
            return process.call(function, item)
        finally:
            idle.put(process)

    threads = ThreadPoolExecutor(workers)
    pending: deque[Future[Result]] = deque()
    failure: MaskwrightError | None = None
    try:
        for _ in range(workers):
            process = _from(kept) or _Worker()
            processes.append(process)
            idle.put(process)
        while failure is None:
            try:
                item = next(items)
            except StopIteration:
                break
            except MaskwrightError as error:
                failure = error  # in its turn: items before it may have failed too
                break
            pending.append(threads.submit(call, item))
            if len(pending) > _IN_FLIGHT_PER_WORKER * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
        if kept is not None and _KEPT.get() is kept:
            # All have answered what they were asked.
            kept += processes
            processes = kept[workers:]
            del kept[workers:]
    finally:
        # What is still at work, since nobody wants its answers any more.
        for process in processes:
            process.stop()
        threads.shutdown(wait=True, cancel_futures=True)
        _end(processes)
    if failure is not None:
        raise failure


def _from(kept: list["_Worker"] | None) -> "_Worker | None":
    while kept:
        process = kept.pop()
        if process.is_alive():
            return process
        process.close()
    return None


def _end(processes: list["_Worker"]) -> None:
    for process in processes:
        process.stop()
    for process in processes:
        process.close()


class _Worker:
    """One process that answers calls until its pipe is closed."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=-1,
            # Every core has its own process; threads of the tokenizers library would only get in the way.
            env={**os.environ, "TOKENIZERS_PARALLELISM": "false"},
        )
        _send(self._pipe, sys.path)

    @property
    def _pipe(self) -> BinaryIO:
        assert self._process.stdin is not None
        return self._process.stdin  # type: ignore[return-value]

    def call(self, function: Callable[[Any], Any], item: Any) -> Any:
        assert self._process.stdout is not None
        try:
            _send(self._pipe, (function, item))
            result, error = pickle.load(self._process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError) as failure:
            code = self._process.wait()
            raise DataError(
                f"a worker process ended before its work was done (exit code {code})",
                todo="If memory ran out, use fewer workers; `--workers 1` does without further processes.",
            ) from failure
        if error is not None:
            raise error
        return result

    def is_alive(self) -> bool:
        """Say whether the process is there to be asked."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End the process, also in the middle of its work: what it wrote so far nobody will read."""
        self._process.kill()

    def close(self) -> None:
        """Free the pipes of a stopped process."""
        assert self._process.stdout is not None
        self._process.stdout.close()
        with contextlib.suppress(OSError):  # what was not yet sent to it cannot be
            self._pipe.close()
        self._process.wait()


def _send(pipe: BinaryIO, value: object) -> None:
    pickle.dump(value, pipe, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.flush()


def serve() -> None:
    """Answer calls on standard input with results on standard output, until the input ends: a worker's whole life."""
    # Ctrl-C reaches all processes of a terminal; the parent alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    calls, answers = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a stray print must not end up among the answers
    while True:
        try:
            function, item = pickle.load(calls)
        except EOFError:
            return
        answer: tuple[Any, Exception | None]
        try:
            answer = (function(item), None)
        except Exception as error:
            # Raised again by the parent, in the item's turn.
            answer = (None, error)
        _send(answers, answer)
