"""An ordered map over an engine: processes of this machine, Ray, or any `concurrent.futures.Executor`.

The function must give the same result in any process, so an engine may repeat a call whose node was lost. Functions
read and write files by path: the nodes of a cluster need a common file system for the corpus and the cache directory.

The local processes are spawned, not forked, so no thread is forked while it holds a lock. They do not import the
caller's script (a script needs no `if __name__ == "__main__":`) and import nothing from the current directory.
"""

import os
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain, islice
from multiprocessing import get_context, parent_process
from types import ModuleType
from typing import Any, Literal, TypeVar

from maskwright.core.errors import DataError, MaskwrightError, first_line, unknown_name
from maskwright.core.extras import imported

Item = TypeVar("Item")
Result = TypeVar("Result")
Engine = Literal["local", "ray"] | Executor

_ENGINES = ("local", "ray")
_engine: ContextVar[Engine] = ContextVar("engine", default="local")
_MAX_WORKERS = 16
_IN_FLIGHT_PER_WORKER = 2
# A process takes about half a second to start; fewer items than this are faster without.
_MIN_ITEMS = 3


@contextmanager
def use_engine(engine: Engine | None) -> Iterator[None]:
    """Prepare text on an engine in the block.

    Args:
        engine: "local"; "ray" (the cluster of `RAY_ADDRESS`, else one that runs on this machine, else a new one of
            this machine); or an executor, for instance `dask.distributed.Client(...).get_executor()`, which the caller
            shuts down. None changes nothing.

    Raises DataError if there is no such engine.
    """
    engine = _engine.get() if engine is None else engine
    if not isinstance(engine, Executor) and engine not in _ENGINES:
        raise unknown_name(DataError, "engine", engine, _ENGINES)
    token = _engine.set(engine)
    try:
        yield
    finally:
        _engine.reset(token)


def check_workers(workers: int | None) -> None:
    """Raise DataError if the number of workers of a command is less than 1; None is the default."""
    if workers is not None and workers < 1:
        raise DataError(f"--workers is {workers}", allowed="1 or more")


def default_workers() -> int:
    """Return the number of cores this process may run on, at most 16."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MAX_WORKERS)


def ordered_map(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    workers: int | None = None,
    engine: Engine | None = None,
) -> Generator[Result, None, None]:
    """Yield `function(item)` for each item, in order. Closing it cancels waiting calls and ends local processes.

    Items are read in this process, a few ahead of the results, so memory stays bounded. An error is raised where its
    item's result would be: the same error for any engine and number of workers.

    Args:
        function: A function that pickles: of the top level of a module, or a partial of one.
        items: Items that pickle; read lazily.
        workers: Calls that run at once; None uses the cores of this machine (at most 16) or all of the cluster. 1 with
            the local engine works in this process.
        engine: None for that of `use_engine`.

    Raises DataError if a worker died, or the engine cannot be used.
    """
    engine = _engine.get() if engine is None else engine
    reading_error: list[MaskwrightError] = []

    def read() -> Iterator[Item]:
        try:
            yield from items
        except MaskwrightError as error:  # raised after the results of the items before it
            reading_error.append(error)

    reader = read()
    if engine == "local":
        workers = default_workers() if workers is None else workers
        first = list(islice(reader, _MIN_ITEMS)) if workers > 1 else []
        if len(first) < _MIN_ITEMS:
            yield from map(function, chain(first, reader))
        else:
            with _Processes(workers) as executor:
                yield from _results(executor, function, chain(first, reader), workers)
    elif engine == "ray":
        with _RayTasks() as tasks:
            yield from _results(tasks, function, reader, workers or tasks.workers)
    else:
        yield from _results(engine, function, reader, workers or default_workers())
    if reading_error:
        raise reading_error[0]


def _results(
    executor: Executor, function: Callable[[Item], Result], items: Iterator[Item], workers: int
) -> Iterator[Result]:
    pending: deque[Future[tuple[Result | None, Exception | None]]] = deque()

    def take() -> Any:
        try:
            result, error = pending.popleft().result()
        except Exception as failure:
            raise DataError(
                f"a worker process ended before its work was done ({type(failure).__name__})",
                hint="If memory ran out, use fewer workers; `--workers 1` starts no further processes.",
            ) from failure
        if error is not None:
            raise error
        return result

    try:
        for item in items:
            pending.append(executor.submit(_call, function, item))
            if len(pending) > _IN_FLIGHT_PER_WORKER * workers:
                yield take()
        while pending:
            yield take()
    finally:
        for future in pending:
            future.cancel()


def _call(function: Callable[[Item], Result], item: Item) -> tuple[Result | None, Exception | None]:
    """Return a result or the error of the function, so that other errors are those of the engine."""
    try:
        return function(item), None
    except Exception as error:
        error.add_note(traceback.format_exc())
        return None, error


class _RayTasks(Executor):
    """Tasks of Ray, which repeats those of a lost node on another."""

    def __init__(self) -> None:
        ray = imported("ray", "`--engine ray`", "ray")
        try:
            if not ray.is_initialized():
                ray.init(log_to_driver=False, logging_level="ERROR")
            self.workers = max(1, int(ray.cluster_resources().get("CPU", 1)))
        except Exception as error:
            raise DataError(
                f"Ray cannot be used ({type(error).__name__}: {first_line(error)})",
                hint="Check RAY_ADDRESS and that the cluster runs: `ray status`.",
            ) from error
        self._call = ray.remote(_call_alone)

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **_: Any) -> "Future[Any]":
        future: Future[Any] = self._call.remote(function, *arguments).future()
        return future


def _call_alone(function: Callable[..., Result], /, *arguments: Any) -> Result:
    _use_one_thread()
    return function(*arguments)


def _use_one_thread() -> None:
    # Every core has its own process; threads of the tokenizers library would only compete.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


class _Processes(ProcessPoolExecutor):
    def __init__(self, workers: int) -> None:
        with _clean_start():
            super().__init__(workers, mp_context=get_context("spawn"), initializer=_initialize)

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> "Future[Any]":
        with _clean_start():  # It starts processes.
            return super().submit(function, *arguments, **named)


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
    _use_one_thread()
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    # A killed parent leaves its workers waiting for a queue that nobody fills.
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
