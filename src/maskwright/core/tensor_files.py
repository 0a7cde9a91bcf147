"""Write tensors to safetensors files, with a clear error if the disk is full."""

import errno
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from maskwright.core.files import disk_problem


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], *, shown: Path | None = None, metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors by name, contiguous and detached.

    Args:
        tensors: By name, on any device.
        shown: The path to name in errors, if `path` is temporary.
        metadata: Stored in the file's header.

    Raises:
        DeviceError: If the disk is full or cannot be written.
    """
    plain = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    try:
        save_file(plain, path, metadata=None if metadata is None else dict(metadata))
    except SafetensorError as error:
        # safetensors puts the system's error into its message.
        text = str(error)
        full = "No space left" in text or "os error 28" in text
        raise disk_problem(OSError(errno.ENOSPC if full else errno.EIO, text), shown or path) from error
    except OSError as error:
        raise disk_problem(error, shown or path) from error
