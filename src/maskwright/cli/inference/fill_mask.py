"""`maskwright fill-mask`: predict the masked tokens of a text."""

from pathlib import Path

from maskwright.cli import output
from maskwright.cli.options import Arguments, Json, arguments_of
from maskwright.cli.texts import load_for_use, print_warnings
from maskwright.core.text.amounts import pluralize


@arguments_of("fill_mask", top_k={"short": ["-k"]})
def command(arguments: Arguments, json: Json = False) -> None:
    """Predict the token at each mask of a text. Several masks are predicted independently."""
    loaded, texts, options = load_for_use(arguments)
    from maskwright.inference.commands import fill_mask, filled_to_json
    from maskwright.inference.fill_mask import never_saw_masks

    if "mlm" not in loaded.heads and loaded.generator is not None:
        output.note(f"predicted by the generator in {loaded.generator.name}")
    if never_saw_masks(Path(arguments["model"]).expanduser()):
        output.note("this model was pretrained without [MASK] tokens: its predictions for them are unreliable")
    with print_warnings():
        filled = fill_mask(loaded, texts, **options)
    if out := arguments["out"]:
        output.note(f"{pluralize(len(texts), 'text')} in {Path(out).expanduser()}")
    if json:
        output.print_json(filled_to_json(texts, filled))
    elif not out:
        for text, masks in zip(texts, filled, strict=True):
            for number, mask in enumerate(masks, start=1):
                output.heading(text if len(masks) == 1 else f"{text}  (mask {number} of {len(masks)})")
                output.table(
                    ("score", "token", "text"),
                    [(f"{best.score:.1%}", best.token, best.sequence) for best in mask],
                    right=(0,),
                    fixed=(0, 1),
                )
