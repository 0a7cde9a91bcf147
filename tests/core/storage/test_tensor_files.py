"""A full disk is a clear error, whatever the library that writes says; files have the umask's mode."""

import os
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from maskwright.core.errors import DeviceError
from maskwright.core.storage.tensor_files import full_disk_named, write_tensors


@pytest.mark.skipif(os.name != "posix", reason="modes and umasks are POSIX's")
@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_modes_follow_the_umask(umask: int, mode: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        write_tensors(tmp_path / "weights", {"weight": torch.ones(1)})
    finally:
        os.umask(before)
    assert (tmp_path / "weights").stat().st_mode & 0o777 == mode
    assert [each.name for each in tmp_path.iterdir()] == ["weights"]


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
        Exception("No space left on device (os error 28)"),  # of tokenizers
    ],
)
def test_a_full_disk_is_named(error: Exception, tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match=r"the disk is full while writing .*out"), full_disk_named(tmp_path / "out"):
        raise error


def test_other_errors_are_kept(tmp_path: Path) -> None:
    for error in (ValueError("no"), DeviceError("no"), RuntimeError("basic_ios::clear: iostream error")):
        with pytest.raises(type(error)) as caught, full_disk_named(tmp_path / "out"):
            raise error
        assert caught.value is error
