"""Code is compiled once and kept; what cannot be compiled, kept or trusted is an error that says what would help."""

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from maskwright.core.errors import DeviceError
from maskwright.kernels.cpu import library as module
from maskwright.kernels.cpu.library import load_or_compile

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/fd").exists() or shutil.which("gcc") is None, reason="needs Linux and gcc"
)
FLAGS = ("-shared", "-fPIC")
PROGRAM = """
#ifndef ANSWER
#define ANSWER 42
#endif
int answer(void) { return ANSWER; }
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that code is kept in."""
    monkeypatch.setenv("MASKWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CC", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def answer(tmp_path: Path, cache: Path) -> Callable[..., int]:
    """Return what compiles a small program and calls it."""
    source = tmp_path / "program.c"
    source.write_text(PROGRAM)

    def compile_and_call(flags: Sequence[str] = FLAGS, about: Sequence[str] = ()) -> int:
        return int(load_or_compile(source, flags, (), about).answer())

    return compile_and_call


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """Return the compiler's arguments of all runs from now on."""
    runs = []
    run = module._compile

    def counted(arguments: Sequence[str]) -> None:
        runs.append(arguments)
        run(arguments)

    monkeypatch.setattr(module, "_compile", counted)
    return runs


def test_code_is_compiled_once_and_is_all_that_is_left(answer, runs, cache):
    mask = os.umask(0o002)
    try:
        assert [answer(), answer()] == [42, 42]
    finally:
        os.umask(mask)
    assert len(runs) == 1
    (kept,) = cache.iterdir()
    assert kept.stat().st_mode & 0o777 == 0o644


def test_what_code_depends_on_has_it_compiled_again(answer, runs, tmp_path):
    assert answer() == 42
    assert answer((*FLAGS, "-DANSWER=43")) == 43
    assert answer(about=("another processor",)) == 42
    (tmp_path / "program.c").write_text(PROGRAM.replace("42", "44"))
    assert answer() == 44
    assert len(runs) == 4


@pytest.mark.parametrize(
    ("compiler", "expected"), [("env gcc '-DANSWER=(40 + 5)'", 45), ("no-such-compiler", 42), ("false", 42), ("  ", 42)]
)
def test_the_named_compiler_is_used_or_ignored(compiler, expected, answer, monkeypatch):
    monkeypatch.setenv("CC", compiler)
    assert answer() == expected


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("", r"no C compiler here\. Install gcc"),
        ("echo 'a.c:1: fatal error: no omp.h' >&2; exit 1", r"\(a\.c:1: fatal error: no omp\.h\).*Install gcc"),
        ("exit 3", r"it ends with 3"),
        ("exit 0", r"No such file"),
        ("exec sleep 9", r"it did not end"),
        ("for last; do :; done; echo no > $last", "cannot be loaded"),
    ],
)
def test_a_compiler_that_is_missing_or_fails_is_named(program, message, answer, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_COMPILERS", ())
    monkeypatch.setattr(module, "_SECONDS", 0.5 if "sleep" in program else 60)
    if program:
        (tmp_path / "cc").write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / "cc").chmod(0o755)
        monkeypatch.setenv("CC", str(tmp_path / "cc"))
    with pytest.raises(DeviceError, match=message):
        answer()


@pytest.mark.parametrize("damage", ["empty", "cut", "a link", "a pipe", "of any", "of a group"])
def test_what_is_kept_and_not_whole_or_not_ours_is_never_loaded(damage, answer, runs, cache, tmp_path):
    answer()
    (kept,) = cache.iterdir()
    code = kept.read_bytes()
    other = tmp_path / "other.so"
    subprocess.run(["gcc", *FLAGS, "-DANSWER=13", "-o", other, tmp_path / "program.c"], check=True)
    kept.unlink()
    if damage == "a link":
        kept.symlink_to(other)
    elif damage == "a pipe":
        os.mkfifo(kept)
    elif damage.startswith("of "):
        kept.write_bytes(other.read_bytes())
        kept.chmod(0o666 if damage == "of any" else 0o664)
    else:
        kept.write_bytes(code[:40] if damage == "cut" else b"")
    assert answer() == 42
    assert len(runs) == 2
    assert kept.read_bytes() == code
    assert not kept.is_symlink()


def test_code_of_another_user_is_never_loaded(answer: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    answer()
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(DeviceError, match="not a file of this user alone"):
        answer()


def test_a_cache_that_cannot_be_written_and_a_missing_source_are_errors(answer, tmp_path, monkeypatch):
    with pytest.raises(DeviceError, match="cannot be written or read"):
        load_or_compile(tmp_path / "absent.c", FLAGS, (), ())
    (tmp_path / "file").touch()
    monkeypatch.setenv("MASKWRIGHT_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DeviceError, match="cannot write"):
        answer()


def test_several_at_once_compile_the_same(answer: Callable[..., int], cache: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: answer(), range(4))) == [42] * 4
    assert len(list(cache.iterdir())) == 1
