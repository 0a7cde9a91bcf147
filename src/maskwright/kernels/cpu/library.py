"""C kernels, compiled on the machine where they are used, once, and kept in the cache."""

import contextlib
import ctypes
import functools
import os
import platform
import shlex
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from maskwright.core.errors import DeviceError
from maskwright.core.spec import fingerprint
from maskwright.core.storage.files import atomic_path, cache_folder

_FOLDER = Path(__file__).parent
_AVX512 = {
    "avx512_f": "-mavx512f",
    "avx512_bw": "-mavx512bw",
    "avx512_dq": "-mavx512dq",
    "avx512_vl": "-mavx512vl",
    "fma3": "-mfma",
}
_INSTRUCTIONS: Mapping[str, Mapping[str, str]] = {
    "attention": _AVX512,
    "fp32": _AVX512,
    "int8": {**_AVX512, "avx512_vnni": "-mavx512vnni"},
}
"""Required instructions by PyTorch's names, and the compiler's flags. By name and not "-march=native": compiled code
runs on every processor with these instructions, whichever machine that shares the home directory compiled it."""
_FLAGS = (
    *("-std=gnu11", "-O3", "-mtune=native", "-fno-math-errno", "-fno-strict-aliasing", "-fopenmp"),
    *("-fPIC", "-shared", "-Wl,--as-needed"),
)
_COMPILERS = ("cc", "gcc")
_SECONDS = 60


def structure(**fields: type) -> type[ctypes.Structure]:
    return type("Structure", (ctypes.Structure,), {"_fields_": list(fields.items())})


@functools.cache
def library(name: str) -> ctypes.CDLL | DeviceError:
    """Return the compiled code of `name`.c, or why it is unavailable. Compiling takes seconds."""
    capabilities = torch.cpu.get_capabilities()
    if not sys.platform.startswith("linux"):
        return DeviceError("the C code is for Linux")
    if missing := [each for each in _INSTRUCTIONS[name] if not capabilities.get(each)]:
        return DeviceError(f"this processor lacks instructions of the C code ({', '.join(missing).upper()})")
    # PyTorch's own OpenMP library, so that no second team of threads waits on the same cores. Its wheels bring GNU's.
    threads = [str(path) for path in sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*"))[:1]]
    if not threads:
        return DeviceError("this PyTorch does not use GNU's threads", hint="Install PyTorch's wheel from PyPI.")
    headers = [path.read_text(encoding="utf-8") for path in sorted(_FOLDER.glob("*.h"))]
    about = [torch.__version__, str(capabilities.get("cpu_name")), *headers]
    try:
        return load_or_compile(_FOLDER / f"{name}.c", (*_FLAGS, *_INSTRUCTIONS[name].values()), threads, about)
    except DeviceError as error:
        return error.with_traceback(None)


def load_or_compile(source: Path, flags: Sequence[str], libraries: Sequence[str], about: Sequence[str]) -> ctypes.CDLL:
    """Load the code of a C file beside its headers, compiled with flags of a GNU C compiler if it is not in the cache.

    `libraries` are files to link against, and `about` is what else the code depends on: a change has it compiled again.
    Raises DeviceError if no compiler compiles it, or it cannot be stored.
    """
    try:
        # The C library's version, since machines share home directories: code needs the one it was linked with.
        facts = [source.read_text(encoding="utf-8"), flags, libraries, about, platform.libc_ver()]
        path = cache_folder() / f"{source.stem}-{fingerprint(facts)}.so"
        if loaded := _load(path):
            return loaded
        with tempfile.TemporaryDirectory() as folder:  # No other user can write there.
            code = Path(folder) / "code.so"
            inputs = [f"-I{source.parent}", "-x", "c", str(source), "-x", "none", *libraries, "-lm"]
            _compile([*flags, *inputs, "-o", str(code)])
            with atomic_path(path) as temporary:
                temporary.write_bytes(code.read_bytes())
                temporary.chmod(0o644)  # Whatever the umask: see `_load`.
        if loaded := _load(path):
            return loaded
    except (OSError, ValueError) as error:
        raise DeviceError(
            f"compiled code cannot be written or read ({error})",
            hint="Set MASKWRIGHT_CACHE to a folder on another disk.",
        ) from error
    raise DeviceError(
        f"{path} cannot be loaded, or is not a file of this user alone",
        hint="Set MASKWRIGHT_CACHE to a folder of yours.",
    )


def _compile(arguments: Sequence[str]) -> None:
    """Run the first compiler that succeeds: $CC, which may hold arguments ("ccache gcc"), then `_COMPILERS`."""
    failure = DeviceError(
        "there is no C compiler here", hint="Install gcc and the C library's headers (`gcc`, `libc6-dev` on Debian)."
    )
    for compiler in filter(None, [shlex.split(os.environ.get("CC", "")), *([name] for name in _COMPILERS)]):
        try:
            command = [*compiler, *arguments]
            subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=_SECONDS)
            return
        except FileNotFoundError:
            continue
        except subprocess.CalledProcessError as error:
            messages = error.stderr.decode(errors="replace").splitlines()
            errors = [line.strip() for line in messages if "error" in line.lower()]
            reason = errors[0] if errors else f"it ends with {error.returncode}"
        except subprocess.TimeoutExpired:
            reason = f"it did not end within {_SECONDS} seconds"
        except OSError as error:
            reason = str(error)
        failure = DeviceError(
            f"`{shlex.join(compiler)}` does not compile the code ({reason})",
            hint="Install gcc and the C library's headers, or name another GNU C compiler in $CC.",
        )
    raise failure


def _load(path: Path) -> ctypes.CDLL | None:
    """Load code that belongs to this user alone; None if there is none.

    Loaded code runs with all rights of this user. So a file that another user owns or may write to is ignored: a cache
    can lie where others write ($MASKWRIGHT_CACHE in /tmp, or shared by a group). It is loaded through the handle that
    was checked, since the path may be replaced meanwhile.
    """
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        about = os.fstat(handle)
        if stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & 0o022:
            # The handle stays open: the loader knows libraries by name, and the next file must not get this number.
            return ctypes.CDLL(f"/proc/self/fd/{handle}")
        os.close(handle)
    return None
