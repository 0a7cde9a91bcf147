"""`maskwright finetune`: fine-tune a pretrained model on labeled examples and evaluate it."""

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from maskwright.cli import output
from maskwright.cli.options import DeviceOption, TrainingPrecisionOption
from maskwright.cli.texts import MODEL_HELP, check_model

TEXT_HELP = "Column of the text (words, question). Default: guessed from the header."
TEXT2_HELP = "Column of the second text (context)."
LABEL_HELP = "Column of the label (tags, answers). Default: guessed from the header."
READ_HELP = "Option for reading files, e.g. `quoting=none`, `encoding=gb18030`; repeatable."


def command(
    model: Annotated[str, typer.Argument(help=MODEL_HELP, show_default=False)],
    task: Annotated[
        str,
        typer.Option(
            help="A benchmark (sst-2, squad-1.1, ...), or a task type for your own files: classification, "
            "regression, multi-label, tagging, question-answering, multiple-choice, embedding.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option(help="Output directory; the same command again resumes.", show_default=False)],
    data: Annotated[Path | None, typer.Option(help="Directory of the benchmark's files.", show_default=False)] = None,
    train: Annotated[
        list[Path] | None, typer.Option(help="Training file (CSV, TSV, JSONL, ...).", show_default=False)
    ] = None,
    dev: Annotated[
        list[Path] | None,
        typer.Option(
            help="Validation file for model selection. Default: a tenth of --train is held out.", show_default=False
        ),
    ] = None,
    test: Annotated[
        list[Path] | None, typer.Option(help="Test file, evaluated once at the end.", show_default=False)
    ] = None,
    text: Annotated[str | None, typer.Option(help=TEXT_HELP, show_default=False)] = None,
    text2: Annotated[str | None, typer.Option(help=TEXT2_HELP, show_default=False)] = None,
    label: Annotated[str | None, typer.Option(help=LABEL_HELP, show_default=False)] = None,
    read: Annotated[list[str] | None, typer.Option("--read", help=READ_HELP, show_default=False)] = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds to train with.")] = 1,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 0,
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Override a hyperparameter, e.g. `epochs=5`, `learning_rate=1e-4`; repeatable.",
            show_default=False,
        ),
    ] = None,
    as_published: Annotated[
        bool, typer.Option("--as-published", help="Keep the published hyperparameters, even for small models and data.")
    ] = False,
    from_scratch: Annotated[
        bool,
        typer.Option(
            "--from-scratch",
            help="Train from random weights, as a baseline; keeps the model's shape and tokenizer.",
        ),
    ] = False,
    system: Annotated[
        str | None,
        typer.Option(
            help="System whose published hyperparameters are used (macbert, spanbert, ...). Default: the model's own.",
            show_default=False,
        ),
    ] = None,
    device: DeviceOption = "auto",
    precision: TrainingPrecisionOption = "auto",
    checkpoint_minutes: Annotated[float, typer.Option(help="Time between checkpoints.")] = 1.0,
    json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Fine-tune a model on labeled examples and evaluate it. Ctrl-C saves; the same command again resumes."""
    if "RANK" not in os.environ and not out.expanduser().exists():  # a finished run needs no model
        check_model(model)
    from maskwright.finetuning.finetune import finetune
    from maskwright.training.distributed import process_group, rank

    with process_group():  # An error of all processes of torchrun is printed once, and only rank 0 prints the result.
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
            set=set or (),
            as_published=as_published,
            from_scratch=from_scratch,
            system=system,
            device=device,
            precision=precision,
            checkpoint_minutes=checkpoint_minutes,
        )
        if rank():
            sys.exit(0 if done.finished else 130)
        if json:
            output.print_json(done.to_json())
        elif done.results is not None:
            columns, rows = done.results.table()
            title = done.results.title
            for shown in _in_width(columns, output.console().width):
                chosen = [[row[number] for number in shown] for row in (columns, *rows)]
                output.table(chosen[0], chosen[1:], title=title, right=range(1, len(shown)))
                title = ""
            results = done.results
            for name, scores in results.baselines.items():
                if results.main_metric and scores["dev"][results.main_metric] >= results.best.dev[results.main_metric]:
                    output.note(f"On dev the model is no better than the baseline {name}.")
            for note in done.results.notes:
                output.note(note)
            kept = "The best seed's model" if len(results.rows) > 1 else "The model"
            output.note(f"{kept} and the results are in {done.folder}. Try:")
            output.note(f"  maskwright {'embed' if results.kind == 'embedding' else 'predict'} {done.folder} ...")
        if not done.finished:
            output.note(f"stopped by {done.stopped_by}, checkpoint saved; the same command again resumes")
            sys.exit(130)


def _in_width(columns: Sequence[str], width: int) -> Iterator[list[int]]:
    """Yield the columns of tables that fit a width, each with the first column: SQuAD 2.0 has ten metrics."""
    first = len("standard deviation") + 2
    shown, taken = [0], first
    for number, name in enumerate(columns[1:], 1):
        if len(shown) > 1 and taken + len(name) + 2 > width:
            yield shown
            shown, taken = [0], first
        shown.append(number)
        taken += len(name) + 2
    yield shown
