"""C kernels, compiled on the machine where they are used, once, and kept in the cache."""

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch

from maskwright.core.errors import DeviceError
from maskwright.core.files import atomic_path, cache_folder
from maskwright.core.spec import fingerprint

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
_FLAGS = ("-std=gnu11", "-O3", "-mtune=native", "-fno-math-errno", "-fno-strict-aliasing", "-fopenmp", "-fPIC")
_LINKER_FLAGS = ("-shared", "-Wl,--as-needed")
_COMPILERS = ("cc", "gcc")
_SECONDS = 60
_CHECKSUM_BYTES = 16
_LARGEST = 1 << 24
"""Bytes of a compiled file at most; the largest has some 100,000."""


@functools.cache
def library(name: str) -> ctypes.CDLL | DeviceError:
    """Return the compiled code of `name`.c, or why it is unavailable. Compiling takes seconds."""
    return find_library(name)


def find_library(name: str) -> ctypes.CDLL | DeviceError:
    """See `library`; looks again at every call."""
    capabilities = torch.cpu.get_capabilities()
    if not sys.platform.startswith("linux"):
        return DeviceError("the C code is for Linux")
    if missing := [each for each in _INSTRUCTIONS[name] if not capabilities.get(each)]:
        return DeviceError(f"this processor lacks instructions of the C code ({', '.join(missing).upper()})")
    threads = _thread_library()
    if not threads:
        return DeviceError("this PyTorch does not use GNU's threads", todo="Install PyTorch's wheel from PyPI.")
    flags = (*_FLAGS, *_INSTRUCTIONS[name].values(), *_LINKER_FLAGS)
    try:
        headers = [path.read_text(encoding="utf-8") for path in sorted(_FOLDER.glob("*.h"))]
        about = [torch.__version__, str(capabilities.get("cpu_name")), *headers]
        return compiled(_FOLDER / f"{name}.c", flags, threads, about)
    except (OSError, UnicodeError) as error:
        return DeviceError(f"the C code cannot be read ({error})", todo="Install maskwright again.")
    except DeviceError as error:
        return error.with_traceback(None)


def _thread_library() -> list[str]:
    # PyTorch's own OpenMP library, so that no second team of threads waits on the same cores. Its wheels bring GNU's.
    folder = Path(torch.__file__).parent / "lib"
    return [str(path) for path in sorted(folder.glob("libgomp*.so*"))[:1]]


def compiled(source: Path, flags: Sequence[str], libraries: Sequence[str], about: Sequence[str]) -> ctypes.CDLL:
    """Load compiled code, compiling it if it is not in the cache.

    Args:
        source: The C file; headers lie beside it.
        flags: Of a GNU C compiler.
        libraries: Files to link against.
        about: What else the code depends on; a change has it compiled again.

    Raises:
        DeviceError: If no compiler compiles it, or it cannot be stored.
    """
    failure = DeviceError(
        "there is no C compiler here", todo="Install gcc and the C library's headers (`gcc`, `libc6-dev` on Debian)."
    )
    try:
        text = source.read_text(encoding="utf-8")
        for compiler in _compilers():
            # The C library's version, since machines share home directories: code needs the one it was linked with.
            facts = [text, flags, libraries, about, compiler, _identity(compiler[0]), platform.libc_ver()]
            path = cache_folder() / f"{source.stem}-{fingerprint(facts)}.so"
            if found := _load(path):
                return found
            try:
                command = [*compiler, *flags, f"-I{source.parent}", "-x", "c", str(source), "-x", "none", *libraries]
                code = _compile([*command, "-lm"])
            except _CompilerError as error:
                failure = DeviceError(
                    f"`{shlex.join(compiler)}` does not compile the code ({error})",
                    todo="Install gcc and the C library's headers, or name another GNU C compiler in $CC.",
                )
                continue
            with atomic_path(path) as temporary:
                temporary.write_bytes(_with_checksum(code))
            if found := _load(path):
                return found
            failure = DeviceError(
                f"{path} is not a file of this user alone", todo="Set MASKWRIGHT_CACHE to a folder of yours."
            )
    except (OSError, UnicodeError) as error:
        raise DeviceError(
            f"compiled code cannot be read or loaded ({error})",
            todo="Set MASKWRIGHT_CACHE to a folder on another disk.",
        ) from error
    raise failure


class _CompilerError(Exception):
    """A compiler fails."""


def _compilers() -> Iterator[list[str]]:
    """Yield the compilers to try, each with the arguments that $CC may hold ("ccache gcc")."""
    requested: list[str] = []
    with contextlib.suppress(ValueError):  # An unbalanced quotation mark.
        requested = shlex.split(os.environ.get("CC", ""))
    tried = set()
    for program, *arguments in filter(None, [requested, *([name] for name in _COMPILERS)]):
        path = shutil.which(program)
        if path is not None and (real := (os.path.realpath(path), *arguments)) not in tried:
            tried.add(real)
            yield [path, *arguments]


def _identity(program: str) -> list[str | int]:
    """Return facts that change when a program is updated, without starting it."""
    real = os.path.realpath(program)
    about = os.stat(real)
    return [real, about.st_size, about.st_mtime_ns]


def _compile(command: list[str]) -> bytes:
    """Compile in a folder that no other user can write to, and return the code."""
    with tempfile.TemporaryDirectory() as folder:
        to = Path(folder) / "code.so"
        try:
            _run([*command, "-o", str(to)])
            return to.read_bytes()
        except subprocess.TimeoutExpired as error:
            raise _CompilerError(f"it did not end within {_SECONDS} seconds") from error
        except subprocess.CalledProcessError as error:
            messages = error.stderr.decode(errors="replace").splitlines()
            lines = [line.strip() for line in messages if "error" in line.lower()]
            raise _CompilerError(lines[0] if lines else f"it ends with {error.returncode}") from error
        except OSError as error:
            raise _CompilerError(str(error)) from error


def _run(command: list[str]) -> None:
    # In a process group of its own: a compiler starts others, which must end with it.
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            _, messages = process.communicate(timeout=_SECONDS)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, stderr=messages)


def _with_checksum(code: bytes) -> bytes:
    # The loader ignores what follows the code's end.
    return code + hashlib.blake2b(code, digest_size=_CHECKSUM_BYTES).digest()


def _load(path: Path) -> ctypes.CDLL | None:
    """Load code that belongs to this user alone and is complete; None if there is none.

    Loaded code runs with all rights of this user. So a file that another user owns or may write to is ignored: a cache
    can lie where others write ($MASKWRIGHT_CACHE in /tmp, or shared by a group). A file cut off by a full disk would
    end the process with a signal, hence the checksum. It is loaded through the handle that was checked, since the path
    may be replaced meanwhile.

    Raises:
        OSError: If it cannot be loaded.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    loaded = False
    try:
        about = os.fstat(handle)
        own = stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & 0o022
        if not own or about.st_size > _LARGEST:
            return None
        with os.fdopen(handle, "rb", closefd=False) as file:
            data = file.read()
        if len(data) <= _CHECKSUM_BYTES or data != _with_checksum(data[:-_CHECKSUM_BYTES]):
            return None
        found = ctypes.CDLL(f"/proc/self/fd/{handle}")
        # The handle stays open: the loader knows libraries by name, and the next file must not get this one's number.
        loaded = True
        return found
    finally:
        if not loaded:
            os.close(handle)
