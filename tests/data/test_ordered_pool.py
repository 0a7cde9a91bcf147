"""Results and errors in the order of the items, whatever the number of processes."""

import importlib
import os
import signal
import sys
import time
from collections.abc import Iterator

import pytest

from maskwright.core.errors import DataError
from maskwright.data.pool import kept_workers, ordered_map


def slow_square(number: int) -> int:
    time.sleep(0.02 * (number % 3 == 0))
    return number * number


def refuse_odd(number: int) -> int:
    if number % 2:
        raise DataError(f"{number} is odd", todo="Take another")
    print("a stray print must not get among the answers")
    return number


def imports_torch(_: int) -> bool:
    importlib.import_module("maskwright.data.cleaning.block")
    return "torch" in sys.modules


def tokenizers_parallelism(_: int) -> str | None:
    return os.environ.get("TOKENIZERS_PARALLELISM")


def die(number: int) -> int:
    os._exit(number)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_results_come_in_order(workers: int) -> None:
    assert list(ordered_map(slow_square, range(20), workers=workers)) == [number**2 for number in range(20)]


@pytest.mark.parametrize("workers", [1, 2])
def test_error_comes_in_its_turn(workers: int) -> None:
    results = ordered_map(refuse_odd, [0, 2, 4, 6, 7, 8, 9], workers=workers)
    assert [next(results) for _ in range(4)] == [0, 2, 4, 6]
    with pytest.raises(DataError, match=r"7 is odd. Take another"):
        next(results)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("good", [1, 5])
def test_error_of_reading_comes_after_the_items_before_it(workers: int, good: int) -> None:
    def items() -> Iterator[int]:
        yield from range(0, 2 * good, 2)
        raise DataError("the file ends here")

    results = ordered_map(refuse_odd, items(), workers=workers)
    assert [next(results) for _ in range(good)] == list(range(0, 2 * good, 2))
    with pytest.raises(DataError, match="the file ends here"):
        next(results)


def test_death_of_a_worker_is_an_error() -> None:
    with pytest.raises(DataError, match=r"exit code 3.*`--workers 1`"):
        list(ordered_map(die, [3, 3, 3, 3], workers=2))


def test_workers_do_without_torch() -> None:
    assert not any(ordered_map(imports_torch, range(4), workers=2))


def test_workers_leave_the_cores_to_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    assert set(ordered_map(tokenizers_parallelism, range(4), workers=2)) == {"false"}
    assert set(ordered_map(tokenizers_parallelism, range(4), workers=1)) == {"true"}


def test_reading_is_only_a_little_ahead() -> None:
    taken = 0

    def items() -> Iterator[int]:
        nonlocal taken
        for number in range(100):
            taken += 1
            yield number

    results = ordered_map(slow_square, items(), workers=2)
    next(results)
    assert taken <= 6
    results.close()  # type: ignore[attr-defined]


def process(_: int) -> int:
    time.sleep(0.05)
    return os.getpid()


def is_running(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


def test_kept_workers_serve_one_map_after_the_other_and_end_with_the_block() -> None:
    with kept_workers():
        first = set(ordered_map(process, range(8), workers=2))
        with kept_workers():
            second = set(ordered_map(process, range(8), workers=2))
        third = set(ordered_map(process, range(12), workers=3))
        assert len(first) == 2
        assert first == second
        assert len(third) == 3
        assert first < third
        assert all(map(is_running, third))
    assert not any(map(is_running, third))
    assert not first & set(ordered_map(process, range(8), workers=2))


def test_a_kept_worker_that_died_is_replaced_and_no_more_are_kept_than_a_map_has() -> None:
    with kept_workers():
        first = set(ordered_map(process, range(8), workers=2))
        os.kill(min(first), signal.SIGKILL)
        time.sleep(0.2)
        second = set(ordered_map(process, range(8), workers=2))
        assert len(first & second) == 1
        within = [list(ordered_map(process, range(9), workers=2)) for _ in ordered_map(process, range(9), workers=2)]
        kept = {number for numbers in within for number in numbers} | second
        assert sum(map(is_running, kept)) <= 4
    assert not any(map(is_running, kept))


def test_a_map_that_outlives_the_block_ends_its_own_workers() -> None:
    with kept_workers():
        results = ordered_map(process, range(9), workers=2)
        first = next(results)
    assert first in {first, *results}
    assert not is_running(first)


@pytest.mark.parametrize("number", [7, 3])
def test_workers_that_may_still_be_at_work_are_not_kept(number: int) -> None:
    with kept_workers():
        first = set(ordered_map(process, range(8), workers=2))
        with pytest.raises(DataError, match="is odd"):
            list(ordered_map(refuse_odd, [0, 2, 4, number, 6, 8], workers=2))
        results = ordered_map(slow_square, range(20), workers=2)
        next(results)
        results.close()  # type: ignore[attr-defined]
        assert not first & set(ordered_map(process, range(8), workers=2))
        assert list(ordered_map(slow_square, range(9), workers=2)) == [each**2 for each in range(9)]
