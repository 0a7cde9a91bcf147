"""A full disk is a clear error, whatever the library that writes says."""

from pathlib import Path

import pytest
from safetensors import SafetensorError

from maskwright.core.errors import DeviceError
from maskwright.core.tensor_files import full_disk_named


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
