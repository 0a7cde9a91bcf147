"""`maskwright evaluate`: evaluate a fine-tuned model on labeled examples."""

from pathlib import Path

from maskwright.checkpoints.location import check_folder
from maskwright.cli import output
from maskwright.cli.options import Arguments, Json, arguments_of
from maskwright.cli.texts import print_warnings
from maskwright.core.storage.files import check_writable
from maskwright.core.text.amounts import pluralize

_CLASSES_SHOWN, _MAX_CONFUSED = 20, 8
"""Rows of the table of classes; classes up to which the confusion matrix is shown."""


@arguments_of("evaluate")
def command(arguments: Arguments, json: Json = False) -> None:
    """Evaluate a fine-tuned model, or sentence embeddings, on labeled examples."""
    if out := arguments["out"]:
        check_writable(Path(out).expanduser().parent)
    check_folder(arguments["model"])
    from maskwright.finetuning.evaluate import evaluate

    with print_warnings():
        done = evaluate(**arguments)
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
    if done.truncated:
        from maskwright.finetuning.readers.options import TEXT_KINDS
        from maskwright.inference.long_texts import IGNORED, WINDOWS_HINT

        by_windows = done.task in (*TEXT_KINDS, "embedding") and not arguments["windows"]
        hint = f"; {WINDOWS_HINT}" if by_windows else ""
        output.note(f"truncated: {pluralize(done.truncated, 'example')}; {IGNORED}{hint}")
