"""What computes products of 8-bit numbers on this machine, and what would help."""

from dataclasses import dataclass
from typing import Literal

import torch

from maskwright.kernels.cpu.int8 import CODE

_VNNI = ("avx512_vnni", "avx_vnni", "amx_int8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Int8Support:
    """How `--precision int8` is computed here.

    Attributes:
        by: "compiled" (our own code), "libraries" (PyTorch's) or "fp32" (not at all).
        why: Why not by our own code; empty where it is.
        todo: What would have it computed by our own code, in sentences; empty if nothing would.
    """

    by: Literal["compiled", "libraries", "fp32"]
    why: str = ""
    todo: str = ""


def int8_support() -> Int8Support:
    """Look, which compiles our own code if this was not done yet."""
    if not multiplies_int8():
        return Int8Support(by="fp32", why="this processor has no instructions for products of 8-bit numbers")
    found = CODE.problem()
    if found is None:
        return Int8Support(by="compiled")
    return Int8Support(by="libraries", why=found.problem, todo=found.todo)


def multiplies_int8() -> bool:
    """Say whether the processor multiplies 8-bit numbers by itself, and PyTorch has the library that lets it."""
    # Without these instructions sums of two products overflow 16 bits, so that numbers must be cut to 7 bits.
    capabilities = torch.cpu.get_capabilities()
    has_library: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return has_library and any(capabilities.get(name) for name in _VNNI)
