"""An ordered map over a process pool: results in the order of the items, few items in flight.

Workers are spawned, not forked, so no thread is forked while it holds a lock. They do not import the caller's script
(a script needs no `if __name__ == "__main__":`) and import nothing from the current directory.
"""

import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import chain, islice
from multiprocessing import get_context, parent_process
from types import ModuleType
from typing import TypeVar

from maskwright.core.errors import DataError, MaskwrightError

Item = TypeVar("Item")
Result = TypeVar("Result")

_MAX_WORKERS = 16
_IN_FLIGHT_PER_WORKER = 2
# A process takes about half a second to start; fewer items than this are faster without.
_MIN_ITEMS = 3


def default_workers() -> int:
    """Return the number of cores this process may run on, at most 16."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MAX_WORKERS)


def ordered_map(
    function: Callable[[Item], Result], items: Iterable[Item], *, workers: int | None = None
) -> Iterator[Result]:
    """Yield `function(item)` for each item, in order.

    Items are read in this process, a few ahead of the results, so memory stays bounded. An error is raised where its
    item's result would be: the same error for any number of workers.

    Args:
        function: A function that pickles: of the top level of a module, or a partial of one.
        items: Items that pickle; read lazily.
        workers: Processes; 1 works in this process, None uses the available cores.

    Raises:
        DataError: If a worker process died.
    """
    workers = default_workers() if workers is None else max(1, workers)
    reading_error: list[MaskwrightError] = []

    def read() -> Iterator[Item]:
        try:
            yield from items
        except MaskwrightError as error:  # raised after the results of the items before it
            reading_error.append(error)

    reader = read()
    first = list(islice(reader, _MIN_ITEMS)) if workers > 1 else []
    if len(first) < _MIN_ITEMS:
        yield from map(function, chain(first, reader))
    else:
        yield from _in_processes(function, chain(first, reader), workers)
    if reading_error:
        raise reading_error[0]


def _in_processes(function: Callable[[Item], Result], items: Iterator[Item], workers: int) -> Iterator[Result]:
    with _clean_start():
        pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_initialize)
    pending: deque[Future[Result]] = deque()
    try:
        for item in items:
            with _clean_start():
                pending.append(pool.submit(function, item))
            if len(pending) > _IN_FLIGHT_PER_WORKER * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool as error:
        raise DataError(
            "a worker process ended before its work was done",
            todo="If memory ran out, use fewer workers; `--workers 1` starts no further processes.",
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _clean_start() -> Iterator[None]:
    """Hide the main module and the current directory from processes started in the block."""
    main, safe_path = sys.modules["__main__"], os.environ.get("PYTHONSAFEPATH")
    sys.modules["__main__"], os.environ["PYTHONSAFEPATH"] = ModuleType("__main__"), "1"
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        if safe_path is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = safe_path


def _initialize() -> None:
    # Ctrl-C reaches all processes of a terminal; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Every core has its own process; threads of the tokenizers library would only compete.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    # A killed parent leaves its workers waiting for a queue that nobody fills.
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
