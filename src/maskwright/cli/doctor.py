"""`maskwright doctor`: hardware, training configuration and advice for this machine."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from maskwright.cli import output

if TYPE_CHECKING:
    from maskwright.training.doctor import Diagnosis

_KINDS = {
    "fp32": "fp32, default BLAS",
    "fp32_onednn": "fp32, oneDNN",
    "bf16": "bf16",
}
_LIBRARIES = {"default": "PyTorch's default BLAS", "onednn": "oneDNN"}
_INT8 = {
    "compiled": "native kernels",
    "libraries": "PyTorch",
    "fp32": "not supported: fp32 is used",
}
_BACKENDS = {
    "rows": "batched matmul over padded rows",
    "sdpa": "PyTorch SDPA over padded rows",
    "jagged": "PyTorch SDPA over nested sequences",
    "kernels": "Triton kernels",
    "flash": "FlashAttention-2, other operations by Triton kernels",
}


def command(
    device: Annotated[str, typer.Option(help="Device of the training: auto, cpu, cuda or cuda:N.")] = "auto",
    precision: Annotated[Literal["auto", "fp32", "bf16"], typer.Option(help="Precision of the training.")] = "auto",
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure again, ignoring cached results.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the hardware, its peak speed, the configuration that training will use, and advice."""
    from maskwright.training.doctor import doctor

    found = doctor(device, precision=precision, fresh=fresh)
    if json:
        output.print_json(found.to_json())
        return
    rows = [*_machine(found), *_peaks(found), *_usage(found), _int8(found)]
    parts = output.grouped(part for part, _, _ in rows)
    output.table(
        ("", "", ""), [(output.strong(part), label, value) for part, (_, label, value) in zip(parts, rows, strict=True)]
    )
    for sentence in found.advice:
        output.console().print(f"- {sentence}", soft_wrap=True, markup=False)
    if not found.advice:
        output.note("No advice: no known change would make training faster here.")


def _machine(found: "Diagnosis") -> list[tuple[str, str, str]]:
    from maskwright.core.amounts import size_in_bytes

    hardware = found.hardware
    free = "" if hardware.free_memory is None else f", {size_in_bytes(hardware.free_memory)} free"
    load = "" if hardware.load is None else f"; load {hardware.load:.1f}"
    cards = [f"{card.name}, {size_in_bytes(card.memory)}, capability {card.capability}" for card in hardware.gpus]
    return [
        ("machine", "processor", hardware.processor),
        ("machine", "cores", f"{hardware.cores}, {hardware.usable_cores:g} usable by this process{load}"),
        ("machine", "instructions", " ".join(hardware.instructions) or "none relevant"),
        ("machine", "memory", f"{size_in_bytes(hardware.memory)}{free}"),
        *(("machine", "GPU", card) for card in cards or ["none usable by PyTorch"]),
        ("machine", "system", hardware.system),
    ]


def _peaks(found: "Diagnosis") -> list[tuple[str, str, str]]:
    rows = []
    for device, peaks in found.peaks.items():
        part = f"peak of {device}"
        for kind, rate in peaks.matmul.items():
            measured = f"{rate.flops / 1e9:,.0f} GFLOP/s, error {rate.error:.0e} against fp64"
            rows.append((part, f"matmul in {_KINDS[kind]}", measured))
        rows.append((part, "memory", f"{peaks.bandwidth / 1e9:,.0f} GB/s read + write"))
        rows.append((part, "measured", peaks.measured + (" (cached; --fresh measures again)" if found.kept else "")))
    return rows


def _usage(found: "Diagnosis") -> list[tuple[str, str, str]]:
    usage = found.usage
    library = f", {_LIBRARIES[usage.matmul]}" if usage.device == "cpu" else ""
    rows = [
        ("training uses", "device", usage.device + (f", {usage.threads} threads" if usage.device == "cpu" else "")),
        ("training uses", "precision", usage.precision + library),
        *(
            ("training uses", f"tokens per micro-batch, hidden size {width}", f"{tokens:,}")
            for width, tokens in usage.tokens_per_microbatch.items()
        ),
    ]
    rows += [
        ("training uses", f"attention, {purpose}", _BACKENDS.get(backend, backend))
        for purpose, backend in usage.attention.items()
    ]
    return [*rows, ("training uses", "allocator", usage.allocator)]


def _int8(found: "Diagnosis") -> tuple[str, str, str]:
    why = f": {found.int8.why}" if found.int8.why else ""
    return ("inference uses", "--precision int8", _INT8[found.int8.by] + why)
