import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from maskwright.training.ranks import allocator

reports_memory = sys.platform.startswith("linux") and hasattr(ctypes.CDLL(None), "mallinfo2")

# What glibc has from the system outside of its heap, with a block of 48 MB in hand: before, and after; what is free at
# the top of the heap; and kilobytes of the heap that are requested as huge pages after the first and the second call.
MEASURING = """
import ctypes
from pathlib import Path
from maskwright.training.ranks.allocator import keep_freed_memory

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

def requested():
    assert keep_freed_memory()
    heap, size, asked = False, 0, 0
    for line in Path("/proc/self/smaps").read_text().splitlines() if Path("/proc/self/smaps").exists() else ():
        heap = line.rstrip().endswith("[heap]") if line[0] in "0123456789abcdef" else heap
        size = int(line.split()[1]) if line.startswith("Size:") else size
        asked += size if heap and line.startswith("VmFlags:") and " hg" in line else 0
    return asked

plain, first, second, kept = outside(), requested(), requested(), outside()
print(plain, kept, library.mallinfo2().keepcost, first, second)
"""


@pytest.mark.skipif(not reports_memory, reason="another C library")
def test_large_blocks_come_from_a_heap_that_is_kept_in_huge_pages_where_the_system_grants_them() -> None:
    done = subprocess.run([sys.executable, "-c", MEASURING], capture_output=True, text=True, check=True)
    plain, kept, free_at_the_top, first, second = map(int, done.stdout.split())
    assert plain >= 48 << 20
    assert kept == 0
    assert free_at_the_top >= 48 << 20
    assert first == second  # Requested once.
    if Path("/proc/self/smaps").exists() and allocator.grants_huge_pages():
        assert first > 64 << 10
