"""The device that a user names."""

import re

import torch

from maskwright.core.errors import DeviceError, nearest
from maskwright.machine.threads import limit_threads

DEVICES = ("auto", "cpu", "cuda", "cuda:N")
"""Names of devices; N is a GPU's number, from 0."""


def choose_device(name: str) -> torch.device:
    """Return the device of that name; "auto" is a GPU if there is one, else the CPU.

    Every computation begins with it, so it limits PyTorch's threads to the CPU quota (`limit_threads`).

    Raises DeviceError if there is no device of that name here.
    """
    limit_threads()
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    known = re.fullmatch(r"cpu|cuda(?::(\d+))?", name)
    if known is None:
        guess = "cuda" if name.lower().startswith("gpu") else nearest(name, DEVICES[:3])
        raise DeviceError(
            f"unknown device {name!r}", allowed=", ".join(DEVICES), hint=f"Did you mean {guess!r}?" if guess else ""
        )
    if name != "cpu" and not torch.cuda.is_available():
        why = "" if torch.version.cuda else " (it is a CPU-only build)"
        raise DeviceError(
            f"device {name!r}: PyTorch finds no CUDA GPU here{why}",
            allowed="auto, cpu",
            hint="Choose one of these, or install a CUDA build of PyTorch and the GPU's driver.",
        )
    if known[1] and int(known[1]) >= (count := torch.cuda.device_count()):
        numbered = "".join(f", cuda:{number}" for number in range(count))
        raise DeviceError(f"there is no device {name!r} here", allowed=f"auto, cpu, cuda{numbered}")
    return torch.device(name)
