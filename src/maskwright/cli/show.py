"""`maskwright show`: how a recipe masks a text."""

from pathlib import Path
from typing import Annotated

import typer

from maskwright.cli import options, output


def command(
    recipe: Annotated[
        str,
        typer.Argument(help="Name of a recipe (see `maskwright recipes`), path of its JSON file, or a run directory."),
    ],
    text: Annotated[str | None, typer.Option(help="The text; blank lines separate documents.")] = None,
    text_file: Annotated[Path | None, typer.Option(help="Read the text from a file; `-` for standard input.")] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="A tokenizer directory. Default: the run's, or a small one trained for this.")
    ] = None,
    corpus: Annotated[
        list[str] | None,
        typer.Option(
            help="Corpus as for `pretrain`, for vocabulary, phrases, similar words and token counts. Repeatable."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    epoch: Annotated[int, typer.Option(min=0, help="Epoch whose masks are shown.")] = 0,
    stage: Annotated[
        int | None, typer.Option(min=1, help="Stage of training, if masking has several. Default: the last.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of sequences shown.")] = 10,
    changes: options.SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show how a recipe masks a text: masked units, their replacements and the targets."""
    from maskwright.inference.show import show
    from maskwright.inference.show_output import render
    from maskwright.inference.texts import read_source

    preview = show(
        recipe,
        read_source(text, text_file),
        tokenizer=tokenizer,
        corpus=corpus or None,
        seed=seed,
        epoch=epoch,
        stage=stage,
        set=changes or (),
        max_sequences=limit,
        progress=lambda stage, done, total: None if done else output.note(stage.partition(" (")[0]),
    )
    for note in preview.notes:
        output.note(f"note: {note}")
    if as_json:
        output.print_json(preview.to_json())
    else:
        output.console().print(render(preview))
