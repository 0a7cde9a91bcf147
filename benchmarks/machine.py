"""What is said of the machine beside every figure, and the peaks that utilisation is a share of."""

import functools
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.settings import Settings
from maskwright.core.errors import DeviceError
from maskwright.training.device import Machine, prepare_machine
from maskwright.training.hardware import look_at_hardware
from maskwright.training.probe import MatmulRate

_PACKAGES = ("maskwright", "torch", "transformers", "accelerate", "tokenizers", "numpy")
_LIBRARIES = {"default": "the default library", "onednn": "oneDNN"}
_ACCURATE = 1e-5
_QUIET = 0.1
"""Share of the cores busy with other things below which a machine counts as quiet."""


@functools.cache
def own_machine() -> Machine:
    """Return what maskwright trains with on this machine's processor."""
    return prepare_machine("cpu")


@functools.cache
def has_bf16() -> bool:
    """Whether the processor multiplies bfloat16 matrices itself; emulated ones are not worth measuring."""
    try:
        prepare_machine("cpu", precision="bf16")
    except DeviceError:
        return False
    return True


def facts(settings: Settings, begun: datetime, busy: float | None) -> dict[str, Any]:
    """Describe the circumstances of a measurement.

    Args:
        settings: What was asked for.
        begun: When the row began.
        busy: Cores that were busy with other things just before; None where the system does not say.
    """
    hardware = look_at_hardware()
    quiet = busy is None or busy < _QUIET * hardware.usable_cores
    return {
        "measured": begun.isoformat(timespec="seconds"),
        "seconds": round((datetime.now(UTC) - begun).total_seconds(), 1),
        "quick": settings.quick,
        "quiet": quiet,
        "busy_cores": None if busy is None else round(busy, 2),
        "machine": {
            "processor": hardware.processor,
            "cores": hardware.usable_cores,
            "threads": hardware.threads,
            "instructions": list(hardware.instructions),
            "memory": hardware.memory,
            "allocator": hardware.allocator + (", keeps freed memory" if settings.keeps_memory else ""),
            "allocator_settings": dict(hardware.allocator_settings),
            "huge_pages": hardware.huge_pages,
            "fp32_library": own_machine().matmul,
        },
        "versions": {package: _version(package) for package in _PACKAGES},
        "revision": _revision(),
        "settings": {
            "rounds": settings.rounds,
            "sizes": list(settings.sizes),
            "vocabulary": settings.vocabulary,
            "corpus": settings.corpus.name if settings.corpus else None,
            "labelled": settings.labelled.name if settings.labelled else None,
            "model": settings.model.name if settings.model else None,
            "seed": settings.seed,
        },
    }


def told(found: Mapping[str, Any]) -> str:
    """Say in a line what `facts` found, for captions."""
    machine, versions = found["machine"], found["versions"]
    wide = [name for name in machine["instructions"] if name.startswith(("AVX512", "AMX"))]
    parts = [
        f"{machine['processor']} ({', '.join(wide) or ', '.join(machine['instructions'])})",
        f"{machine['threads']} threads, our fp32 products through {_LIBRARIES[machine['fp32_library']]}",
        machine["allocator"] + "".join(f" {name}={value}" for name, value in machine["allocator_settings"].items()),
        ", ".join(f"{package} {number}" for package, number in versions.items() if number),
        found["measured"][:10],
    ]
    line = "; ".join(parts)
    if found["quick"]:
        line += "; TINY SETTINGS, not a measurement"
    elif not found["quiet"]:
        line += f"; the machine was NOT QUIET ({found['busy_cores']:.1f} cores were busy with other things)"
    return line


def fp32_peak(rates: Mapping[str, MatmulRate]) -> float:
    """Return the fastest exact fp32 product: the denominator of fp32 utilisation, in operations a second."""
    return max(rate.flops for kind, rate in rates.items() if kind.startswith("fp32") and rate.error < _ACCURATE)


def bf16_peak(rates: Mapping[str, MatmulRate]) -> float:
    """Return the fastest bf16 product: the denominator of bf16 utilisation; that of fp32 where none was measured."""
    return rates["bf16"].flops if "bf16" in rates else fp32_peak(rates)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _revision() -> str | None:
    """Return the checkout's commit, with a + where files differ from it; None outside a checkout."""
    here = Path(__file__).parent

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return None
