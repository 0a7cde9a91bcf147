"""`maskwright show`: how a recipe masks a text."""

from pathlib import Path
from typing import Annotated

import typer

from maskwright.cli import output
from maskwright.cli.options import Arguments, Json, arguments_of


@arguments_of("show", without=["max_sequences"], epoch={"min": 0}, stage={"min": 1})
def command(
    arguments: Arguments,
    text: Annotated[str | None, typer.Option(help="The text; blank lines separate documents.")] = None,
    text_file: Annotated[Path | None, typer.Option(help="Read the text from a file; `-` for standard input.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of sequences shown.")] = 10,
    json: Json = False,
) -> None:
    """Show how a recipe masks a text: masked units, their replacements and the targets."""
    from maskwright.inference.show import show
    from maskwright.inference.show_output import render
    from maskwright.inference.texts import read_source

    preview = show(
        **arguments,
        text=read_source(text, text_file),
        max_sequences=limit,
        progress=lambda stage, done, total: None if done else output.note(stage.partition(" (")[0]),
    )
    for note in preview.notes:
        output.note(f"note: {note}")
    if json:
        output.print_json(preview.to_json())
    else:
        output.console().print(render(preview))
