"""Code is compiled once and kept; what cannot be compiled, kept or trusted is an error that says what would help."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from maskwright.core.errors import DeviceError
from maskwright.kernels.cpu import library as module
from maskwright.kernels.cpu.library import compiled

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
        return int(compiled(source, flags, (), about).answer())

    return compile_and_call


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return the commands run from now on."""
    commands = []
    run = module._run

    def counted(command: list[str]) -> None:
        commands.append(command)
        run(command)

    monkeypatch.setattr(module, "_run", counted)
    return commands


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def alone(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a program be the only compiler. It finds others as before."""
    monkeypatch.setenv("CC", program)
    monkeypatch.setattr(module, "_COMPILERS", ())


def test_code_is_compiled_once_and_is_all_that_is_left(
    answer: Callable[..., int], runs: list[list[str]], cache: Path
) -> None:
    assert [answer(), answer()] == [42, 42]
    assert len(runs) == 1
    (kept,) = cache.iterdir()
    assert kept.name.startswith("program-")
    assert kept.stat().st_mode & 0o777 == 0o644


def test_what_code_depends_on_has_it_compiled_again(
    answer: Callable[..., int], runs: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert answer() == 42
    assert answer((*FLAGS, "-DANSWER=43")) == 43
    assert answer(about=("another processor",)) == 42
    (tmp_path / "program.c").write_text(PROGRAM.replace("42", "44"))
    assert answer() == 44
    # The same place, another compiler, as after an update.
    gcc = shutil.which("gcc")
    alone(script(tmp_path / "cc", f'exec {gcc} "$@"'), monkeypatch)
    assert answer() == 44
    script(tmp_path / "cc", f'exec {gcc} -DANSWER=1 "$@" # newer')
    assert answer() == 1
    assert len(runs) == 6


def test_the_compiler_may_have_arguments(answer: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    alone("env gcc '-DANSWER=(40 + 5)'", monkeypatch)
    assert answer() == 45


@pytest.mark.parametrize("asked", ["no-such-compiler", "false", "'half a quotation", "  "])
def test_a_compiler_that_was_asked_for_and_fails_is_passed_over(
    asked: str, answer: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", asked)
    assert answer() == 42


def test_without_a_compiler_it_says_what_to_install(
    answer: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DeviceError, match=r"no C compiler here\. Install gcc"):
        answer()


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("echo 'a.c:1: fatal error: no omp.h' >&2; exit 1", r"\(a\.c:1: fatal error: no omp\.h\).*Install gcc"),
        ("exit 3", r"it ends with 3"),
        ("exit 0", r"No such file"),
        ("kill -9 $$", r"it ends with -9"),
    ],
)
def test_a_compiler_that_fails_is_named(
    program: str, said: str, answer: Callable[..., int], cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone(script(tmp_path / "cc", program), monkeypatch)
    with pytest.raises(DeviceError, match=said) as raised:
        answer()
    assert str(tmp_path / "cc") in raised.value.problem
    assert not cache.exists()


def test_a_compiler_without_a_program_behind_it_is_named(
    answer: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cc").write_bytes(b"\x7fELF of another kind of machine")
    (tmp_path / "cc").chmod(0o755)
    alone(str(tmp_path / "cc"), monkeypatch)
    with pytest.raises(DeviceError, match="Exec format error"):
        answer()


def test_a_compiler_that_does_not_end_is_ended_with_what_it_started(
    answer: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone(script(tmp_path / "cc", f"sleep 60 & echo $! > {tmp_path}/started; wait"), monkeypatch)
    monkeypatch.setattr(module, "_SECONDS", 0.5)
    begun = time.monotonic()
    with pytest.raises(DeviceError, match="did not end"):
        answer()
    assert time.monotonic() - begun < 10
    status = Path(f"/proc/{(tmp_path / 'started').read_text().strip()}/status")
    while status.exists() and "State:\tZ" not in status.read_text() and time.monotonic() - begun < 10:
        time.sleep(0.01)
    assert not status.exists() or "State:\tZ" in status.read_text()


def test_what_a_compiler_writes_and_cannot_be_loaded_is_an_error(
    answer: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone(script(tmp_path / "cc", "for last; do :; done; echo no > $last"), monkeypatch)
    for _ in range(2):
        with pytest.raises(DeviceError, match="cannot be read or loaded"):
            answer()


@pytest.mark.parametrize("damage", ["cut", "altered", "empty", "foreign", "a link", "a pipe", "of any", "of a group"])
def test_what_is_kept_and_not_whole_or_not_ours_is_never_loaded(
    damage: str, answer: Callable[..., int], runs: list[list[str]], cache: Path, tmp_path: Path
) -> None:
    answer()
    (kept,) = cache.iterdir()
    code = kept.read_bytes()
    other = tmp_path / "other.so"
    subprocess.run(["gcc", *FLAGS, "-DANSWER=13", "-o", other, tmp_path / "program.c"], check=True)
    kept.unlink()
    if damage == "a link":
        other.write_bytes(module._with_checksum(other.read_bytes()))
        kept.symlink_to(other)
    elif damage == "a pipe":
        os.mkfifo(kept)
    elif damage.startswith("of "):
        kept.write_bytes(module._with_checksum(other.read_bytes()))
        kept.chmod(0o666 if damage == "of any" else 0o664)
    else:
        altered = code[:5000] + bytes([code[5000] ^ 1]) + code[5001:]
        kept.write_bytes(
            {"cut": code[: len(code) // 2], "altered": altered, "empty": b"", "foreign": other.read_bytes()}[damage]
        )
    assert answer() == 42
    assert len(runs) == 2
    assert [path.name for path in cache.iterdir()] == [kept.name]
    assert kept.read_bytes() == code
    assert not kept.is_symlink()


def test_code_of_another_user_is_never_loaded(answer: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    answer()
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(DeviceError, match="not a file of this user alone"):
        answer()


def test_a_cache_that_cannot_be_written_is_an_error(
    answer: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("MASKWRIGHT_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DeviceError, match="cannot write"):
        answer()


def test_something_else_in_the_place_is_an_error(answer: Callable[..., int], cache: Path) -> None:
    answer()
    (kept,) = cache.iterdir()
    kept.unlink()
    kept.mkdir()
    with pytest.raises(DeviceError, match="cannot write"):
        answer()


def test_a_source_that_is_not_there_is_an_error(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="cannot be read"):
        compiled(tmp_path / "absent.c", FLAGS, (), ())


def test_several_at_once_compile_the_same(answer: Callable[..., int], cache: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: answer(), range(4))) == [42] * 4
    assert len(list(cache.iterdir())) == 1
