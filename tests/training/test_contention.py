"""When spinning is shortened, and that it is restored; which ranks are slow."""

import contextlib
import os
import time

import pytest
import torch

from maskwright.training import contention
from maskwright.training.contention import CpuTimes, SlowRanks, SpinControl, is_contended

START = CpuTimes(busy=100.0, idle=100.0, own=50.0)


def after(own: float, others: float, cores: int = 2, seconds: float = 2.0) -> CpuTimes:
    """Times after some seconds in which this process used `own` cores and other processes `others`."""
    busy = seconds * (own + others)
    return CpuTimes(START.busy + busy, START.idle + seconds * cores - busy, START.own + seconds * own)


@pytest.mark.parametrize(
    ("own", "others", "cores", "was_contended", "expected"),
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
def test_contention_needs_other_processes_and_no_idle_core(
    own: float, others: float, cores: int, was_contended: bool, expected: bool
) -> None:
    assert is_contended(START, after(own, others, cores), cores, was_contended) == expected


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


@pytest.mark.parametrize(
    ("seconds", "slow"),
    [
        ([0.1, 0.1, 0.1], []),
        ([0.1, 0.14, 0.1], []),
        ([0.1, 0.16, 0.1], [1]),
        ([0.1, 0.2], [1]),  # Of two, the faster one is the median.
        ([0.3, 0.1, 0.1, 0.4], [0, 3]),
        ([0.1], []),
    ],
)
def test_a_rank_over_one_and_a_half_times_the_median_is_named_once(seconds: list[float], slow: list[int]) -> None:
    ranks = SlowRanks()
    found = [(step, *each) for step in range(1, 201) for each in ranks.find(seconds)]
    assert [(step, rank) for step, rank, *_ in found] == [(50, rank) for rank in slow]
    for _, rank, own, ratio in found:
        assert own == pytest.approx(seconds[rank])
        assert ratio == pytest.approx(seconds[rank] / sorted(seconds)[(len(seconds) - 1) // 2])


def test_a_rank_that_becomes_slow_is_named_after_the_next_50_steps() -> None:
    ranks = SlowRanks()
    found = [step for step in range(1, 201) for _ in ranks.find([0.1, 0.1, 0.1 if step < 90 else 0.3])]
    assert found == [150]
