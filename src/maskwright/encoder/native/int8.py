"""`int8.c`, the code for products of 8-bit numbers; None where it cannot be had.

Without it the same layers are computed by the libraries that PyTorch brings (`packed.dense.Int8Dense`), more slowly.
"""

import ctypes
import functools

from maskwright.core.errors import DeviceError
from maskwright.encoder.native.library import AVX512, load

_NEEDED = {**AVX512, "avx512_vnni": "-mavx512vnni"}


def library() -> ctypes.CDLL | None:
    """Return the compiled code, compiling it if this was not done yet: a second, once a machine."""
    found = _found()
    return None if isinstance(found, DeviceError) else found


def problem() -> DeviceError | None:
    """Return why there is no compiled code, and what would help."""
    found = _found()
    return found if isinstance(found, DeviceError) else None


@functools.cache
def _found() -> ctypes.CDLL | DeviceError:
    found = load("int8.c", _NEEDED)
    if isinstance(found, ctypes.CDLL):
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        found.encode.argtypes = (pointer, pointer, pointer, ctypes.c_int)
        found.transform.argtypes = (pointer, pointer, number, number, pointer, pointer, ctypes.c_int)
        found.numbers_needed.argtypes = (number, number, ctypes.c_int)
        found.encode.restype = found.transform.restype = None
        found.numbers_needed.restype = number
    return found
