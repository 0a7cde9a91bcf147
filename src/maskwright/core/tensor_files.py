"""Write tensors to safetensors files, with a clear error if the disk is full."""

import contextlib
import errno
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from maskwright.core.errors import MaskwrightError
from maskwright.core.files import disk_problem, disk_problems


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], *, shown: Path | None = None, metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors by name, contiguous and detached.

    Args:
        tensors: By name, on any device.
        shown: The path to name in errors, if `path` is temporary.
        metadata: Stored in the file's header.

    Raises DeviceError if the disk is full or cannot be written.
    """
    plain = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    with disk_problems(shown or path):
        try:
            save_file(plain, path, metadata=None if metadata is None else dict(metadata))
        except SafetensorError as error:
            # safetensors puts the system's error into its message.
            text = str(error)
            full = "No space left" in text or "os error 28" in text
            raise OSError(errno.ENOSPC if full else errno.EIO, text) from error


@contextlib.contextmanager
def full_disk_named(path: Path) -> Iterator[None]:
    """Turn what libraries raise if the disk is full while they write `path` into DeviceError; other errors are kept."""
    try:
        yield
    except MaskwrightError:
        raise
    except Exception as error:
        # safetensors and tokenizers put the system's error into their messages; torch.save does not say why it failed.
        text = f"{error} {error.__context__}"
        there = next(place for place in path.absolute().parents if place.exists())
        is_full = "No space left" in text or "Disk quota" in text
        if is_full or ("iostream error" in text and shutil.disk_usage(there).free < 1 << 20):
            raise disk_problem(OSError(errno.ENOSPC, text), path) from error
        raise
