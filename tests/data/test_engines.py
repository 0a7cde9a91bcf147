"""Results and errors in the order of the items, for any number of processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from maskwright.core.errors import DataError
from maskwright.data.engines import ordered_map, use_engine
from maskwright.training.start.prepared_text import prepare


def slow_square(number: int) -> int:
    time.sleep(0.02 * (number % 3 == 0))
    return number * number


def refuse_odd(number: int) -> int:
    if number % 2:
        raise DataError(f"{number} is odd", hint="Take another")
    return number


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_order_and_reading_is_only_a_little_ahead(workers: int) -> None:
    taken = []
    results = ordered_map(slow_square, (taken.append(number) or number for number in range(20)), workers=workers)
    assert next(results) == 0
    assert len(taken) <= 6
    assert list(results) == [number**2 for number in range(1, 20)]


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("workers", [1, 2])
def test_error_comes_in_its_turn(workers: int) -> None:
    results = ordered_map(refuse_odd, [0, 2, 4, 6, 7, 8, 9], workers=workers)
    assert [next(results) for _ in range(4)] == [0, 2, 4, 6]
    with pytest.raises(DataError, match=r"7 is odd. Take another"):
        next(results)


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("workers", [1, 2])
def test_error_of_reading_comes_after_the_items_before_it(workers: int) -> None:
    def items() -> Iterator[int]:
        yield from range(0, 10, 2)
        raise DataError("the file ends here")

    results = ordered_map(refuse_odd, items(), workers=workers)
    assert [next(results) for _ in range(5)] == [0, 2, 4, 6, 8]
    with pytest.raises(DataError, match="the file ends here"):
        next(results)


def test_death_of_a_worker_is_an_error() -> None:
    with pytest.raises(DataError, match="`--workers 1`"):
        list(ordered_map(os._exit, [3] * 4, workers=2))


def test_any_executor_is_an_engine() -> None:
    with ThreadPoolExecutor(2) as executor, use_engine(executor), use_engine(None):
        results = ordered_map(refuse_odd, [0, 2, 4, 7])
        assert [next(results) for _ in range(3)] == [0, 2, 4]
        with pytest.raises(DataError, match="7 is odd"):
            next(results)


def test_unknown_engine_and_no_workers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"'rya'.*local, ray.*Did you mean 'ray'"), use_engine("rya"):
        pass
    with pytest.raises(DataError, match=r"workers is 0.*1 or more"):
        prepare("absent.txt", out=tmp_path, workers=0)


SCRIPT = """
import operator, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell's background jobs ignore it.
from maskwright.data.engines import ordered_map
results = ordered_map(operator.neg, {items}, workers=2)
print(next(results), "torch" in sys.modules, flush=True)
{then}
"""


def script(folder: Path, then: str, items: str = "range(100)") -> "subprocess.Popen[str]":
    (folder / "here").mkdir()
    (folder / "script.py").write_text(SCRIPT.format(then=then, items=items))
    # What a worker would import instead of the standard library's modules, had it the current directory on its path.
    for name in ("pickle", "signal", "tempfile", "queue"):
        (folder / "here" / f"{name}.py").write_text("raise SystemExit('imported from the current directory')")
    command = [sys.executable, str(folder / "script.py")]
    return subprocess.Popen(command, cwd=folder / "here", stdout=-1, stderr=-1, text=True, start_new_session=True)


def test_a_script_needs_no_guard_and_workers_do_not_import_the_current_directory(tmp_path: Path) -> None:
    assert script(tmp_path, "print(sum(results))").communicate(timeout=120) == ("0 False\n-4950\n", "")


def children_of(process: int) -> list[int]:
    return list(map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split()))


def all_end(processes: list[int]) -> bool:
    for _ in range(200):
        if not any(map(is_running, processes)):
            return True
        time.sleep(0.1)
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_workers_end_with_a_killed_parent(tmp_path: Path) -> None:
    parent = script(tmp_path, "import time; time.sleep(600)")
    assert parent.stdout.readline() == "0 False\n"
    children = children_of(parent.pid)
    assert len(children) >= 2
    parent.kill()
    parent.communicate()
    assert all_end(children)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ctrl_c_ends_the_parent_and_its_workers(tmp_path: Path) -> None:
    parent = script(tmp_path, "import time; time.sleep(600)", "(number for number in iter(int, 1))")
    assert parent.stdout.readline() == "0 False\n"
    children = children_of(parent.pid)
    os.killpg(parent.pid, signal.SIGINT)  # as a terminal does: to all of them
    parent.communicate(timeout=60)
    assert parent.returncode == -signal.SIGINT
    assert all_end(children)
