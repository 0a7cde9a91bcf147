import os
import time
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


def test_damaged_folder_is_made_anew_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    with pytest.warns(UserWarning, match="kept holds no value"):
        assert open_or_build(tmp_path / "kept", read, writing("anew")) == "anew"


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
        (tmp_path / "kept").mkdir()
        (tmp_path / "kept" / "value").write_text("theirs")

    assert open_or_build(tmp_path / "kept", read, overtaken) == "theirs"


def test_disk_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DeviceError, match="cannot write"):
        open_or_build(tmp_path / "file" / "kept", read, writing("one"))


def test_leavings_of_a_killed_process_are_removed_after_a_day(tmp_path: Path) -> None:
    old, new = tmp_path / ".kept.a.tmp", tmp_path / ".kept.b.tmp"
    for folder in (old, new):
        folder.mkdir()
        (folder / "part").touch()
    two_days_ago = time.time() - 2 * 24 * 3600
    for path in (old / "part", old):
        os.utime(path, (two_days_ago, two_days_ago))
    open_or_build(tmp_path / "kept", read, writing("one"))
    assert not old.exists()
    assert new.exists()
