"""`maskwright embed`: compute sentence embeddings."""

from pathlib import Path

from maskwright.cli import output
from maskwright.cli.options import Arguments, Json, arguments_of
from maskwright.cli.texts import load_for_use, print_warnings
from maskwright.core.errors import MaskwrightError
from maskwright.core.text.amounts import pluralize

_SHOWN = 20
_LONG = 200


@arguments_of("embed")
def command(arguments: Arguments, json: Json = False) -> None:
    """Compute one embedding per text. Without --out or --json, show the nearest neighbor of each text; --json prints
    the embeddings if there is no --out."""
    out = arguments["out"] and Path(arguments["out"]).expanduser()
    if out and out.suffix != ".npy":
        raise MaskwrightError(f"cannot write vectors as {out.name!r}", allowed="a name that ends in .npy")
    loaded, texts, options = load_for_use(arguments)
    from maskwright.checkpoints.location import locate
    from maskwright.checkpoints.sentence_folder import MODULES
    from maskwright.inference.commands import embed
    from maskwright.inference.embed import nearest_texts
    from maskwright.inference.long_texts import truncated_texts
    from maskwright.reporting.console import ConsoleReporter
    from maskwright.reporting.reporter import no_progress

    pooling, normalize = loaded.pooled_as(arguments["pooling"], arguments["normalize"])
    if not (locate(arguments["model"]) / MODULES).is_file():
        output.note(
            "this model was not trained to compare texts, so similarities of its vectors may mean little. Train it "
            "with `maskwright finetune --task embedding`."
        )
    with print_warnings() as caught, ConsoleReporter(output.stderr_console()) as reporter:
        progress = reporter.stage if len(texts) > _LONG else no_progress
        vectors = embed(loaded, texts, progress=progress, **options)
    if blank := [text for text in texts if not text.strip()]:
        output.note(f"{pluralize(len(blank), 'text')} of {len(texts):,} blank: their embeddings carry no meaning")
    shape = list(vectors.shape)
    if json:
        values = {"out": str(out)} if out else {"vectors": vectors.tolist()}
        facts = {"shape": shape, "pooling": pooling, "normalized": normalize, "truncated": truncated_texts(caught)}
        output.print_json({**facts, **values})
        return
    output.note(f"{pluralize(len(texts), 'text')}, {shape[1]} dimensions" + (f", written to {out}" if out else ""))
    if not out and len(texts) > 1:
        nearest, similarity = nearest_texts(vectors[:_SHOWN])
        output.table(
            ("text", "nearest neighbor", "cosine similarity"),
            [
                (text, texts[other], f"{cosine:.3f}")
                for text, other, cosine in zip(texts, nearest.tolist(), similarity.tolist(), strict=False)
            ],
            right=(2,),
            fixed=(2,),
        )
    if not out:
        output.note("Use --out FILE.npy to save the embeddings.")
