"""Settings of glibc's allocator that keep freed memory, since each training step asks for the same sizes again.

By default glibc returns every large block to the system, so that each step's tensors are new pages that the kernel
must first clear, one page fault per 4 KB. Huge pages (2 MB) are requested where the system grants them on request.
"""

import contextlib
import ctypes
import functools
import mmap
import os
import sys
from pathlib import Path

# glibc: malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
_KEPT = 2**31 - 1
_GROWTH = 64 << 20
_HUGE_PAGE = 2 << 20
_REQUESTED = 1900 << 20
"""Bytes at the start of the heap that are requested as huge pages; glibc keeps at most `_KEPT` when it is freed."""
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def keep_freed_memory() -> bool:
    """Make glibc serve large blocks from the heap and keep freed memory until the process ends; True if it did.

    Call it before the first large tensor. The peak is unchanged, but other programs get memory back only at the end.
    Does nothing with another C library (macOS, Windows, musl), and nothing more when called again.
    """
    if not sys.platform.startswith("linux"):
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return False
    library.mallopt.argtypes, library.mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    settings = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, _KEPT), (_TOP_PAD, _GROWTH))
    kept = all(library.mallopt(name, value) == 1 for name, value in settings)
    if kept and grants_huge_pages():
        _request_huge_pages()
    return kept


def grants_huge_pages() -> bool:
    """Return whether the system gives huge pages to programs that request them (Linux, "madvise")."""
    with contextlib.suppress(OSError):
        return "[madvise]" in _HUGE_PAGES.read_text(encoding="ascii")
    return False


@functools.cache
def _request_huge_pages() -> None:
    # Grows the heap without touching it, so no memory is used yet.
    library = ctypes.CDLL(None)
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    size = min(_REQUESTED, free // 2)
    library.malloc.argtypes, library.malloc.restype = (ctypes.c_size_t,), ctypes.c_void_p
    library.free.argtypes, library.free.restype = (ctypes.c_void_p,), None
    library.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    begin = library.malloc(size)
    if begin is None:  # The system does not overcommit.
        return
    first = -(-begin // _HUGE_PAGE) * _HUGE_PAGE
    library.madvise(first, begin + size - first, mmap.MADV_HUGEPAGE)
    library.free(begin)
