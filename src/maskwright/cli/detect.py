"""`maskwright detect`: mark the tokens of a text that look replaced."""

from typing import Annotated

import typer

from maskwright.cli import options, output
from maskwright.cli.texts import gather, load_for_use, print_warnings
from maskwright.core.amounts import pluralize


def command(
    model: options.ModelArgument,
    texts: options.TextsArgument = None,
    file: options.FileOption = None,
    column: options.ColumnOption = None,
    threshold: Annotated[float, typer.Option(help="Probability above which a token is marked.")] = 0.5,
    out: options.LinesOption = None,
    device: options.DeviceOption = "auto",
    precision: options.PrecisionOption = "fp32",
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON, with all tokens.")] = False,
) -> None:
    """Mark tokens that look replaced, with a model pretrained by an electra recipe."""
    given = gather(texts, file, column)
    loaded = load_for_use(model, device, precision)
    from dataclasses import asdict

    from maskwright.inference.commands import detect
    from maskwright.inference.detect import highlight, summary

    with print_warnings():
        detections = detect(loaded, given, threshold=threshold, out=out)
    if out:
        output.note(f"{pluralize(len(given), 'text')} in {out.expanduser()}")
    if json:
        output.print_json(list(map(asdict, detections)))
        return
    if not out:
        for detection in detections:
            output.console().print(highlight(detection), soft_wrap=True)
    output.note(f"{summary(detections)} (probability at least {threshold:g})")
