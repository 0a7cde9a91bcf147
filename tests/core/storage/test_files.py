"""Files: whole or absent, whatever happens in between."""

import errno
import os
from pathlib import Path

import pytest

from maskwright.core.errors import DeviceError
from maskwright.core.storage.files import atomic_folder, atomic_path, cache_folder, check_writable, write_text


def test_a_folder_that_cannot_be_made_or_written_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(DeviceError, match=r"cannot write .*something else exists there"):
            check_writable(folder)

    def fail(**_):
        raise OSError(errno.EFBIG, "File too large")  # What `ulimit -f` gives.

    monkeypatch.setattr("tempfile.TemporaryFile", fail)
    with pytest.raises(DeviceError, match=r"cannot write .*new: File too large"):
        check_writable(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_failed_write_keeps_the_old_file(tmp_path):
    path = tmp_path / "x"
    path.write_text("old")

    def fail():
        with atomic_path(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        fail()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("atomic", [atomic_path, atomic_folder])
@pytest.mark.parametrize("source", [None, "/elsewhere/model.safetensors"])  # shutil.copyfile names the file it reads.
def test_error_of_a_full_disk_names_the_file_and_has_a_hint(atomic, source, tmp_path):
    with pytest.raises(DeviceError, match=r"disk is full while writing .*x.*Free some space"), atomic(tmp_path / "x"):
        raise OSError(errno.ENOSPC, "No space left on device", source)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("atomic", [atomic_path, atomic_folder])
def test_failure_to_read_another_file_is_not_called_a_write_problem(atomic, tmp_path):
    with pytest.raises(FileNotFoundError, match="missing"), atomic(tmp_path / "x"):
        (tmp_path / "missing").read_text()
    assert os.listdir(tmp_path) == []


def test_atomic_folder_appears_whole(tmp_path):
    with atomic_folder(tmp_path / "run") as temporary:
        (temporary / "deep").mkdir()
        (temporary / "deep" / "file").write_text("x")
        assert not (tmp_path / "run").exists()
    assert (tmp_path / "run" / "deep" / "file").read_text() == "x"
    assert os.listdir(tmp_path) == ["run"]


def test_atomic_folder_never_replaces(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "file").write_text("old")
    with (
        pytest.raises(DeviceError, match="something else exists there"),
        atomic_folder(tmp_path / "run") as temporary,
    ):
        (temporary / "file").write_text("new")
    assert (tmp_path / "run" / "file").read_text() == "old"
    assert os.listdir(tmp_path) == ["run"]


def test_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("MASKWRIGHT_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("MASKWRIGHT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "maskwright"


@pytest.mark.skipif(os.name != "posix", reason="modes and umasks are POSIX's")
def test_modes_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "file", "")
        with atomic_folder(tmp_path / "folder"):
            pass
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("file", "folder")] == [0o640, 0o750]
