"""`maskwright finetune`: turn a pretrained model and labelled examples into a measured model."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from maskwright.cli import output
from maskwright.cli.texts import DEVICE_HELP, MODEL_HELP, check_model

TEXT_HELP = "Column of the text (words, question); else guessed, and said."
TEXT2_HELP = "Column of the second text (context)."
LABEL_HELP = "Column of the label (tags, answers); else guessed, and said."
PRECISION_HELP = "Of matrix products: auto (bf16 on a GPU that has it), fp32 or bf16."
READ_HELP = "Set how files are read, e.g. `quoting=none`, `encoding=gb18030`; repeatable."


def command(
    model: Annotated[str, typer.Argument(help=MODEL_HELP, show_default=False)],
    task: Annotated[
        str,
        typer.Option(
            help="A benchmark (sst-2, squad-1.1, ...), or a kind of task for files of your own: classification, "
            "regression, multi-label, tagging, question-answering, multiple-choice.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option(help="The folder; the same command again goes on in it.", show_default=False)],
    data: Annotated[
        Path | None, typer.Option(help="The folder of the benchmark's own files.", show_default=False)
    ] = None,
    train: Annotated[
        list[Path] | None, typer.Option(help="Training file (CSV, TSV, JSONL, ...).", show_default=False)
    ] = None,
    dev: Annotated[
        list[Path] | None,
        typer.Option(help="Development file, to choose by; else a tenth of --train is held out.", show_default=False),
    ] = None,
    test: Annotated[
        list[Path] | None, typer.Option(help="Test file: measured once, at the end.", show_default=False)
    ] = None,
    text: Annotated[str | None, typer.Option(help=TEXT_HELP, show_default=False)] = None,
    text2: Annotated[str | None, typer.Option(help=TEXT2_HELP, show_default=False)] = None,
    label: Annotated[str | None, typer.Option(help=LABEL_HELP, show_default=False)] = None,
    read: Annotated[list[str] | None, typer.Option("--read", help=READ_HELP, show_default=False)] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds to train, for the spread.")] = 1,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 0,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            help="Settings to choose from on dev with the first seed, e.g. `learning_rate=1e-4,3e-4`; repeatable.",
            show_default=False,
        ),
    ] = None,
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Set any setting, e.g. `epochs=5`, `learning_rate=1e-4`; repeatable.", show_default=False
        ),
    ] = None,
    as_published: Annotated[
        bool, typer.Option("--as-published", help="Keep the published settings, however small model and data are.")
    ] = False,
    from_scratch: Annotated[
        bool,
        typer.Option(
            "--from-scratch",
            help="Keep the model's shape and tokenizer only: what pretraining is worth is seen beside it.",
        ),
    ] = False,
    system: Annotated[
        str | None,
        typer.Option(
            help="Whose published settings to take (macbert, spanbert, ...); else the model's own.", show_default=False
        ),
    ] = None,
    device: Annotated[str, typer.Option(help=DEVICE_HELP)] = "auto",
    precision: Annotated[Literal["auto", "fp32", "bf16"], typer.Option(help=PRECISION_HELP)] = "auto",
    checkpoint_minutes: Annotated[float, typer.Option(help="Time between checkpoints.")] = 1.0,
    json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Fine-tune a model on labelled examples and measure it. Ctrl-C saves; the same command again goes on."""
    check_model(model)
    from maskwright.finetuning.finetuning import finetune

    done = finetune(
        model,
        task=task,
        out=out,
        data=data,
        train=train,
        dev=dev,
        test=test,
        text=text,
        text2=text2,
        label=label,
        read=read or (),
        seeds=seeds,
        seed=seed,
        grid=grid or (),
        set=set or (),
        as_published=as_published,
        from_scratch=from_scratch,
        system=system,
        device=device,
        precision=precision,
        checkpoint_minutes=checkpoint_minutes,
    )
    if json:
        output.print_json(done.to_json())
    elif done.results is not None:
        columns, rows = done.results.table()
        title = done.results.title
        for shown in _in_width(columns, output.console().width):
            chosen = [[row[number] for number in shown] for row in (columns, *rows)]
            output.table(chosen[0], chosen[1:], title=title, right=range(1, len(shown)))
            title = ""
        for note in done.results.notes:
            output.note(note)
        output.note(f"The best seed's model and the results lie in {done.folder}. Now try:")
        output.note(f"  maskwright predict {done.folder} ...")
    if not done.finished:
        output.note(f"stopped by {done.stopped_by} and saved; the same command again goes on")
        sys.exit(130)


# Of the errors that typer raises at words it cannot parse it names only children.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


class Command(TyperCommand):
    """The verb; an option that it has not, but a setting is called so, is answered with how settings are given."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words after the verb."""
        try:
            return super().parse_args(ctx, args)
        except _UsageError as found:
            error: Any = found
            # Only the error about an option that is not there lists options that are near.
            if hasattr(error, "possibilities") and not error.possibilities:
                from maskwright.core.errors import nearest
                from maskwright.finetuning.hyperparameters import Hyperparameters

                name = error.option_name.lstrip("-").replace("-", "_")
                if field := nearest(name, Hyperparameters.model_fields):
                    error.message += f" (settings are given so: --set {field}=VALUE)"
            raise


def _in_width(columns: Sequence[str], width: int) -> Iterator[list[int]]:
    """Yield the numbers of columns that stand beside each other, the first with each: SQuAD 2.0 has ten metrics."""
    first = len("standard deviation") + 2
    shown, taken = [0], first
    for number, name in enumerate(columns[1:], 1):
        if len(shown) > 1 and taken + len(name) + 2 > width:
            yield shown
            shown, taken = [0], first
        shown.append(number)
        taken += len(name) + 2
    yield shown
