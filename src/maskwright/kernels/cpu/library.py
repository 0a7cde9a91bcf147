"""C kernels compiled for this kind of CPU, or the reason why they are unavailable."""

import ctypes
import functools
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import final

import torch

from maskwright.core.errors import DeviceError
from maskwright.kernels.cpu.compiling import compiled

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


@final
class Code:
    """A C file's code, looked for when it is first asked for.

    Args:
        source: The file; headers are found beside it and in this folder.
        instructions: What it needs, as in `AVX512`.
        declare: Tells Python the types of its functions.
        shares_threads: Whether it does without where it could not use PyTorch's own threads.
    """

    def __init__(
        self,
        source: Path,
        instructions: Mapping[str, str],
        declare: Callable[[ctypes.CDLL], None],
        *,
        shares_threads: bool = False,
    ) -> None:
        self.source = source
        self._instructions = instructions
        self._declare = declare
        self._shares_threads = shares_threads

    def library(self) -> ctypes.CDLL | None:
        """Return the compiled code, compiling it if this was not done yet: seconds, once a machine."""
        return None if isinstance(self._found, DeviceError) else self._found

    def needed(self) -> ctypes.CDLL:
        """Return the compiled code, for calls that are made only where `library` has said that it is there."""
        found = self.library()
        assert found is not None, f"{self.source.name} is called where it is not there: {self.problem()}"
        return found

    def problem(self) -> DeviceError | None:
        """Return why there is no compiled code, and what would help."""
        return self._found if isinstance(self._found, DeviceError) else None

    @functools.cached_property
    def _found(self) -> ctypes.CDLL | DeviceError:
        return self.look()

    def look(self) -> ctypes.CDLL | DeviceError:
        """Return the code, or what is in its way; looked for at every call."""
        capabilities = torch.cpu.get_capabilities()
        if not sys.platform.startswith("linux"):
            return DeviceError("the C code is for Linux")
        if missing := [name for name in self._instructions if not capabilities.get(name)]:
            return DeviceError(f"this processor lacks instructions of the C code ({', '.join(missing).upper()})")
        threads = thread_library()
        if self._shares_threads and not threads:
            return DeviceError("this PyTorch does not use GNU's threads", todo="Install PyTorch's wheel from PyPI.")
        flags = (*_FLAGS, *self._instructions.values(), *_LINKED)
        try:
            folders = [self.source.parent, Path(__file__).parent]
            headers = [path.read_text(encoding="utf-8") for folder in folders for path in sorted(folder.glob("*.h"))]
            about = [torch.__version__, str(capabilities.get("cpu_name")), *headers]
            found = compiled(self.source, flags, threads, about, folders)
        except (OSError, UnicodeError) as error:
            return DeviceError(f"the C code cannot be read ({error})", todo="Install maskwright again.")
        except DeviceError as error:
            return error.with_traceback(None)
        self._declare(found)
        return found


def thread_library() -> list[str]:
    """Return PyTorch's own library of threads, so that no second team waits on the same cores; [] if it has none.

    PyTorch's wheels bring GNU's; other builds may use another, beside which our code has threads of its own.
    """
    folder = Path(torch.__file__).parent / "lib"
    return [str(path) for path in sorted(folder.glob("libgomp*.so*"))[:1]]
