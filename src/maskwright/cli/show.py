"""`maskwright show`: what a recipe does to a text."""

from pathlib import Path
from typing import Annotated

import typer

from maskwright.cli import output


def command(
    recipe: Annotated[
        str,
        typer.Argument(
            help="A recipe (see `maskwright recipes`), its JSON file, or a run's folder.", show_default=False
        ),
    ],
    text: Annotated[str | None, typer.Option(help="The text; blank lines separate documents.")] = None,
    text_file: Annotated[Path | None, typer.Option(help="Read the text from a file (- for standard input).")] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(help="A folder with a tokenizer. Without: the run's, or a small one that is learnt."),
    ] = None,
    corpus: Annotated[
        list[str] | None,
        typer.Option(
            help="A corpus as `pretrain` takes it: vocabulary, phrases, similar words, counts come from it. Repeatable."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="The run's seed.")] = 0,
    epoch: Annotated[int, typer.Option(min=0, help="Which epoch's masks.")] = 0,
    stage: Annotated[
        int | None,
        typer.Option(min=1, help="Which stage of training, where masking goes in several. Without: the last."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Most sequences shown.")] = 10,
    html: Annotated[Path | None, typer.Option(help="Write a page for the browser to this file.")] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Change a field, e.g. masking.rate=0.3. Repeatable."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Show what a recipe does to a text: units, what replaced them, what is to be predicted."""
    from maskwright.core.files import write_text
    from maskwright.inference.showing import show
    from maskwright.inference.showing.page import page
    from maskwright.inference.showing.source import read_source
    from maskwright.inference.showing.terminal import render

    showing = show(
        recipe,
        read_source(text, text_file),
        tokenizer=tokenizer,
        corpus=corpus or None,
        seed=seed,
        epoch=epoch,
        stage=stage,
        set=changes or (),
        max_sequences=limit,
        progress=lambda stage, done, total: None if done else output.note(stage),
    )
    for note in showing.notes:
        output.note(f"note: {note}")
    if html is not None:
        html = html.expanduser()
        write_text(html, page(showing))
        output.note(f"wrote {html}")
    if as_json:
        output.print_json(showing.to_json())
    elif html is None:
        output.console().print(render(showing))
