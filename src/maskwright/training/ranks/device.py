"""The machine of a run: device, precision, matmul library, kernels, measured peak and accuracy of matmul."""

import contextlib
import functools
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor

from maskwright.core.errors import DeviceError
from maskwright.core.spec import fingerprint
from maskwright.core.storage.files import cache_folder, read_json, write_json
from maskwright.kernels.setting import Kernels, has_kernels, use_kernels
from maskwright.machine.devices import choose_device
from maskwright.training.ranks.allocator import keep_freed_memory
from maskwright.training.ranks.distributed import own_device

if TYPE_CHECKING:
    from maskwright.recipes.recipe import Recipe

MatmulLibrary = Literal["default", "onednn"]
Precision = Literal["auto", "fp32", "bf16"]
_SETTINGS: dict[MatmulLibrary, str] = {"default": "none", "onednn": "bf16"}
"""torch.backends.mkldnn.matmul.fp32_precision by library. "none" leaves the choice to PyTorch. "bf16" sends fp32
matrices to oneDNN; whether it then rounds them to bfloat16 depends on the processor, so `matmul_error` checks it."""

# (rows, inner, columns): feed-forward matmuls of a base and of a small encoder. Caches decide which is faster.
_PEAK_SHAPES = ((2048, 768, 3072), (2048, 512, 1024))
_GPU_SCALE = 4
# The same of the layers that compare libraries, and (batch, rows, inner, columns) of their attention.
_LAYER_SHAPES = ((1024, 256, 1024), (1024, 768, 3072))
_ATTENTION_SHAPE = (64, 64, 64, 64)
_ERROR_SHAPE = (512, 256, 384)
_ROUNDS = 2

_WORTH, _ACCURATE = 1.05, 1e-5
_SWITCH_SECONDS = 3e-4
_MAX_TOKENS = 65536
"""A layer's matmuls are no faster with more rows (LOG.md, "first training on a GPU")."""
_ACTIVATION_BYTES = 36
"""Bytes that a layer keeps for the backward pass, per token and unit of hidden size: 18 bfloat16 numbers, with a
feed-forward layer four times as wide. Measured: a pass of 32,768 tokens of a base model takes 11.7 GB in all."""
_BYTES_PER_TOKEN = 2 << 20
"""GPU memory per token of a micro-batch: several times what a base model needs."""
_WIDEST_FOR_4096 = 512
"""Widest encoder with 4,096 tokens per CPU micro-batch instead of 2,048. More tokens amortize the fixed cost of a pass:
3 to 10 % of a step at width 256, 3 % at 512, nothing at 768 (LOG.md, "more tokens at a time")."""


