"""`maskwright detect`: mark the tokens of a text that look replaced."""

from pathlib import Path

from maskwright.cli import output
from maskwright.cli.options import Arguments, Json, arguments_of
from maskwright.cli.texts import load_for_use, print_warnings
from maskwright.core.text.amounts import pluralize


@arguments_of("detect")
def command(arguments: Arguments, json: Json = False) -> None:
    """Mark tokens that look replaced, with a model pretrained by an electra recipe."""
    loaded, texts, options = load_for_use(arguments)
    out, threshold = arguments["out"], arguments["threshold"]
    from dataclasses import asdict

    from maskwright.inference.commands import detect
    from maskwright.inference.detect import highlight, summary

    with print_warnings():
        detections = detect(loaded, texts, **options)
    if out:
        output.note(f"{pluralize(len(texts), 'text')} in {Path(out).expanduser()}")
    if json:
        output.print_json(list(map(asdict, detections)))
        return
    if not out:
        for detection in detections:
            output.console().print(highlight(detection), soft_wrap=True)
    output.note(f"{summary(detections)} (probability at least {threshold:g})")
