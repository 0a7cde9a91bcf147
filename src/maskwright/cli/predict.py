"""`maskwright predict`: predict with a fine-tuned model."""

from pathlib import Path
from typing import Annotated

import typer

from maskwright.cli import output
from maskwright.cli.evaluate import FINE_TUNED_HELP
from maskwright.cli.finetune import READ_HELP, TEXT2_HELP, TEXT_HELP
from maskwright.cli.options import DeviceOption, PrecisionOption
from maskwright.cli.texts import check_model, print_warnings

_SHOWN = 80
"""Characters of a text in the table."""


def command(
    model: Annotated[str, typer.Argument(help=FINE_TUNED_HELP, show_default=False)],
    texts: Annotated[
        list[str] | None,
        typer.Argument(help="Texts; or files (CSV, JSONL, SQuAD JSON, ...).", show_default=False),
    ] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option(help="A file; `-` for standard input.", show_default=False),
    ] = None,
    text: Annotated[str | None, typer.Option(help=TEXT_HELP, show_default=False)] = None,
    text2: Annotated[str | None, typer.Option(help=TEXT2_HELP, show_default=False)] = None,
    read: Annotated[list[str] | None, typer.Option("--read", help=READ_HELP, show_default=False)] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the predictions to this .jsonl, .csv or .tsv file.", show_default=False),
    ] = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print the predictions as JSON.")] = False,
) -> None:
    """Predict a class with its probability, a number, entities with their positions, an answer or a choice."""
    from maskwright.finetuning.predictions import check_output, plain, write_predictions

    if out:
        check_output(out)
    check_model(model)
    from maskwright.finetuning.evaluate import summary
    from maskwright.finetuning.predict import given_inputs, predict

    inputs, files = given_inputs(texts or [], file or [])
    with print_warnings():
        predictions = predict(
            model, inputs, file=files, text=text, text2=text2, read=read or (), device=device, precision=precision
        )
    if out:
        write_predictions(out.expanduser(), predictions)
        output.note(f"{len(predictions):,} predictions in {out}")
    if json:
        output.print_json([plain(prediction) for prediction in predictions])
    elif not out:
        output.table(
            ("score", "prediction", "input"),
            [(*summary(prediction), _shortened(prediction.input_text)) for prediction in predictions],
            right=(0,),
        )


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else line[: _SHOWN - 4].rstrip() + " ..."
