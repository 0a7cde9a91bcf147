"""Threads by the CPU quota of a container, the size of a call, and the load of other processes."""

from pathlib import Path

import pytest
import torch

from maskwright.machine import threads
from maskwright.machine.devices import choose_device
from maskwright.machine.threads import cpu_quota, inference_threads, threads_for


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="ascii")
    return root


GROUP = "proc/self/cgroup"
TOP = "sys/fs/cgroup"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({GROUP: "0::/\n", f"{TOP}/cpu.max": "150000 100000\n"}, 1.5),
        ({GROUP: "0::/\n", f"{TOP}/cpu.max": "max 100000\n"}, None),
        ({GROUP: "0::/a/b\n", f"{TOP}/a/b/cpu.max": "400000 100000\n", f"{TOP}/a/cpu.max": "200000 100000\n"}, 2.0),
        # The path of the host, of which the container sees the top only.
        ({GROUP: "0::/docker/4f\n", f"{TOP}/cpu.max": "50000 100000\n"}, 0.5),
        (
            {
                GROUP: "9:memory:/m\n4:cpu,cpuacct:/c\n",
                f"{TOP}/cpu,cpuacct/c/cpu.cfs_quota_us": "300000\n",
                f"{TOP}/cpu,cpuacct/c/cpu.cfs_period_us": "100000\n",
            },
            3.0,
        ),
        ({GROUP: "1:cpu:/\n", f"{TOP}/cpu/cpu.cfs_quota_us": "-1\n", f"{TOP}/cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({GROUP: "0::/\n", f"{TOP}/cpu.max": "damaged\n"}, None),
    ],
)
def test_the_quota_is_the_smallest_of_all_groups(files: dict[str, str], expected: float | None, tmp_path: Path) -> None:
    assert cpu_quota(write(tmp_path, files)) == expected


@pytest.mark.parametrize(
    ("flops", "precision", "most", "busy", "cores", "expected"),
    [
        (5e7, "fp32", 16, 0.0, 16, 1),
        (5e9, "fp32", 16, 0.0, 16, 16),
        (3e8, "int8", 2, 0.0, 2, 1),
        (3e8, "fp32", 2, 0.0, 2, 2),
        (3e8, "fp32", 2, 0.2, 2, 2),
        (3e8, "fp32", 2, 1.0, 2, 1),
        (5e9, "fp32", 2, 9.0, 2, 1),
        (5e9, "fp32", 4, 3.0, 16, 4),
        (5e9, "fp32", 16, 3.0, 16, 13),
    ],
)
def test_threads_follow_the_work_and_the_free_cores(flops, precision, most, busy, cores, expected):
    assert threads_for(flops, precision, most, busy, cores) == expected


def test_a_call_beside_other_processes_has_fewer_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    monkeypatch.setattr(threads, "_cores", lambda: 2)
    monkeypatch.setattr(threads, "_quota_threads", lambda: 2)
    monkeypatch.setattr(threads._load, "cores", lambda: 1.0)
    try:
        torch.set_num_threads(2)
        with inference_threads(1e9, torch.device("cpu")):
            assert torch.get_num_threads() == 1
            with inference_threads(1e9, torch.device("cpu")):  # As from another thread.
                assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
        monkeypatch.setattr(threads, "_quota_threads", lambda: 1)
        choose_device("cpu")  # Every command calls it.
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_a_container_has_as_many_threads_as_its_quota_unless_the_user_sets_them(monkeypatch):
    monkeypatch.setattr(threads, "cpu_quota", lambda: 1.5)
    monkeypatch.setattr(threads, "_cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert threads._quota_threads.__wrapped__() == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert threads._quota_threads.__wrapped__() == 8
