"""`maskwright detect`: mark the tokens of a text that look replaced."""

from typing import Annotated

import typer

from maskwright.cli import output
from maskwright.cli.options import DeviceOption
from maskwright.cli.texts import (
    ColumnOption,
    FileOption,
    LinesOption,
    ModelArgument,
    PrecisionOption,
    TextsArgument,
    check_model,
    gather,
    load_for_use,
    print_warnings,
)
from maskwright.core.amounts import pluralize


def command(
    model: ModelArgument,
    texts: TextsArgument = None,
    file: FileOption = None,
    column: ColumnOption = None,
    threshold: Annotated[float, typer.Option(help="Probability above which a token is marked.")] = 0.5,
    out: LinesOption = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON, with all tokens.")] = False,
) -> None:
    """Mark tokens that look replaced, with a model pretrained by an electra recipe."""
    given = gather(texts, file, column)
    check_model(model)
    from maskwright.inference.detect import highlight, summary
    from maskwright.inference.texts import write_json_lines

    out = out and out.expanduser()
    loaded = load_for_use(model, device, precision)
    with print_warnings():
        detections = loaded.detect(given, threshold=threshold)
    if out:
        write_json_lines(out, [detection.to_json() for detection in detections])
        output.note(f"{pluralize(len(given), 'text')} in {out}")
    if json:
        output.print_json([detection.to_json() for detection in detections])
        return
    if not out:
        for detection in detections:
            output.console().print(highlight(detection), soft_wrap=True)
    output.note(f"{summary(detections)} (probability at least {threshold:g})")
