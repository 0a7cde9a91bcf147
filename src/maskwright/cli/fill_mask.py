"""`maskwright fill-mask`: predict the masked tokens of a text."""

from pathlib import Path
from typing import Annotated

import typer

from maskwright.cli import options, output
from maskwright.cli.texts import gather, load_for_use, print_warnings
from maskwright.core.amounts import pluralize


def command(
    model: options.ModelArgument,
    texts: Annotated[
        list[str] | None, typer.Argument(help="Texts with `[MASK]` or `<mask>`; both work for any model.")
    ] = None,
    file: options.FileOption = None,
    column: options.ColumnOption = None,
    top_k: Annotated[int, typer.Option("--top-k", "-k", help="Predictions per mask.")] = 5,
    out: options.LinesOption = None,
    device: options.DeviceOption = "auto",
    precision: options.PrecisionOption = "fp32",
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Predict the token at each mask of a text. Several masks are predicted independently."""
    given = gather(texts, file, column)
    loaded = load_for_use(model, device, precision)
    from maskwright.inference.commands import fill_mask, filled_to_json
    from maskwright.inference.fill_mask import never_saw_masks

    if loaded.mlm_head is None and loaded.generator is not None:
        output.note(f"predicted by the generator in {loaded.generator.name}")
    if never_saw_masks(Path(model).expanduser()):
        output.note("this model was pretrained without [MASK] tokens: its predictions for them are unreliable")
    with print_warnings():
        filled = fill_mask(loaded, given, top_k=top_k, out=out)
    if out:
        output.note(f"{pluralize(len(given), 'text')} in {out.expanduser()}")
    if json:
        output.print_json(filled_to_json(given, filled))
    elif not out:
        for text, masks in zip(given, filled, strict=True):
            for number, mask in enumerate(masks, start=1):
                output.heading(text if len(masks) == 1 else f"{text}  (mask {number} of {len(masks)})")
                output.table(
                    ("score", "token", "text"),
                    [(f"{best.score:.1%}", best.token, best.sequence) for best in mask],
                    right=(0,),
                    fixed=(0, 1),
                )
