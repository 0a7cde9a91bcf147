import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from maskwright.core.errors import DataError, DeviceError
from maskwright.data.cache import open_or_build


def read(folder: Path) -> str:
    try:
        return (folder / "value").read_text()
    except OSError as error:
        raise DataError(f"{folder.name} holds no value") from error


def writing(value: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "value").write_text(value)


def never(folder: Path) -> None:
    raise AssertionError("made although it was kept")


def test_folder_is_made_once_and_then_opened(tmp_path: Path) -> None:
    assert open_or_build(tmp_path / "kept", read, writing("one")) == "one"
    assert open_or_build(tmp_path / "kept", read, never) == "one"


@pytest.mark.parametrize("harm", ["changed, its time kept", "gone", "list gone", "list changed", "all gone"])
def test_damaged_folder_is_made_anew_with_a_warning(tmp_path: Path, harm: str) -> None:
    kept = tmp_path / "kept"
    open_or_build(kept, read, writing("one"))
    value, contents = kept / "value", kept / "contents.json"
    times = value.stat().st_atime_ns, value.stat().st_mtime_ns
    if harm.startswith("changed"):
        value.write_text("two")
        os.utime(value, ns=times)
    elif harm == "list changed":
        contents.write_text("{}")
    for path in {"gone": [value], "list gone": [contents], "all gone": [value, contents]}.get(harm, []):
        path.unlink()
    with pytest.warns(UserWarning, match="is damaged and is rebuilt: .*kept: (value|contents.json) "):
        assert open_or_build(kept, read, writing("anew")) == "anew"
    assert open_or_build(kept, read, never) == "anew"


def test_files_checked_when_they_are_read_are_left_to_the_reader(tmp_path: Path) -> None:
    open_or_build(tmp_path / "kept", read, writing("one"), ("val*",))
    (tmp_path / "kept" / "value").write_text("two")
    assert open_or_build(tmp_path / "kept", read, never, ("val*",)) == "two"


def test_failure_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "part").touch()
        raise DataError("no text")

    with pytest.raises(DataError, match="no text"):
        open_or_build(tmp_path / "kept", read, fail)
    assert not list(tmp_path.iterdir())


def test_what_another_process_finished_first_is_opened(tmp_path: Path) -> None:
    def overtaken(folder: Path) -> None:
        (folder / "value").write_text("ours")
        open_or_build(tmp_path / "kept", read, writing("theirs"))

    assert open_or_build(tmp_path / "kept", read, overtaken) == "theirs"


def test_disk_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DeviceError, match="cannot write"):
        open_or_build(tmp_path / "file" / "kept", read, writing("one"))


def test_remains_of_killed_processes_are_removed_and_those_of_running_ones_kept(tmp_path: Path) -> None:
    hold = (
        "import pathlib, sys, time; from maskwright.core.storage.files import atomic_folder\n"
        "with atomic_folder(pathlib.Path(sys.argv[1])) as made: print(made, flush=True); time.sleep(600)"
    )
    running, killed = (
        subprocess.Popen([sys.executable, "-c", hold, str(tmp_path / name)], stdout=-1, text=True) for name in "ab"
    )
    folders = []
    for process in (running, killed):
        folders.append(Path(process.stdout.readline().strip()))
    killed.kill()
    killed.communicate()
    open_or_build(tmp_path / "other", read, writing("one"))
    assert [each.exists() for each in folders] == [True, False]
    running.kill()
    running.communicate()
