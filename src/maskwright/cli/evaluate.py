"""`maskwright evaluate`: evaluate a fine-tuned model on labeled examples."""

from pathlib import Path
from typing import Annotated

import typer

from maskwright.cli import output
from maskwright.cli.finetune import LABEL_HELP, READ_HELP, TEXT2_HELP, TEXT_HELP
from maskwright.cli.options import DeviceOption, PrecisionOption
from maskwright.cli.texts import check_model, print_warnings
from maskwright.core.amounts import pluralize
from maskwright.core.files import check_writable

FINE_TUNED_HELP = "Output directory of `maskwright finetune`, or a transformers model for the task."

_CLASSES_SHOWN, _MAX_CONFUSED = 20, 8
"""Rows of the table of classes; classes up to which the confusion matrix is shown."""


def command(
    model: Annotated[str, typer.Argument(help=FINE_TUNED_HELP, show_default=False)],
    file: Annotated[list[Path], typer.Option(help="A labeled file.", show_default=False)],
    text: Annotated[str | None, typer.Option(help=TEXT_HELP, show_default=False)] = None,
    text2: Annotated[str | None, typer.Option(help=TEXT2_HELP, show_default=False)] = None,
    label: Annotated[str | None, typer.Option(help=LABEL_HELP, show_default=False)] = None,
    read: Annotated[list[str] | None, typer.Option("--read", help=READ_HELP, show_default=False)] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the predictions to this .jsonl, .csv or .tsv file.", show_default=False)
    ] = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Evaluate a fine-tuned model, or sentence embeddings, on labeled examples."""
    if out:
        check_writable(out.expanduser().parent)
    check_model(model)
    from maskwright.finetuning.evaluate import evaluate

    with print_warnings():
        done = evaluate(
            model,
            file=file,
            text=text,
            text2=text2,
            label=label,
            read=read or (),
            out=out,
            device=device,
            precision=precision,
        )
    if json:
        output.print_json(done.to_json())
        return
    output.heading(done.model, f"on {pluralize(done.examples, 'example')} of {done.file}")
    output.table(("metric", "value"), [(name, f"{value:.4f}") for name, value in done.metrics.items()], right=(1,))
    names = ("precision", "recall", "f1")
    if done.by_class:
        rows = [
            (label, *(f"{scores[name]:.4f}" for name in names), f"{scores['examples']:,.0f}")
            for label, scores in list(done.by_class.items())[:_CLASSES_SHOWN]
        ]
        output.table(("class", *names, "examples"), rows, right=range(1, 5))
    if 0 < len(done.confusion) <= _MAX_CONFUSED:
        predicted = list(done.confusion)
        rows = [(label, *(f"{counts[other]:,}" for other in predicted)) for label, counts in done.confusion.items()]
        output.table(("true, by predicted", *predicted), rows, right=range(1, len(predicted) + 1))
    if len(done.by_class) > _CLASSES_SHOWN or len(done.confusion) > _MAX_CONFUSED:
        output.note("--json prints the scores of all classes and the whole confusion matrix")
    if done.cut:
        output.note(f"truncated to the model's maximum length: {pluralize(done.cut, 'example')}")
