"""`maskwright doctor`: hardware, training configuration and advice for this machine; or the state of a run or model."""

from pathlib import Path
from typing import Annotated

import typer

from maskwright.cli import output
from maskwright.cli.options import Arguments, Json, arguments_of

_KINDS = {"fp32": "fp32, default BLAS", "fp32_onednn": "fp32, oneDNN", "bf16": "bf16"}


@arguments_of("doctor")
def command(
    arguments: Arguments,
    folder: Annotated[
        Path | None, typer.Argument(help="A run, to explain what went wrong; or a model folder, to check and describe.")
    ] = None,
    json: Json = False,
) -> None:
    """Show the hardware, its peak speed, how training will be configured, and advice; or explain a run or a model."""
    if folder is not None:
        from maskwright.training.runs.examination import examine

        findings = examine(folder)
        if json:
            output.print_json([finding._asdict() for finding in findings])
        else:
            output.table(
                ("", ""),
                [(output.strong(topic), f"{text.removesuffix('.')}. {hint}") for topic, text, hint in findings],
            )
        return
    from maskwright.core.text.amounts import pluralize, size_in_bytes
    from maskwright.training.doctor import doctor

    diagnosis = doctor(**arguments)
    if json:
        output.print_json(diagnosis.to_json())
        return
    hardware, training = diagnosis.hardware, diagnosis.training
    free = "" if hardware.free_memory is None else f", {size_in_bytes(hardware.free_memory)} free"
    threads = f", {pluralize(hardware.threads, 'thread')}" if training["device"] == "cpu" else ""
    int8 = f"unavailable, fp32 instead: {diagnosis.int8}" if diagnosis.int8 else "available"
    rows = [
        ("machine", "processor", hardware.processor),
        ("machine", "cores", f"{hardware.cores}, {hardware.usable_cores:g} usable by this process"),
        ("machine", "instructions", " ".join(hardware.instructions).upper() or "none relevant"),
        ("machine", "memory", f"{size_in_bytes(hardware.memory)}{free}"),
        *(("machine", "GPU", gpu) for gpu in hardware.gpus or ["none usable by PyTorch"]),
        *(
            ("peak matmul throughput", f"{name}, {_KINDS[kind]}", f"{flops / 1e9:,.0f} GFLOP/s")
            for name, rates in diagnosis.peak_flops.items()
            for kind, flops in rates.items()
        ),
        ("training", "device", training["device"] + threads),
        ("training", "precision", training["precision"] + (", oneDNN" if training["matmul"] == "onednn" else "")),
        ("inference", "--precision int8", int8),
    ]
    output.table(("", "", ""), [(output.strong(group), label, value) for group, label, value in rows], merged=True)
    for sentence in diagnosis.advice:
        output.console().print(f"- {sentence}", soft_wrap=True, markup=False)
    if not diagnosis.advice:
        output.note("No advice: no known change would make training faster here.")
