"""`maskwright doctor`: what this machine is, what training will use on it, and what would help."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from maskwright.cli import output

if TYPE_CHECKING:
    from maskwright.training.doctor import Diagnosis

_KINDS = {
    "fp32": "fp32, default library",
    "fp32_onednn": "fp32, oneDNN",
    "bf16": "bf16",
}
_LIBRARIES = {"default": "PyTorch's default library", "onednn": "oneDNN"}
_INT8 = {
    "compiled": "our own code, compiled for this processor",
    "libraries": "PyTorch's libraries",
    "fp32": "nothing: it is computed in fp32",
}
_BACKENDS = {
    "rows": "products of matrices over rows",
    "sdpa": "PyTorch's fused attention over rows",
    "jagged": "PyTorch's fused attention over sequences",
    "kernels": "our own kernels, compiled for this GPU",
    "flash": "FlashAttention-2, all else by our own kernels",
}


def command(
    device: Annotated[str, typer.Option(help="What training would be asked for: auto, cpu, cuda or cuda:N.")] = "auto",
    precision: Annotated[
        Literal["auto", "fp32", "bf16"], typer.Option(help="What training would be asked for.")
    ] = "auto",
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure again, even if figures are kept.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Say what this machine is, how fast it can be, what training will use here, and what would help."""
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
        output.note("Nothing is known that would make training faster here.")


def _machine(found: "Diagnosis") -> list[tuple[str, str, str]]:
    from maskwright.core.amounts import size_in_bytes

    hardware = found.hardware
    free = "" if hardware.free_memory is None else f", {size_in_bytes(hardware.free_memory)} free"
    load = "" if hardware.load is None else f"; load {hardware.load:.1f}"
    cards = [f"{card.name}, {size_in_bytes(card.memory)}, capability {card.capability}" for card in hardware.gpus]
    return [
        ("machine", "processor", hardware.processor),
        ("machine", "cores", f"{hardware.cores}, of which this process may use {hardware.usable_cores:g}{load}"),
        ("machine", "instructions", " ".join(hardware.instructions) or "none that matter here"),
        ("machine", "memory", f"{size_in_bytes(hardware.memory)}{free}"),
        *(("machine", "graphics card", card) for card in cards or ["none that PyTorch can use"]),
        ("machine", "system", hardware.system),
    ]


def _peaks(found: "Diagnosis") -> list[tuple[str, str, str]]:
    rows = []
    for device, peaks in found.peaks.items():
        part = f"best of {device}"
        for kind, rate in peaks.matmul.items():
            measured = f"{rate.flops / 1e9:,.0f} GFLOP/s, error {rate.error:.0e} against fp64"
            rows.append((part, f"products in {_KINDS[kind]}", measured))
        rows.append((part, "memory", f"{peaks.bandwidth / 1e9:,.0f} GB/s read and written"))
        rows.append((part, "measured", peaks.measured + (" (kept; --fresh measures again)" if found.kept else "")))
    return rows


def _usage(found: "Diagnosis") -> list[tuple[str, str, str]]:
    usage = found.usage
    library = f", through {_LIBRARIES[usage.matmul]}" if usage.device == "cpu" else ""
    rows = [
        ("training uses", "device", usage.device + (f", {usage.threads} threads" if usage.device == "cpu" else "")),
        ("training uses", "precision", usage.precision + library),
        *(
            ("training uses", f"tokens at once, hidden size {width}", f"{tokens:,}")
            for width, tokens in usage.tokens_per_microbatch.items()
        ),
    ]
    rows += [
        ("training uses", f"attention, {purpose}", _BACKENDS.get(backend, backend))
        for purpose, backend in usage.attention.items()
    ]
    return [*rows, ("training uses", "allocator", usage.allocator)]


def _int8(found: "Diagnosis") -> tuple[str, str, str]:
    why = f", since {found.int8.why}" if found.int8.why else ""
    return ("models use", "for --precision int8", _INT8[found.int8.by] + why)
