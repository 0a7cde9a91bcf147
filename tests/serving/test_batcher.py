"""The queue of the server: results reach their requests, batches form, and what cannot be served is refused."""

import asyncio
import threading
import time

import pytest

from maskwright.core.errors import DataError
from maskwright.serving.batcher import MAX_INPUTS, Batcher, Call, QueueFullError, _characters

CALL = Call("model", "embed")


class Slow:
    """Doubles numbers, once it may; negative ones are errors."""

    def __init__(self) -> None:
        self.may_run = threading.Event()
        self.batches: list[tuple[Call, list[int]]] = []

    def __call__(self, call: Call, inputs: list[int]) -> list[int]:
        self.may_run.wait(10)
        self.batches.append((call, inputs))
        if min(inputs) < 0:
            raise DataError("negative")
        return [2 * each for each in inputs]


async def submitted(slow: Slow, requests: list[tuple[Call, list[int]]], max_waiting: int = 100) -> list[object]:
    """Submit requests in order while the first one runs; returns results or exceptions."""
    batcher = Batcher(slow, max_waiting=max_waiting)
    working = asyncio.create_task(batcher.work())
    tasks = []
    for call, inputs in requests:
        tasks.append(asyncio.create_task(batcher.submit(call, inputs, timeout=10)))
        await asyncio.sleep(0.01)
    slow.may_run.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    working.cancel()
    return list(results)


def test_what_waits_for_the_same_call_shares_a_batch_and_each_request_gets_its_own_results() -> None:
    slow, other = Slow(), Call("model", "embed", (("normalize", True),))
    requests = [(CALL, [1]), (CALL, [2, 3]), (other, [444]), (CALL, [5])]
    assert asyncio.run(submitted(slow, requests)) == [[2], [4, 6], [888], [10]]
    assert slow.batches == [(CALL, [1]), (CALL, [2, 3, 5]), (other, [444])]


def test_a_bad_request_does_not_fail_the_others_of_its_batch() -> None:
    first, good, bad, last = asyncio.run(submitted(Slow(), [(CALL, [1]), (CALL, [2]), (CALL, [-1]), (CALL, [3])]))
    assert (first, good, last) == ([2], [4], [6])
    assert isinstance(bad, DataError)


def test_a_batch_has_a_largest_size() -> None:
    slow = Slow()
    asyncio.run(submitted(slow, [(CALL, [1]), (CALL, [10**4000] * 20), (CALL, [10**4000] * 20), (CALL, [4])]))
    assert [len(inputs) for _, inputs in slow.batches] == [1, 21, 20]
    slow = Slow()
    asyncio.run(submitted(slow, [(CALL, [1]), (CALL, [2] * (MAX_INPUTS - 1)), (CALL, [3, 3]), (CALL, [4])]))
    assert [len(inputs) for _, inputs in slow.batches] == [1, 3, MAX_INPUTS - 1]


def test_characters_are_those_of_the_texts() -> None:
    assert _characters([["a" * 10, "b"], {"question": "c", "options": ["d", "\n"]}, "e"]) == 15


def test_large_requests_of_another_call_do_not_cut_a_batch() -> None:
    slow, other = Slow(), Call("other", "embed")
    requests = [(CALL, [1]), (CALL, [1]), (other, [1] * MAX_INPUTS), *[(CALL, [1])] * 5]
    asyncio.run(submitted(slow, requests))
    assert [(call, len(inputs)) for call, inputs in slow.batches] == [(CALL, 1), (CALL, 6), (other, MAX_INPUTS)]


def call(number: int) -> Call:
    return Call("model", "embed", (("top_k", number),))


@pytest.mark.parametrize("of_one_call", [False, True])
def test_a_small_request_waits_for_no_large_one_that_has_not_begun(of_one_call: bool) -> None:
    slow, large = Slow(), [10**4000] * 20
    requests = [(call(0 if of_one_call else number), large) for number in range(30)]
    asyncio.run(submitted(slow, [*requests, (call(99), [1])]))
    assert [len(inputs) for _, inputs in slow.batches] == [20, 1, *[20] * 29]


def test_a_large_request_waits_for_small_ones_that_cost_as_much() -> None:
    slow, small = Slow(), 10**9
    requests = [(call(0), [1]), (call(1), [small] * 5), *((call(2 + number), [small]) for number in range(12))]
    asyncio.run(submitted(slow, [*requests, (call(20), [small] * 4)]))
    assert [len(inputs) for _, inputs in slow.batches] == [1, 1, 1, 1, 1, 1, 5, *[1] * 7, 4]
    assert [each.options[0][1] for each, _ in slow.batches[:8]] == [0, 2, 3, 4, 5, 6, 1, 7]


def test_a_full_queue_refuses_and_answers_what_waits() -> None:
    results = asyncio.run(submitted(Slow(), [(CALL, [1]), (CALL, [2]), (CALL, [3])], max_waiting=1))
    assert results[:2] == [[2], [4]]
    assert isinstance(results[2], QueueFullError)


def test_a_request_that_times_out_is_dropped() -> None:
    slow = Slow()

    async def run() -> None:
        batcher = Batcher(slow, max_waiting=10)
        working = asyncio.create_task(batcher.work())
        first = asyncio.create_task(batcher.submit(CALL, [1], timeout=10))
        await asyncio.sleep(0.01)
        with pytest.raises(TimeoutError):
            await batcher.submit(CALL, [2], timeout=0.01)
        slow.may_run.set()
        assert await first == [2]
        assert await batcher.submit(CALL, [3], timeout=10) == [6]
        working.cancel()

    asyncio.run(run())
    assert [inputs for _, inputs in slow.batches] == [[1], [3]]


def test_a_computation_ends_once_its_requests_have_timed_out() -> None:
    async def use() -> list[int]:
        def run(call: Call, inputs: list[int]) -> list[int]:
            for _ in range(500 if inputs == [1] else 0):
                time.sleep(0.01)
                batcher.check_needed()
            return inputs

        batcher = Batcher(run, max_waiting=2)
        working = asyncio.create_task(batcher.work())
        with pytest.raises(TimeoutError):
            await batcher.submit(CALL, [1], timeout=0.05)
        results = await batcher.submit(CALL, [2], timeout=2)
        working.cancel()
        return results

    assert asyncio.run(use()) == [2]
