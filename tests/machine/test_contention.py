"""The load of other processes; when spinning is shortened, and that it is restored."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from maskwright.machine import contention
from maskwright.machine.contention import CpuTimes, OtherLoad, SpinControl, is_contended

START = CpuTimes(busy=100.0, idle=100.0, process=50.0)


def after(process: float, others: float, cores: int = 2, seconds: float = 2.0) -> CpuTimes:
    """Times after some seconds in which this process used `process` cores and other processes `others`."""
    busy = seconds * (process + others)
    return CpuTimes(START.busy + busy, START.idle + seconds * cores - busy, START.process + seconds * process)


@pytest.mark.parametrize(
    ("process", "others", "cores", "was_contended", "expected"),
    [
        (1.1, 0.9, 2, False, True),
        (2.0, 0.0, 2, False, False),
        (1.85, 0.15, 2, False, False),
        (1.85, 0.15, 2, True, True),
        (1.95, 0.05, 2, True, False),
        (2.0, 4.0, 16, False, False),  # enough cores for all
        (2.0, 4.0, 16, True, False),
    ],
)
def test_contention_needs_other_processes_and_no_idle_core(process, others, cores, was_contended, expected):
    assert is_contended(START, after(process, others, cores), cores, was_contended) == expected


def test_without_readings_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_contended(None, START, 2)
    monkeypatch.setattr(CpuTimes, "now", classmethod(lambda _: None))
    monkeypatch.setattr(contention, "_CHECK_SECONDS", 0.0)
    assert not SpinControl().check()


def num_threads() -> int:
    return len(os.listdir("/proc/self/task"))


def wait_for(count: int) -> None:
    for _ in range(500):
        if num_threads() <= count:
            return
        time.sleep(0.01)
    raise AssertionError("the idle team still exists")


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="no /proc")
def test_an_idle_team_exists_while_other_processes_compete(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = [START]
    monkeypatch.setattr(contention, "_CHECK_SECONDS", 0.0)
    monkeypatch.setattr(CpuTimes, "now", classmethod(lambda _: readings[-1]))
    monkeypatch.setattr(contention.os, "cpu_count", lambda: 2)
    values = torch.randn(300, 300)
    expected, before = values @ values, num_threads()
    with contextlib.closing(SpinControl()) as control:
        readings.append(after(1.0, 1.0))
        assert control.check()
        assert num_threads() > before
        assert torch.equal(values @ values, expected)
        readings.append(after(3.0, 1.0))  # The other process has ended.
        assert not control.check()
        wait_for(before)
        readings.append(after(4.0, 2.0))
        assert control.check()
    wait_for(before)


def test_the_load_of_others_is_that_of_the_last_half_second_or_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    readings, clock = [START], [100.0]
    monkeypatch.setattr(CpuTimes, "now", classmethod(lambda _: readings[-1]))
    monkeypatch.setattr(contention.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(contention.os, "cpu_count", lambda: 2)
    runnable = [3.0]
    monkeypatch.setattr(contention, "_runnable_others", lambda: runnable[-1])
    load = OtherLoad()
    assert load.cores() == 3.0
    readings.append(after(0.5, 1.0, seconds=0.12))
    clock[0] += 0.08
    assert load.cores() == 3.0
    clock[0] += 0.04
    assert load.cores() == pytest.approx(1.0)  # a single moment counts for a tenth of a second
    readings.append(after(0.5, 1.5, seconds=0.72))
    clock[0] += 0.4
    assert load.cores() == pytest.approx(1.0)  # read less than half a second ago
    clock[0] += 0.2
    assert load.cores() == pytest.approx(1.6)
    readings.append(START)
    clock[0] += 60
    assert load.cores() == 3.0  # an average over a minute would say nothing about now
    for now, seen in ((1.0, 1.0), (2.0, 1.0), (0.0, 0.0), (3.0, 0.0)):
        runnable.append(now)
        assert load.cores() == seen  # a thread that ran for a moment does not count


def test_running_threads_of_this_process_are_not_those_of_others(tmp_path: Path) -> None:
    (tmp_path / "loadavg").write_text("2.10 1.00 0.50 5/321 99\n")
    for task, state in {"10": "R", "11": "R", "12": "S"}.items():
        (tmp_path / "self/task" / task).mkdir(parents=True)
        (tmp_path / "self/task" / task / "stat").write_text(f"{task} (a (name) R) {state} 1 2 3\n")
    (tmp_path / "self/task/13").mkdir()  # It has just ended.
    assert contention._runnable_others(tmp_path) == 3.0
    assert contention._runnable_others(tmp_path / "absent") == 0.0


def test_a_busy_process_is_seen_at_once() -> None:
    if not os.path.exists("/proc/loadavg"):
        pytest.skip("no /proc")
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.2)
        assert max(OtherLoad().cores() for _ in range(5)) >= 1
    finally:
        busy.kill()
        busy.wait()
