"""The C library's memory allocator, told to keep what training frees: each step asks for the same sizes again.

By default glibc gets every large block from the system and gives it back when it is freed, so that each step's tensors
are new pages that the kernel must first clear, one page fault per 4 KB.
"""

import ctypes
import sys

# glibc: malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
_KEPT = 2**31 - 1
_GROWTH = 64 << 20


def keep_freed_memory() -> bool:
    """Let glibc take large blocks from the heap, grow it in large pieces, and keep it until the process ends.

    Call it before the first large tensor. The peak stays what it was, but other programs get memory back only at
    the end. Does nothing where the C library is another (macOS, Windows, musl).

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
    return all(mallopt(name, value) == 1 for name, value in settings)
