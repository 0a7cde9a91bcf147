"""`maskwright prepare`: clean and tokenize a corpus ahead of training."""

import shlex
from dataclasses import asdict
from pathlib import Path

from maskwright.cli import output
from maskwright.cli.options import Arguments, Json, arguments_of, check_recipes


@arguments_of("prepare", out={"metavar": "DIR_OR_URL"})
def command(arguments: Arguments, json: Json = False) -> None:
    """Clean and tokenize a corpus on this machine or a cluster; `maskwright pretrain DIR_OR_URL` then trains on it."""
    out, recipe, overrides = arguments["out"], arguments["recipe"], arguments["set"]
    check_recipes([recipe], overrides)
    from maskwright.training.start.prepared_text import prepare

    prepared = prepare(**arguments)
    if json:
        output.print_json(
            {key: str(value) if isinstance(value, Path) else value for key, value in asdict(prepared).items()}
        )
    else:
        settings = "".join(f" --set {shlex.quote(override)}" for override in overrides if "vocab_size" not in override)
        output.note(
            f"train on it: maskwright pretrain {shlex.quote(out)} --recipe {recipe}{settings} --hours 1 --out RUN"
        )
        if arguments["tokenizer"] is None and not any("vocab_size" in override for override in overrides):
            output.note(
                "its vocabulary has the published size; for a run of minutes prepare with "
                "`--set tokenizer.vocab_size=4096`"
            )