@dataclass(frozen=True)
class Machine:
    """The device, the precision and the kernels of a run.

    Attributes:
        autocast: bfloat16 for matmuls, or None (fp32).
        kernels: "auto" if kernels may be used, "reference" if only PyTorch computes.
        gradient_dtype: Type in which ranks exchange gradients.
    """

    device: torch.device
    name: str
    threads: int
    matmul: MatmulLibrary
    autocast: torch.dtype | None
    kernels: Kernels = "auto"
    gradient_dtype: torch.dtype = torch.float32

    @property
    def precision(self) -> Literal["fp32", "bf16"]:
        """Precision of matmuls; weights and sums are always fp32."""
        return "fp32" if self.autocast is None else "bf16"

    @property
    def needs_kernel_check(self) -> bool:
        """Whether kernels may be used only after they have passed `kernel_check.check_kernels`."""
        return self.device.type == "cuda" and self.kernels == "auto"

    @functools.cached_property
    def peak_flops(self) -> float:
        """Peak matmul throughput in the run's precision, FLOP/s, measured when it is first asked for."""
        return self.measure_peak()

    def measure_peak(self) -> float:
        """Measure `peak_flops` again."""
        return peak_matmul_flops(
            self.device, self.autocast or torch.float32, "default" if self.autocast else self.matmul
        )

    def to_json(self) -> dict[str, str]:
        """Return what a run records."""
        return {
            "name": self.name,
            "device": str(self.device),
            "matmul": self.matmul,
            "precision": self.precision,
            "kernels": self.kernels,
        }

    def tokens_per_microbatch(self, hidden_size: int) -> int:
        """Return the most tokens of a forward and backward pass, for any model of this hidden size."""
        if self.device.type == "cpu":
            return 4096 if hidden_size <= _WIDEST_FOR_4096 else 2048
        memory = torch.cuda.get_device_properties(self.device).total_memory
        return max(2048, min(32768, 1 << (memory // _BYTES_PER_TOKEN).bit_length() - 1))


def pretraining_microbatch(machine: Machine, recipe: "Recipe") -> int:
    """Return the most tokens of a forward and backward pass in pretraining; on a GPU by its memory.

    Total memory counts, not free memory: dropout is keyed by micro-batches, so a resumed run must cut its steps as
    before.
    """
    encoders = [config for config, _ in recipe.encoders.values()]
    if machine.device.type == "cpu":
        return machine.tokens_per_microbatch(max(encoder.hidden_size for encoder in encoders))
    per_token = sum(_ACTIVATION_BYTES * encoder.hidden_size * encoder.num_layers for encoder in encoders)
    memory = torch.cuda.get_device_properties(machine.device).total_memory
    return max(2048, min(_MAX_TOKENS, 1 << int(memory / 3 // per_token).bit_length() - 1))


def prepare_machine(
    device: str = "auto",
    matmul: MatmulLibrary | None = None,
    cache: Path | None = None,
    precision: Precision = "auto",
    kernels: Kernels = "auto",
) -> Machine:
    """Choose the device and, on a CPU, the faster matmul library. Takes under a second.

    PyTorch's CPU build multiplies fp32 matrices with its vendor's library; on processors of another vendor oneDNN can
    be up to twice as fast. The setting that selects oneDNN allows reduced precision on some machines, so it is used
    only if a layer's matmuls take 5 % longer without it and their relative error stays below 1e-5. The two libraries
    round differently, so the choice is made once per machine and cached: runs must not depend on a timing. Raises
    DeviceError if there is no such device or precision, or the device does not have that precision.

    Args:
        matmul: The library that a run began with; None chooses.
        precision: "auto" is bf16 on a GPU that has it, else fp32.
        kernels: "auto" becomes "reference" on a GPU that cannot run kernels.
    """
    if precision not in get_args(Precision):
        raise DeviceError(f"unknown precision {precision!r}", allowed=", ".join(get_args(Precision)))
    if kernels not in get_args(Kernels):
        raise DeviceError(f"unknown setting {kernels!r} of --kernels", allowed=", ".join(get_args(Kernels)))
    chosen = own_device(choose_device(device))
    threads = torch.get_num_threads()
    has_bf16 = multiplies_bf16(chosen)
    if precision == "bf16" and not has_bf16:
        raise DeviceError(
            f"the device {chosen} has no bf16 matmul; emulated, it is slower than fp32", hint="Leave --precision out."
        )
    library: MatmulLibrary = "default"
    if chosen.type == "cuda":
        if chosen.index is not None:
            torch.cuda.set_device(chosen)  # Triton launches on the current device.
        autocast = torch.bfloat16 if has_bf16 and precision != "fp32" else None
        if kernels == "auto" and (autocast is None or not has_kernels(chosen)):
            kernels = "reference"
        name = torch.cuda.get_device_name(chosen)
    else:
        keep_freed_memory()
        autocast = torch.bfloat16 if precision == "bf16" else None
        name = processor_name()
        library = matmul or _cached_library(name, threads, cache or cache_folder())
    return Machine(chosen, name, threads, library, autocast, kernels)


def restore_machine(
    recorded: Mapping[str, Any], device: str, cache: Path | None, precision: Precision, kernels: Kernels = "auto"
) -> tuple[Machine, str]:
    """Choose as `prepare_machine` does, but with the matmul library that a run began with, and its kernels at most.

    `recorded` is its `Machine.to_json`, {} for a new run. Returns the machine, and a warning; "" if there is none.
    """
    if recorded.get("kernels") == "reference":
        kernels = "reference"
    machine = prepare_machine(device, recorded.get("matmul"), cache, precision, kernels)
    if not recorded or machine.device.type == "cpu" or machine.kernels == kernels:
        return machine, ""
    return machine, (
        "kernels disabled: this run started with GPU kernels, which need Triton and a GPU with bf16; its numbers "
        "now differ in the last digits, and attention dropout uses other masks"
    )


def multiplies_bf16(device: torch.device) -> bool:
    """Return whether a device has bfloat16 matmul in hardware; emulated, it is slower than fp32."""
    if device.type == "cuda":
        with torch.cuda.device(device):  # PyTorch answers for the current GPU.
            return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    # True only if the processor has the instructions (AVX512_BF16 or AMX; on ARM, BF16).
    return has_onednn(device) and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


@contextlib.contextmanager
def use_matmul_library(library: MatmulLibrary) -> Iterator[None]:
    """Multiply fp32 matrices on a CPU with a library while the block runs."""
    matmul = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]  # set up at run time
    before = matmul.fp32_precision
    matmul.fp32_precision = _SETTINGS[library]
    try:
        yield
    finally:
        matmul.fp32_precision = before


@contextlib.contextmanager
def use_machine(machine: Machine) -> Iterator[None]:
    """Use a machine's matmul library and kernels while the block runs.

    On a GPU, Python threads also switch more often than every 5 ms, so that preparing batches does not delay the thread
    that launches the backward pass (a step of bert/tiny takes 5.8 ms instead of 8.0).
    """
    before = sys.getswitchinterval()
    with use_matmul_library(machine.matmul), use_kernels(machine.kernels == "auto"):
        try:
            if machine.device.type == "cuda":
                sys.setswitchinterval(min(before, _SWITCH_SECONDS))
            yield
        finally:
            sys.setswitchinterval(before)


def processor_name() -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    import platform

    return platform.processor() or platform.machine()


def _cached_library(name: str, threads: int, cache: Path) -> MatmulLibrary:
    # Some vendors use one name for several generations; their instruction sets differ.
    about = [name, threads, torch.__version__, torch.cpu.get_capabilities(), _WORTH]
    path = cache / f"machine-{fingerprint(about)}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        if (cached := read_json(path)["matmul"]) in _SETTINGS:
            library: MatmulLibrary = cached
            return library
    library = "default"
    if has_onednn(torch.device("cpu")):
        seconds = layer_seconds()
        if seconds["default"] > _WORTH * seconds["onednn"] and matmul_error("onednn") < _ACCURATE:
            library = "onednn"
    with contextlib.suppress(DeviceError):  # An unwritable cache only costs a second next time.
        write_json(path, {"processor": name, "threads": threads, "torch": torch.__version__, "matmul": library})
    return library


def peak_matmul_flops(
    device: torch.device, dtype: torch.dtype = torch.float32, library: MatmulLibrary = "default", seconds: float = 0.2
) -> float:
    """Return the FLOP/s of the fastest large matmul (multiply and add count as two) in about `seconds`."""
    scale = _GPU_SCALE if device.type == "cuda" else 1
    pairs = [_operands((scale * m, scale * k, scale * n), dtype, device) for m, k, n in _PEAK_SHAPES]
    best = 0.0
    with use_matmul_library(library):
        for _ in _rounds(seconds):
            for left, right in pairs:
                took = _seconds(partial(torch.nn.functional.linear, left, right), device)
                best = max(best, 2.0 * left.numel() * len(right) / took)
    return best


def layer_seconds(seconds: float = 0.7) -> dict[MatmulLibrary, float]:
    """Time the fp32 matmuls of training a layer on the CPU with each library; the best of each matmul, summed.

    They are a dense layer's output, input gradient and weight gradient at two widths, and attention's batched matmul:
    which library is faster differs between them. Libraries alternate, so that a disturbance affects both.
    """
    cpu = torch.device("cpu")
    matmuls: list[Callable[[], Tensor]] = []
    for shape in _LAYER_SHAPES:
        inputs, weight = _operands(shape, torch.float32, cpu)
        grad = inputs @ weight.T
        matmuls += [
            partial(torch.nn.functional.linear, inputs, weight),
            partial(torch.mm, grad, weight),
            partial(torch.mm, grad.T, inputs),
        ]
    batch, rows, inner, columns = _ATTENTION_SHAPE
    left, right = _operands((batch * rows, inner, batch * columns), torch.float32, cpu)
    matmuls.append(partial(torch.bmm, left.view(batch, rows, inner), right.view(batch, columns, inner).mT))
    best = {library: [math.inf] * len(matmuls) for library in _SETTINGS}
    for _ in _rounds(seconds):
        for library, times in best.items():
            with use_matmul_library(library):
                for number, matmul in enumerate(matmuls):
                    times[number] = min(times[number], _seconds(matmul, cpu))
    return {library: sum(times) for library, times in best.items()}


def has_onednn(device: torch.device) -> bool:
    """Return whether oneDNN can multiply matrices there: on a CPU, if PyTorch was built with it."""
    return device.type == "cpu" and bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]


def matmul_error(library: MatmulLibrary) -> float:
    """Return the largest error of an fp32 matmul on the CPU against fp64, relative to the largest entry."""
    left, right = _operands(_ERROR_SHAPE, torch.float32, torch.device("cpu"))
    with use_matmul_library(library):
        computed = torch.nn.functional.linear(left, right)
    exact = left.double() @ right.double().T
    return float((computed.double() - exact).abs().max() / exact.abs().max())


def _operands(shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    # Random numbers: constant matrices draw less power on some processors and are multiplied faster than real ones.
    rows, inner, columns = shape
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(size, inner, generator=generator) for size in (rows, columns))
    return left.to(device, dtype), right.to(device, dtype)


def _rounds(seconds: float) -> Iterator[None]:
    """Yield again and again until the time is over, at least twice."""
    begun, rounds = time.perf_counter(), 0
    while rounds < _ROUNDS or time.perf_counter() - begun < seconds:
        yield
        rounds += 1


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    begun = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begun
