"""`maskwright embed`: compute sentence embeddings."""

from pathlib import Path
from typing import Annotated

import typer

from maskwright.cli import options, output
from maskwright.cli.texts import gather, load_for_use, print_warnings
from maskwright.core.amounts import pluralize
from maskwright.core.errors import MaskwrightError

_SHOWN = 20
_LONG = 200


def command(
    model: options.ModelArgument,
    texts: options.TextsArgument = None,
    file: options.FileOption = None,
    column: options.ColumnOption = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the embeddings to this .npy file, one row per text, float32.")
    ] = None,
    pooling: options.PoolingOption = None,
    normalize: options.NormalizeOption = None,
    device: options.DeviceOption = "auto",
    precision: options.PrecisionOption = "fp32",
    json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON; includes the embeddings if there is no --out.")
    ] = False,
) -> None:
    """Compute one embedding per text. Without --out or --json, show the nearest neighbor of each text."""
    given = gather(texts, file, column)
    out = out and out.expanduser()
    if out and out.suffix != ".npy":
        raise MaskwrightError(f"cannot write vectors as {out.name!r}", allowed="a name that ends in .npy")
    loaded = load_for_use(model, device, precision)
    from maskwright.checkpoints.location import locate
    from maskwright.checkpoints.sentence_folder import MODULES
    from maskwright.data.progress import no_progress
    from maskwright.inference.commands import embed
    from maskwright.inference.embed import nearest_texts
    from maskwright.training.reporting import OnConsole

    pooling, normalize = loaded.pooled_as(pooling, normalize)
    if not (locate(model) / MODULES).is_file():
        output.note(
            "this model was not trained to compare texts, so similarities of its vectors may mean little. Train it "
            "with `maskwright finetune --task embedding`."
        )
    with print_warnings(), OnConsole(output.stderr_console()) as reporter:
        progress = reporter.stage if len(given) > _LONG else no_progress
        vectors = embed(loaded, given, out=out, pooling=pooling, normalize=normalize, progress=progress)
    if blank := [text for text in given if not text.strip()]:
        output.note(f"{pluralize(len(blank), 'text')} of {len(given):,} blank: their embeddings carry no meaning")
    shape = list(vectors.shape)
    if json:
        values = {"out": str(out)} if out else {"vectors": vectors.tolist()}
        output.print_json({"shape": shape, "pooling": pooling, "normalized": normalize, **values})
        return
    output.note(f"{pluralize(len(given), 'text')}, {shape[1]} dimensions" + (f", written to {out}" if out else ""))
    if not out and len(given) > 1:
        nearest, similarity = nearest_texts(vectors[:_SHOWN])
        output.table(
            ("text", "nearest neighbor", "cosine similarity"),
            [
                (text, given[other], f"{cosine:.3f}")
                for text, other, cosine in zip(given, nearest.tolist(), similarity.tolist(), strict=False)
            ],
            right=(2,),
            fixed=(2,),
        )
    if not out:
        output.note("Use --out FILE.npy to save the embeddings.")
