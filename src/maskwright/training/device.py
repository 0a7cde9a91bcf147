"""The machine at hand: where to train, which matrix-product library is faster, and what its peak is."""

import contextlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from maskwright.core.devices import choose_device
from maskwright.core.errors import DeviceError
from maskwright.core.files import cache_folder, read_json, write_json
from maskwright.core.spec import fingerprint
from maskwright.kernels.cuda.sublayers import computes_on
from maskwright.kernels.setting import Kernels, use_native_kernels
from maskwright.recipes.recipe import Recipe
from maskwright.training.allocator import keep_freed_memory
from maskwright.training.probe import has_onednn, probe_error, probe_layers, probe_matmul, products_by

MatmulLibrary = Literal["default", "onednn"]
Precision = Literal["auto", "fp32", "bf16"]

_PEAK_SECONDS = 0.2
_WORTH = 1.05
_ACCURATE = 1e-5
_TURN_SECONDS = 3e-4
_MOST_TOKENS = 65536
"""A layer's products of so many rows are no faster than of half as many (LOG.md, "first training on a GPU")."""
_KEPT_BYTES = 36
"""What a layer keeps of a token for the backward pass, by hidden size: 18 bfloat16 numbers, with a feed-forward layer
four times as wide. Measured: a base model's pass of 32,768 tokens takes 11.7 GB in all."""
_BYTES_A_TOKEN = 2 << 20
"""Of a GPU's memory, for a token that is computed on at a time: several times what a base model keeps of one."""
_WIDEST_OF_MANY = 512
"""Widest encoder that a processor computes 4,096 tokens of at a time, not 2,048: what a pass does once (rounding and
joining weights, adding up gradients, starting operations) is then shared by more. Width 256: 3 to 10 % of a step, 512
some 3 %, 768 nothing that shows (LOG.md, "more tokens at a time")."""
_KINDS = {"default": "fp32", "onednn": "fp32_onednn"}
"""What `probe` calls the libraries."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What a run uses.

    Attributes:
        device: Where it trains.
        name: The processor's or GPU's name as the system gives it.
        threads: Threads that PyTorch computes with (CPU).
        matmul: "default", or "onednn" where that library multiplies fp32 matrices faster and as exactly.
        peak_flops: Measured multiply-add operations x 2 a second of a large matrix product in the run's precision.
        autocast: bfloat16 for matrix products, on a GPU that has it or where it was asked for; else None (fp32).
        kernels: "auto" if native kernels may be used; "reference" if only PyTorch computes.
    """

    device: torch.device
    name: str
    threads: int
    matmul: MatmulLibrary
    peak_flops: float
    autocast: torch.dtype | None
    kernels: Kernels = "auto"

    @property
    def precision(self) -> Precision:
        """What matrix products are computed in; weights and sums are fp32 always."""
        return "fp32" if self.autocast is None else "bf16"

    def to_json(self) -> dict[str, str]:
        """Return what a run keeps of it."""
        return {
            "name": self.name,
            "device": str(self.device),
            "matmul": self.matmul,
            "precision": self.precision,
            "kernels": self.kernels,
        }

    def tokens_per_microbatch(self, hidden_size: int) -> int:
        """Return the slots of a forward and backward pass: what keeps the device busy and its memory unstrained.

        Args:
            hidden_size: Of the widest encoder that is trained.
        """
        if self.device.type == "cpu":
            return 4096 if hidden_size <= _WIDEST_OF_MANY else 2048
        # Whatever the model; pretraining looks at it (`tokens_at_once`).
        memory = torch.cuda.get_device_properties(self.device).total_memory
        return max(2048, min(32768, 1 << (memory // _BYTES_A_TOKEN).bit_length() - 1))


def tokens_at_once(machine: Machine, recipe: Recipe) -> int:
    """Return the slots of a forward and backward pass in pretraining: on a GPU as many as its memory has room for.

    It goes by all of the memory, not by what is free: dropout is keyed by micro-batches, and a run that goes on must
    cut its steps as before.
    """
    towers = [recipe.encoder]
    if recipe.generator is not None:
        towers.append(recipe.generator.config(recipe.encoder))
    if machine.device.type == "cpu":
        return machine.tokens_per_microbatch(max(tower.hidden_size for tower in towers))
    each = sum(_KEPT_BYTES * tower.hidden_size * tower.num_layers for tower in towers)
    memory = torch.cuda.get_device_properties(machine.device).total_memory
    return max(2048, min(_MOST_TOKENS, 1 << int(memory / 3 // each).bit_length() - 1))


def prepare_machine(
    device: str = "auto",
    matmul: MatmulLibrary | None = None,
    cache: Path | None = None,
    precision: Precision = "auto",
    kernels: Kernels = "auto",
) -> Machine:
    """Choose the device and, on a CPU, the faster matrix-product library; have memory kept. Takes under a second.

    PyTorch's CPU build multiplies fp32 matrices with its vendor library; on processors of another vendor oneDNN can be
    up to twice as fast. The switch that sends fp32 products there allows reduced precision on some machines, so it is
    taken only if a layer's products take 5 % longer without it and a product's relative error stays below 1e-5. The two
    round differently, so the choice is made once a machine and kept in the cache: runs must not depend on a stopwatch.

    Args:
        device: "auto", "cpu", "cuda" or "cuda:N".
        matmul: The library that a run began with; None chooses.
        cache: Where the choice is kept; None for the user's cache folder.
        precision: "fp32", "bf16" for matrix products (the weights stay fp32), or "auto": bf16 on a GPU that has it.
        kernels: "auto" falls back to "reference" on a GPU that cannot run them.

    Raises:
        DeviceError: If there is no such device, no such precision, or the device does not have it.
    """
    if precision not in get_args(Precision):
        raise DeviceError(f"unknown precision {precision!r}", allowed=", ".join(get_args(Precision)))
    chosen = choose_device(device)
    threads = torch.get_num_threads()
    has_bf16 = multiplies_bf16(chosen)
    if precision == "bf16" and not has_bf16:
        raise DeviceError(
            f"the device {chosen} does not multiply bf16 numbers by itself: emulated, they are slower than fp32",
            todo="Leave --precision out.",
        )
    half = torch.bfloat16
    if chosen.type == "cuda":
        if chosen.index is not None:
            torch.cuda.set_device(chosen)  # Triton launches on the current device.
        autocast = half if has_bf16 and precision != "fp32" else None
        usable = kernels == "auto" and computes_on(chosen, autocast or torch.float32)
        peak = _peak(chosen, "fp32" if autocast is None else "bf16")
        name = torch.cuda.get_device_name(chosen)
        return Machine(chosen, name, threads, "default", peak, autocast, "auto" if usable else "reference")
    if chosen.type != "cpu":
        raise DeviceError(f"training on {chosen.type!r} is not supported", allowed="cpu, cuda")
    keep_freed_memory()
    name = processor_name()
    library = matmul or _kept_choice(name, threads, cache or cache_folder())
    cpu_autocast = half if precision == "bf16" else None
    peak = _peak(chosen, "bf16" if cpu_autocast else _KINDS[library])
    return Machine(chosen, name, threads, library, peak, cpu_autocast, kernels)


def prepare_machine_again(
    begun: Mapping[str, Any], device: str, cache: Path | None, precision: Precision
) -> tuple[Machine, str]:
    """Choose as `prepare_machine` does, but go on with the code that a run began with.

    Args:
        begun: What the run kept (`Machine.to_json`); {} for a run that begins.
        device: As in `prepare_machine`.
        cache: As in `prepare_machine`.
        precision: As in `prepare_machine`.

    Returns:
        The machine, and what the user should know of it; "" if nothing.
    """
    kernels = _recorded_kernels(begun)
    machine = prepare_machine(device, begun.get("matmul"), cache, precision, kernels)
    if machine.device.type == "cpu" and "kernels" not in begun and begun.get("attention") == "compiled":
        return machine, (
            "this run started with C training kernels that have since been removed: its numbers now differ in the last "
            "digits, and dropout uses other masks"
        )
    if not begun or machine.device.type == "cpu" or machine.kernels == kernels:
        return machine, ""
    return machine, (
        "kernels disabled: this run started with Triton kernels, which need Triton and a GPU with bf16; its numbers "
        "now differ in the last digits, and so does what attention dropout drops"
    )


def _recorded_kernels(begun: Mapping[str, Any]) -> Kernels:
    if "kernels" in begun:
        return "reference" if begun["kernels"] == "reference" else "auto"
    # Older runs recorded "attention": "compiled" or "libraries"; the oldest recorded neither and had no kernels.
    return "auto" if not begun or begun.get("attention") == "compiled" else "reference"


def multiplies_bf16(device: torch.device) -> bool:
    """Say whether a device multiplies bfloat16 matrices by itself; emulated, they are slower than fp32 ones."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    # Only says so where the processor has the instructions (AVX512_BF16 or AMX; on ARM, BF16).
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


@contextlib.contextmanager
def matmul_library(library: MatmulLibrary) -> Iterator[None]:
    """Let fp32 matrix products on the CPU run in a library while the block runs."""
    with products_by(_KINDS[library]):
        yield


@contextlib.contextmanager
def computing_on(machine: Machine) -> Iterator[None]:
    """Let products and attention be computed by what a machine uses while the block runs.

    For a GPU threads of Python also take turns more often than every 5 ms: autograd's sends it the backward pass, and
    one that makes batches must not hold that up (a step of bert/tiny's size took 5.8 ms instead of 8.0).
    """
    before = sys.getswitchinterval()
    with matmul_library(machine.matmul), use_native_kernels(machine.kernels == "auto"):
        try:
            if machine.device.type == "cuda":
                sys.setswitchinterval(min(before, _TURN_SECONDS))
            yield
        finally:
            sys.setswitchinterval(before)


def processor_name() -> str:
    """Return the processor's name as the system gives it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    import platform

    return platform.processor() or platform.machine()


def _kept_choice(name: str, threads: int, cache: Path) -> MatmulLibrary:
    # One name stands for several generations of some makers' processors; the instructions tell them apart.
    about = [name, threads, torch.__version__, torch.cpu.get_capabilities(), _WORTH]
    path = cache / f"machine-{fingerprint(about)}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        if (kept := read_json(path)["matmul"]) in _KINDS:
            library: MatmulLibrary = kept
            return library
    chosen = _faster_library()
    with contextlib.suppress(DeviceError):  # A cache that cannot be written costs a second next time, no more.
        write_json(path, {"processor": name, "threads": threads, "torch": torch.__version__, "matmul": chosen})
    return chosen


def _faster_library() -> MatmulLibrary:
    if not has_onednn(torch.device("cpu")):
        return "default"
    took = probe_layers()
    worth_it = took["fp32"] > _WORTH * took["fp32_onednn"]
    return "onednn" if worth_it and probe_error("fp32_onednn") < _ACCURATE else "default"


def _peak(device: torch.device, kind: str) -> float:
    # The best time, not the median: a peak is what the machine can do when nothing else disturbs it.
    return probe_matmul(device, _PEAK_SECONDS, (kind,))[kind].flops
