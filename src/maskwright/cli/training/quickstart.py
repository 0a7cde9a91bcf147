"""`maskwright quickstart`: pretrain and try a model on text that is already on this machine."""

import sys

from maskwright.cli import output
from maskwright.cli.options import Arguments, Json, arguments_of


@arguments_of("quickstart")
def command(arguments: Arguments, json: Json = False) -> None:
    """Train a small encoder on the docstrings of this Python installation and predict masked tokens with it."""
    from maskwright.inference.quickstart import PROMPTS, quickstart

    out, done = arguments["out"], quickstart(**arguments)
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
