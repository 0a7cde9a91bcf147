"""Requests wait in a bounded queue, and those that wait for the same computation share a batch."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

MAX_WAITING = 256
MAX_BODY = 1_048_576
TIMEOUT = 30.0
MAX_INPUTS = 1024
"""Inputs of a request, and of a batch of several; the model cuts them into forward passes of its own."""
MAX_BATCH_CHARACTERS = 100_000
"""Characters of a batch of several requests: one that is in it waits for little more than its own computation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a server: requests in the queue, bytes of a request's body, and seconds from it to its answer."""

    max_waiting: int = MAX_WAITING
    max_body: int = MAX_BODY
    timeout: float = TIMEOUT


class QueueFullError(Exception):
    """The queue is full."""


@dataclass(frozen=True, slots=True)
class Call:
    """A computation: requests for equal ones may share a batch."""

    model: str
    task: str
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(slots=True, eq=False)
class _Request:
    call: Call
    inputs: Sequence[Any]
    characters: int
    answer: asyncio.Future[list[Any]]


class AbandonedError(Exception):
    """Nobody waits for the results any more."""


def _characters(value: Any) -> int:
    """Return the number of characters of the texts in plain data."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        value = list(value.values())
    return sum(map(_characters, value)) if isinstance(value, list | tuple) else len(str(value))


class Batcher:
    """Runs calls one after another in a thread of its own; whatever waits meanwhile becomes the next batch.

    There is no waiting time to fill a batch: a request on an idle server starts at once, and under load the batches
    grow by themselves. The cheapest request is next, until the oldest is due (see `_next`). `run` returns one result
    per input. If it raises, a batch of several requests is run again in halves, so that a bad request does not fail
    the others. `run` may call `check_needed` meanwhile, to end a computation whose requests have timed out.
    """

    def __init__(self, run: Callable[[Call, list[Any]], list[Any]], *, max_waiting: int) -> None:
        self._run, self._max_waiting = run, max_waiting
        self._waiting: list[_Request] = []
        self._computing: Sequence[_Request] = ()
        self._preferred = 0
        """Characters of the batches since the oldest request became the oldest."""
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    async def submit(self, call: Call, inputs: Sequence[Any], *, timeout: float) -> list[Any]:
        """Return one result per input.

        Raises QueueFullError if too many requests wait, and TimeoutError after `timeout` seconds; a request that still
        waits is then dropped.
        """
        if len(self._waiting) >= self._max_waiting:
            raise QueueFullError
        request = _Request(call, inputs, _characters(inputs), asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        self._arrived.set()
        try:
            return await asyncio.wait_for(request.answer, timeout)
        finally:
            if request in self._waiting:
                self._waiting.remove(request)

    def check_needed(self) -> None:
        """Raise AbandonedError if no request waits for what is being computed."""
        if all(request.answer.done() for request in self._computing):
            raise AbandonedError

    async def work(self) -> None:
        """Answer requests until cancelled."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, thread_name_prefix="model") as thread:
            while True:
                await self._arrived.wait()
                if not (batch := self._next()):
                    self._arrived.clear()
                    continue
                outcomes = await loop.run_in_executor(thread, self._outcomes, batch)
                for request, outcome in zip(batch, outcomes, strict=True):
                    if request.answer.done():  # It timed out meanwhile.
                        continue
                    if isinstance(outcome, Exception):
                        request.answer.set_exception(outcome)
                    else:
                        request.answer.set_result(outcome)

    def _next(self) -> list[_Request]:
        """Take the cheapest request, or the oldest one if it is due; and those for the same call that fit into a batch.

        The oldest is due once the batches that were preferred to it have cost as much as it does: a small request waits
        for few large ones, and a large one at most twice as long as in order of arrival.
        """
        if not self._waiting:
            return []
        oldest, by_cost = self._waiting[0], sorted(self._waiting, key=lambda each: each.characters)
        first = oldest if self._preferred + by_cost[0].characters > oldest.characters else by_cost[0]
        chosen, size, characters = {first}, len(first.inputs), first.characters
        for request in by_cost:
            if request is first or request.call != first.call:
                continue
            if size + len(request.inputs) <= MAX_INPUTS and characters + request.characters <= MAX_BATCH_CHARACTERS:
                chosen.add(request)
                size, characters = size + len(request.inputs), characters + request.characters
        self._preferred = 0 if oldest in chosen else self._preferred + characters
        batch = [each for each in self._waiting if each in chosen]
        self._waiting = [each for each in self._waiting if each not in chosen]
        return batch

    def _outcomes(self, batch: Sequence[_Request]) -> list[list[Any] | Exception]:
        self._computing = batch
        try:
            self.check_needed()
            inputs = [each for request in batch for each in request.inputs]
            results = self._run(batch[0].call, inputs)
            if len(results) != len(inputs):
                raise RuntimeError(f"{len(results)} results for {len(inputs)} inputs")
        except Exception as error:
            half = len(batch) // 2
            return [error] if half == 0 else self._outcomes(batch[:half]) + self._outcomes(batch[half:])
        outcomes, start = list[list[Any] | Exception](), 0
        for request in batch:
            outcomes.append(results[start : start + len(request.inputs)])
            start += len(request.inputs)
        return outcomes
