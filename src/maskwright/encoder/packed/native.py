"""`int8.c`, compiled for processors of its kind; None where that cannot be done.

A C compiler is an advantage here, not a requirement: without one the same layers are computed by the libraries that
PyTorch brings (`dense.Int8Dense`), more slowly.
"""

import ctypes
import functools
import sys
from pathlib import Path

import torch

from maskwright.core.errors import DeviceError
from maskwright.encoder.packed.compiling import compiled

_SOURCE = Path(__file__).with_name("int8.c")
# The instructions by name and not "-march=native": what is kept runs on every processor that has these, whichever one
# of those that share a home compiled it. Tuning only orders them.
_NEEDED = {
    "avx512_f": "-mavx512f",
    "avx512_bw": "-mavx512bw",
    "avx512_dq": "-mavx512dq",
    "avx512_vl": "-mavx512vl",
    "avx512_vnni": "-mavx512vnni",
    "fma3": "-mfma",
}
_FLAGS = (
    "-std=gnu11",
    "-O3",
    *_NEEDED.values(),
    "-mtune=native",
    "-fno-math-errno",
    "-fno-strict-aliasing",
    "-fopenmp",
    "-fPIC",
    "-shared",
    "-Wl,--as-needed",
)


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
    capabilities = torch.cpu.get_capabilities()
    if not sys.platform.startswith("linux"):
        return DeviceError("the C code is for Linux")
    if missing := [name for name in _NEEDED if not capabilities.get(name)]:
        return DeviceError(f"this processor lacks instructions of the C code ({', '.join(missing).upper()})")
    try:
        about = [torch.__version__, str(capabilities.get("cpu_name"))]
        found = compiled(_SOURCE, _FLAGS, _thread_library(), about)
    except DeviceError as error:
        return error.with_traceback(None)
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    found.encode.argtypes = (pointer, pointer, pointer, ctypes.c_int)
    found.transform.argtypes = (pointer, pointer, number, number, pointer, pointer, ctypes.c_int)
    found.encode.restype = found.transform.restype = None
    return found


def _thread_library() -> list[str]:
    # PyTorch's own, so that its threads are used and no second team of them waits on the same cores.
    folder = Path(torch.__file__).parent / "lib"
    return [str(path) for path in sorted(folder.glob("libgomp*.so*"))[:1]]
