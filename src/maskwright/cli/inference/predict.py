"""`maskwright predict`: predict with a fine-tuned model."""

from pathlib import Path
from typing import Annotated

import typer

from maskwright.checkpoints.location import check_folder
from maskwright.cli import output
from maskwright.cli.options import Arguments, Json, arguments_of
from maskwright.cli.texts import print_warnings
from maskwright.core.storage.files import refuse_overwrite

_SHOWN = 80
"""Characters of a text in the table."""


@arguments_of("predict", without=["inputs"])
def command(
    arguments: Arguments,
    texts: Annotated[list[str] | None, typer.Argument(help="Texts; or files (CSV, JSONL, SQuAD JSON, ...).")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the predictions to this .jsonl, .csv or .tsv file.")] = None,
    json: Json = False,
) -> None:
    """Predict a class with its probability, a number, entities with their positions, an answer or a choice."""
    from maskwright.finetuning.predictions import check_output, plain, write_predictions

    if out:
        check_output(out)
    check_folder(arguments["model"])
    from maskwright.core.text.amounts import pluralize
    from maskwright.finetuning.evaluate import summary
    from maskwright.finetuning.predict import predict, split_inputs

    inputs, files = split_inputs(texts or [], arguments.pop("file") or [])
    if out:
        refuse_overwrite(out, files)
    with print_warnings():
        predictions = predict(**arguments, inputs=inputs, file=files)
    if out:
        write_predictions(out.expanduser(), predictions)
        output.note(f"{pluralize(len(predictions), 'prediction')} in {out}")
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
