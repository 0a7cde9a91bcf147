"""`maskwright prepare`: clean and tokenize a corpus ahead of training."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from maskwright.cli import options, output
from maskwright.recipes import DEFAULT_RECIPE


def command(
    corpus: options.CorpusArgument,
    out: Annotated[
        str,
        typer.Option(metavar="DIR_OR_URL", help="Where to write the prepared text; it then is a CORPUS of pretrain."),
    ],
    recipe: Annotated[str, typer.Option(help="Recipe whose tokenizer and words are used.")] = DEFAULT_RECIPE,
    set: options.SetOption = None,
    seed: Annotated[int, typer.Option(help="Random seed of the tokenizer's sample.")] = 0,
    tokenizer: Annotated[
        Path | None, typer.Option(help="Use this tokenizer directory instead of training a vocabulary.")
    ] = None,
    clean: options.CleanOption = None,
    workers: options.WorkersOption = None,
    engine: options.EngineOption = "local",
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Clean and tokenize a corpus on this machine or a cluster; `maskwright pretrain DIR_OR_URL` then trains on it."""
    options.check_recipes([recipe], set or ())
    from maskwright.training.prepared_text import prepare

    prepared = prepare(
        corpus,
        out=out,
        recipe=recipe,
        set=set or (),
        seed=seed,
        tokenizer=tokenizer,
        clean=clean or (),
        workers=workers,
        engine=engine,
    )
    if json:
        output.print_json(
            {key: str(value) if isinstance(value, Path) else value for key, value in asdict(prepared).items()}
        )
    else:
        settings = "".join(f" --set {shlex.quote(each)}" for each in set or () if "vocab_size" not in each)
        output.note(
            f"train on it: maskwright pretrain {shlex.quote(out)} --recipe {recipe}{settings} --hours 1 --out RUN"
        )
        if tokenizer is None and not any("vocab_size" in each for each in set or ()):
            output.note(
                "its vocabulary has the published size; for a run of minutes prepare with "
                "`--set tokenizer.vocab_size=4096`"
            )
