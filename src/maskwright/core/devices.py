"""The device that a user names."""

import re

import torch

from maskwright.core.errors import DeviceError, nearest

DEVICES = ("auto", "cpu", "cuda", "cuda:N")
"""Names of devices; N is a GPU's number, from 0."""

_NUMBERED = re.compile(r"cuda:(\d+)")


def choose_device(name: str) -> torch.device:
    """Return the device of that name; "auto" is a GPU if there is one, else the CPU.

    Raises:
        DeviceError: If there is no device of that name here.
    """
    numbered = _NUMBERED.fullmatch(name)
    if name not in DEVICES[:3] and numbered is None:
        guess = "cuda" if name.lower().startswith("gpu") else nearest(name, DEVICES[:3])
        raise DeviceError(
            f"unknown device {name!r}",
            allowed=", ".join(DEVICES),
            todo=f"Did you mean {guess!r}?" if guess else "",
        )
    has_gpu = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda" if has_gpu else "cpu")
    if name == "cpu":
        return torch.device("cpu")
    if not has_gpu:
        why = "" if torch.version.cuda else " (it is a CPU-only build)"
        raise DeviceError(
            f"device {name!r}: PyTorch finds no CUDA GPU here{why}",
            allowed="auto, cpu",
            todo="Choose one of these, or install a CUDA build of PyTorch and the GPU's driver.",
        )
    count = torch.cuda.device_count()
    if numbered is not None and int(numbered[1]) >= count:
        known = ", ".join(f"cuda:{number}" for number in range(count))
        raise DeviceError(f"there is no device {name!r} here", allowed=f"auto, cpu, cuda, {known}")
    return torch.device(name)
