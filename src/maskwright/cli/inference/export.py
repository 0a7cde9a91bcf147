"""`maskwright export`: a trained model for ONNX Runtime, OpenVINO, sentence-transformers or the model hub."""

from pathlib import Path

from maskwright.checkpoints.location import check_folder
from maskwright.cli import output
from maskwright.cli.options import Arguments, Json, arguments_of
from maskwright.cli.texts import print_warnings


@arguments_of("export")
def command(arguments: Arguments, json: Json = False) -> None:
    """Write a model, with its tokenizer and a model card, for other programs; check it against its source."""
    check_folder(arguments["model"])
    from dataclasses import asdict

    from maskwright.checkpoints.card_facts import read_card_facts
    from maskwright.serving.export import export

    with print_warnings():
        parities = export(**arguments)
    if json:
        output.print_json([asdict(parity) for parity in parities])
    elif parities:
        output.table(
            ("precision", "texts", "largest difference", "agreement", "", "ms per text", "source"),
            [
                (
                    parity.precision,
                    f"{parity.texts:,}",
                    f"{parity.difference:.2g}",
                    f"{parity.agreement:.2%}",
                    parity.measure,
                    f"{parity.milliseconds:.2f}",
                    f"{parity.source_milliseconds:.2f}",
                )
                for parity in parities
            ],
            right=(1, 2, 3, 5, 6),
        )
    if read_card_facts(Path(arguments["out"]).expanduser()).license in ("", "unknown"):
        output.note("The model card states no license; name it with --license.")
    output.note(f"written to {arguments['out']}")
