"""`maskwright quickstart`: pretrain and try a model on text that is already on this machine."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from maskwright.cli import output


def command(
    out: Annotated[Path, typer.Option(help="Run directory.")] = Path("runs/quickstart"),
    minutes: Annotated[
        float, typer.Option(help="Minutes of training; the first run needs about one more for preparation.")
    ] = 3.5,
    recipe: Annotated[str, typer.Option(help="What to train.")] = "maskwright/tiny",
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train a small encoder on the docstrings of this Python installation and predict masked tokens with it."""
    from maskwright.inference.quickstart import PROMPTS, quickstart

    done = quickstart(out=out, minutes=minutes, recipe=recipe)
    if not done.run.finished:
        output.note(f"stopped by {done.run.stopped_by}, checkpoint saved; run the same command again to resume")
        sys.exit(130)
    if json:
        output.print_json(done.to_json())
        return
    output.table(
        ("text", "top predictions"),
        [
            (prompt, "   ".join(f"{best.token} {best.score:.0%}" for best in filled))
            for prompt, filled in zip(PROMPTS, done.filled, strict=True)
        ],
        title="Masked tokens, predicted",
    )
    output.note(f"The model is in {out} and loads with transformers' AutoModel. Try:")
    output.note(f'  maskwright fill-mask {out} "Raise an error if the [MASK] is empty."')
    output.note("  maskwright pretrain YOUR_TEXT --minutes 10 --out runs/mine")
