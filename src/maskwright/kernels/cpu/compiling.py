"""C code that is compiled on the machine where it is used, once, and kept in the cache."""

import contextlib
import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from maskwright.core.errors import DeviceError
from maskwright.core.files import atomic_path, cache_folder
from maskwright.core.spec import fingerprint

_COMPILERS = ("cc", "gcc")
_SECONDS = 60
_SEAL = 16
"""Bytes of the checksum behind the code."""
_MOST = 1 << 24
"""Bytes that code may have; the largest has some 100,000."""


def compiled(
    source: Path, flags: Sequence[str], libraries: Sequence[str], about: Sequence[str], folders: Sequence[Path] = ()
) -> ctypes.CDLL:
    """Load compiled code, compiling it if this was not done yet: a second.

    Args:
        source: The C file.
        flags: Of a GNU C compiler.
        libraries: Files to link against.
        about: What else the code depends on; a change has it compiled again.
        folders: Where headers are; what they say belongs into `about`.

    Raises:
        DeviceError: If there is no compiler that does it, or nowhere to keep the code.
    """
    failure = DeviceError(
        "there is no C compiler here", todo="Install gcc and the C library's headers (`gcc`, `libc6-dev` on Debian)."
    )
    try:
        text = source.read_text(encoding="utf-8")
        for compiler in _compilers():
            # The C library's version, since homes are shared by machines: code asks for the one it was linked with.
            facts = [text, flags, libraries, about, compiler, _identity(compiler[0]), platform.libc_ver()]
            path = cache_folder() / f"{source.stem}-{fingerprint(facts)}.so"
            if found := _kept(path):
                return found
            try:
                asked = [*compiler, *flags, *(f"-I{folder}" for folder in folders)]
                code = _compile([*asked, "-x", "c", str(source), "-x", "none", *libraries, "-lm"])
            except _DoesNotCompile as error:
                failure = DeviceError(
                    f"`{shlex.join(compiler)}` does not compile the code ({error})",
                    todo="Install gcc and the C library's headers, or name another GNU C compiler in $CC.",
                )
                continue
            with atomic_path(path) as temporary:
                temporary.write_bytes(_sealed(code))
            if found := _kept(path):
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


class _DoesNotCompile(Exception):
    """A compiler that is there does not do it."""


def _compilers() -> Iterator[list[str]]:
    """Name the compilers to try, each with the arguments that $CC may hold ("ccache gcc")."""
    asked: list[str] = []
    with contextlib.suppress(ValueError):  # A quotation mark without its fellow.
        asked = shlex.split(os.environ.get("CC", ""))
    tried = set()
    for program, *arguments in filter(None, [asked, *([name] for name in _COMPILERS)]):
        path = shutil.which(program)
        if path is not None and (real := (os.path.realpath(path), *arguments)) not in tried:
            tried.add(real)
            yield [path, *arguments]


def _identity(program: str) -> list[str | int]:
    """Tell a program from what will stand at the same place after an update, without starting it."""
    real = os.path.realpath(program)
    about = os.stat(real)
    return [real, about.st_size, about.st_mtime_ns]


def _compile(command: list[str]) -> bytes:
    """Compile in a folder that no other user can write to, and return the code.

    Raises:
        _DoesNotCompile: If the compiler fails or does not end.
    """
    with tempfile.TemporaryDirectory() as folder:
        to = Path(folder) / "code.so"
        try:
            _run([*command, "-o", str(to)])
            return to.read_bytes()
        except subprocess.TimeoutExpired as error:
            raise _DoesNotCompile(f"it did not end within {_SECONDS} seconds") from error
        except subprocess.CalledProcessError as error:
            said = error.stderr.decode(errors="replace").splitlines()
            lines = [line.strip() for line in said if "error" in line.lower()]
            raise _DoesNotCompile(lines[0] if lines else f"it ends with {error.returncode}") from error
        except OSError as error:
            raise _DoesNotCompile(str(error)) from error


def _run(command: list[str]) -> None:
    # In a group of its own: a compiler starts others, and those must end with it.
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            _, said = process.communicate(timeout=_SECONDS)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, stderr=said)


def _sealed(code: bytes) -> bytes:
    # What is behind the code's end the loader does not look at.
    return code + hashlib.blake2b(code, digest_size=_SEAL).digest()


def _kept(path: Path) -> ctypes.CDLL | None:
    """Load code that is this user's own and whole; None if there is none.

    What is loaded runs with all that this user may do. So a file that another user owns or may write to is left alone:
    a cache can lie where others write ($MASKWRIGHT_CACHE in /tmp, or shared by a group). A file cut off by a full disk
    or a broken copy would end the process with a signal when it is loaded, hence the checksum. It is loaded through the
    handle that was checked, since something else may stand at the path by then.

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
        if not own or about.st_size > _MOST:
            return None
        with os.fdopen(handle, "rb", closefd=False) as file:
            data = file.read()
        if len(data) <= _SEAL or data != _sealed(data[:-_SEAL]):
            return None
        found = ctypes.CDLL(f"/proc/self/fd/{handle}")
        # The handle stays open: the loader knows libraries by name, and the next file must not get this one's number.
        loaded = True
        return found
    finally:
        if not loaded:
            os.close(handle)
