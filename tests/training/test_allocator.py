import ctypes
import subprocess
import sys

import pytest

from maskwright.training import allocator

is_glibc = sys.platform.startswith("linux") and hasattr(ctypes.CDLL(None), "gnu_get_libc_version")

# Counts the page faults of taking and freeing 48 MB again and again, before and after.
COUNTING = """
import resource, torch
from maskwright.training.allocator import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        torch.zeros(12 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
plain = faults()
assert keep_freed_memory()
faults()
print(plain, faults())
"""


@pytest.mark.skipif(not is_glibc, reason="another C library")
def test_memory_that_is_taken_again_costs_no_page_faults() -> None:
    done = subprocess.run([sys.executable, "-c", COUNTING], capture_output=True, text=True, check=True)
    plain, kept = map(int, done.stdout.split())
    assert plain > 1000
    assert kept < plain / 2  # A page or a huge page: what the second block costs differs from machine to machine.


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator.sys, "platform", "darwin")
    assert not allocator.keep_freed_memory()
