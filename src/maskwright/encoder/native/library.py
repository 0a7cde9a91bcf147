"""One of this folder's C files, compiled for processors of this kind; or why that cannot be done."""

import ctypes
import sys
from collections.abc import Mapping
from pathlib import Path

import torch

from maskwright.core.errors import DeviceError
from maskwright.encoder.native.compiling import compiled

AVX512: Mapping[str, str] = {
    "avx512_f": "-mavx512f",
    "avx512_bw": "-mavx512bw",
    "avx512_dq": "-mavx512dq",
    "avx512_vl": "-mavx512vl",
    "fma3": "-mfma",
}
"""Instructions by PyTorch's names, and what a compiler is told. By name and not "-march=native": what is kept runs on
every processor that has these, whichever one of those that share a home compiled it. Tuning only orders them."""
_FLAGS = ("-std=gnu11", "-O3", "-mtune=native", "-fno-math-errno", "-fno-strict-aliasing", "-fopenmp", "-fPIC")
_LINKED = ("-shared", "-Wl,--as-needed")


def load(name: str, instructions: Mapping[str, str]) -> ctypes.CDLL | DeviceError:
    """Load a C file's code, compiling it if this was not done yet: a second, once a machine.

    Args:
        name: Of the file in this folder.
        instructions: What it needs, as in `AVX512`.

    Returns:
        The code, or what is in its way and what would help.
    """
    capabilities = torch.cpu.get_capabilities()
    if not sys.platform.startswith("linux"):
        return DeviceError("the C code is for Linux")
    if missing := [name for name in instructions if not capabilities.get(name)]:
        return DeviceError(f"this processor lacks instructions of the C code ({', '.join(missing).upper()})")
    source = Path(__file__).with_name(name)
    try:
        headers = [header.read_text(encoding="utf-8") for header in sorted(source.parent.glob("*.h"))]
        about = [torch.__version__, str(capabilities.get("cpu_name")), *headers]
        return compiled(source, (*_FLAGS, *instructions.values(), *_LINKED), _thread_library(), about)
    except OSError as error:
        return DeviceError(f"the C code cannot be read ({error})", todo="Install maskwright again.")
    except DeviceError as error:
        return error.with_traceback(None)


def _thread_library() -> list[str]:
    # PyTorch's own, so that its threads are used and no second team of them waits on the same cores.
    folder = Path(torch.__file__).parent / "lib"
    return [str(path) for path in sorted(folder.glob("libgomp*.so*"))[:1]]
