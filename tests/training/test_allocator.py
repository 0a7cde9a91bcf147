import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from maskwright.training import allocator

reports_memory = sys.platform.startswith("linux") and hasattr(ctypes.CDLL(None), "mallinfo2")

# What glibc has from the system outside of its heap, with a block of 48 MB in hand: before, and after.
MEASURING = """
import ctypes
from maskwright.training.allocator import keep_freed_memory

NAMES = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()

class Information(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in NAMES]

library = ctypes.CDLL(None)
library.mallinfo2.restype = Information
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
library.free.argtypes = (ctypes.c_void_p,)

def outside():
    before = library.mallinfo2().hblkhd
    block = library.malloc(48 << 20)
    taken = library.mallinfo2().hblkhd - before
    library.free(block)
    return taken

plain = outside()
assert keep_freed_memory()
kept = outside()
print(plain, kept, library.mallinfo2().keepcost)
"""


@pytest.mark.skipif(not reports_memory, reason="another C library")
def test_large_blocks_come_from_a_heap_that_is_kept() -> None:
    done = subprocess.run([sys.executable, "-c", MEASURING], capture_output=True, text=True, check=True)
    plain, kept, free_at_the_top = map(int, done.stdout.split())
    assert plain >= 48 << 20
    assert kept == 0
    assert free_at_the_top >= 48 << 20


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator.sys, "platform", "darwin")
    assert not allocator.keep_freed_memory()


HUGE = """
import torch
from maskwright.training.allocator import keep_freed_memory

def huge():
    with open("/proc/self/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("AnonHugePages"))

keep_freed_memory()
keep_freed_memory()
before = huge()
kept = [torch.ones(1 << 20) for _ in range(16)]
print(huge() - before)
"""


@pytest.mark.skipif(
    not (reports_memory and Path("/proc/self/smaps_rollup").exists() and allocator.gives_huge_pages_if_asked()),
    reason="no huge pages for the asking",
)
def test_large_tensors_lie_in_huge_pages() -> None:
    done = subprocess.run([sys.executable, "-c", HUGE], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 0  # Kilobytes of 64 MB: the system gives as many as it has.
