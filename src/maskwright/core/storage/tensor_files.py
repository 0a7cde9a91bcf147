"""Read and write safetensors files: damaged or hostile files and full disks end in a clear error."""

import contextlib
import errno
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from maskwright.core.errors import ConversionError, MaskwrightError
from maskwright.core.storage.files import disk_problem, disk_problems, open_file, set_default_mode

_FLOATS = ("F64", "F32", "F16", "BF16")
_INDEX_BUFFERS = ("position_ids", "token_type_ids")
"""Ends of names of integer buffers that transformers saves beside the weights; they hold no weights."""
_LONGEST_NAME = 200


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the weights of a safetensors file by name, on the CPU in fp32; index buffers are left out.

    Raises ConversionError if it is not a regular file or is damaged, or weights are not floating-point numbers or not
    finite in fp32.
    """
    try:
        open_file(path).close()
        with safe_open(path, "pt", device="cpu") as file:
            types = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
            for name in [name for name in types if name.endswith(_INDEX_BUFFERS)]:
                del types[name]
            if others := {name: dtype for name, dtype in types.items() if dtype not in _FLOATS}:
                raise ConversionError(
                    f"{_listed(others)} of {path} {'has' if len(others) == 1 else 'have'} the type "
                    f"{', '.join(sorted(set(others.values())))}",
                    allowed=", ".join(_FLOATS),
                    hint="Save the weights without quantization",
                )
            tensors = {name: file.get_tensor(name).float() for name in types}
    except (SafetensorError, OSError) as error:
        size = f" ({path.stat().st_size:,} bytes)" if isinstance(error, SafetensorError) else ""
        reason = getattr(error, "strerror", None) or error
        raise ConversionError(
            f"{path} cannot be read{size}: {reason}", hint="If it is damaged or truncated, download or copy it again"
        ) from error
    # The sum is a fast test; of large finite values it may overflow.
    if bad := [name for name, each in tensors.items() if not each.sum().isfinite() and not each.isfinite().all()]:
        raise ConversionError(
            f"{_listed(bad)} of {path} {'has' if len(bad) == 1 else 'have'} values that are NaN or infinite",
            hint="Training has diverged or the file is damaged: use a copy, or train again with a lower learning rate",
        )
    return tensors


def _listed(names: Collection[str]) -> str:
    shown = next(iter(names))[:_LONGEST_NAME]
    return shown if len(names) == 1 else f"{shown} and {len(names) - 1:,} other weights"


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
        set_default_mode(path)


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
        folder = next(parent for parent in path.absolute().parents if parent.exists())
        is_full = "No space left" in text or "Disk quota" in text
        if is_full or ("iostream error" in text and shutil.disk_usage(folder).free < 1 << 20):
            raise disk_problem(OSError(errno.ENOSPC, text), path) from error
        raise
