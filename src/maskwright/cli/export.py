"""`maskwright export`: a trained model for ONNX Runtime, sentence-transformers or the model hub."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from maskwright.cli import options, output
from maskwright.cli.texts import check_model, print_warnings


def command(
    model: options.ModelArgument,
    to: Annotated[
        Literal["onnx", "sentence-transformers", "hub"],
        typer.Option(help="onnx, sentence-transformers, or hub (safetensors for transformers)."),
    ],
    out: Annotated[Path, typer.Option(help="A new directory.")],
    precision: Annotated[
        list[str] | None, typer.Option(help="Of ONNX files: fp32 (default), fp16 or int8; repeatable.")
    ] = None,
    encoder: Annotated[
        bool, typer.Option("--encoder", help="Export hidden states to ONNX instead of the head's scores.")
    ] = False,
    pooling: options.PoolingOption = None,
    normalize: options.NormalizeOption = None,
    texts: Annotated[
        Path | None,
        typer.Option(
            help="Texts for the check; for a fine-tuned model a file as for `maskwright predict`. Default: examples of "
            "the run's corpus and eight sentences."
        ),
    ] = None,
    license: Annotated[
        str,
        typer.Option(help="License in the model card; default: that of the source.", show_default=False),
    ] = "",
    language: Annotated[str | None, typer.Option(help="Language code in the model card, e.g. en.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Write a model, with its tokenizer and a model card, for other programs; check it against its source."""
    check_model(model)
    from dataclasses import asdict

    from maskwright.checkpoints.card_facts import read_card_facts
    from maskwright.serving.export import export

    with print_warnings():
        parities = export(
            model,
            to=to,
            out=out,
            precision=precision or ["fp32"],
            encoder=encoder,
            pooling=pooling,
            normalize=normalize,
            texts=texts,
            license=license,
            language=language,
        )
    if json:
        output.print_json([asdict(parity) for parity in parities])
    elif parities:
        output.table(
            ("precision", "texts", "largest difference", "agreement", "", "ms per text", "source"),
            [
                (
                    each.precision,
                    f"{each.texts:,}",
                    f"{each.difference:.2g}",
                    f"{each.agreement:.2%}",
                    each.measure,
                    f"{each.milliseconds:.2f}",
                    f"{each.source_milliseconds:.2f}",
                )
                for each in parities
            ],
            right=(1, 2, 3, 5, 6),
        )
    if read_card_facts(out).license in ("", "unknown"):
        output.note("The model card states no license; name it with --license.")
    output.note(f"written to {out}")
