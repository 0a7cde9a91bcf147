"""The C library's memory allocator, told to keep what training frees: each step asks for the same sizes again.

By default glibc gets every large block from the system and gives it back when it is freed, so that each step's tensors
are new pages that the kernel must first clear, one page fault per 4 KB. Pages of 2 MB are asked for where that helps.
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
_ASKED = 1900 << 20
"""Bytes of the heap's beginning that are asked to lie in huge pages: what glibc keeps when it is freed (`_KEPT`)."""
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_WHERE_ASKED = "[madvise]"


def keep_freed_memory() -> bool:
    """Let glibc take large blocks from the heap, grow it in large pieces, and keep it until the process ends.

    Call it before the first large tensor. The peak stays what it was, but other programs get memory back only at
    the end. Called again it changes nothing. Does nothing where the C library is another (macOS, Windows, musl).

    Returns:
        Whether the settings were taken.
    """
    if not sys.platform.startswith("linux"):
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return False
    mallopt = library.mallopt
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    settings = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, _KEPT), (_TOP_PAD, _GROWTH))
    taken = all(mallopt(name, value) == 1 for name, value in settings)
    if taken and gives_huge_pages_if_asked():
        _ask_for_huge_pages()
    return taken


def gives_huge_pages_if_asked() -> bool:
    """Say whether the system lays memory out in pages of 2 MB where a program asks for it (Linux, "madvise")."""
    with contextlib.suppress(OSError):
        return _WHERE_ASKED in _HUGE_PAGES.read_text(encoding="ascii")
    return False


@functools.cache
def _ask_for_huge_pages() -> None:
    """Let the heap grow, and ask for huge pages there, once. Nothing is touched, so nothing is taken."""
    library = ctypes.CDLL(None)
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    size = min(_ASKED, free // 2)
    library.malloc.argtypes, library.malloc.restype = (ctypes.c_size_t,), ctypes.c_void_p
    library.free.argtypes, library.free.restype = (ctypes.c_void_p,), None
    library.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    begin = library.malloc(size)
    if begin is None:  # A system that promises no more memory than it has.
        return
    first = -(-begin // _HUGE_PAGE) * _HUGE_PAGE
    library.madvise(first, begin + size - first, mmap.MADV_HUGEPAGE)
    library.free(begin)
