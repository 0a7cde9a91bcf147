"""`maskwright pretrain`: train an encoder on a corpus."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from maskwright.cli import options, output
from maskwright.core.amounts import pluralize
from maskwright.recipes import DEFAULT_RECIPE


def command(
    corpus: options.CorpusArgument,
    out: Annotated[Path, typer.Option(help="Run directory; the same command again resumes the run.")],
    recipe: Annotated[
        str | None,
        typer.Option(
            help=f"Name of a recipe (see `maskwright recipes`) or path of a JSON file; without it {DEFAULT_RECIPE}, "
            "with --init the model's own shape and objectives.",
            show_default=False,
        ),
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Budget: minutes of training.")] = None,
    hours: Annotated[float | None, typer.Option(help="Budget: hours of training.")] = None,
    steps: Annotated[int | None, typer.Option(help="Budget: optimizer steps.")] = None,
    tokens: Annotated[float | None, typer.Option(help="Budget: training tokens, e.g. 1e8.")] = None,
    flops: Annotated[float | None, typer.Option(help="Budget: training FLOPs, e.g. 1e16.")] = None,
    set: options.SetOption = None,
    as_published: Annotated[
        bool, typer.Option("--as-published", help="Keep the paper's schedule instead of fitting it to the budget.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    tokenizer: Annotated[
        Path | None, typer.Option(help="Use this tokenizer directory instead of training a vocabulary.")
    ] = None,
    init: Annotated[
        str | None,
        typer.Option(
            metavar="DIR_OR_NAME",
            help="Start from this model (a run, a Hugging Face directory or hub name) instead of random weights.",
        ),
    ] = None,
    extend_vocabulary: Annotated[
        str | None,
        typer.Option(
            metavar="N_OR_FILE",
            help="With --init: add N words of the corpus to the vocabulary, or those of a file, one per line.",
        ),
    ] = None,
    teacher: Annotated[
        str | None,
        typer.Option(
            metavar="DIR_OR_NAME", help="Teacher model of a distilbert recipe; short for `--set teacher.model=...`."
        ),
    ] = None,
    held_out: Annotated[
        list[str] | None,
        typer.Option(help="Text to measure the model on. Default: a share of the corpus.", show_default=False),
    ] = None,
    clean: options.CleanOption = None,
    device: options.DeviceOption = "auto",
    precision: options.TrainingPrecisionOption = "auto",
    kernels: Annotated[
        Literal["auto", "reference"],
        typer.Option(
            help="auto (C attention on a CPU; kernels and CUDA graphs on a GPU, if verified) or reference (PyTorch)."
        ),
    ] = "auto",
    workers: options.WorkersOption = None,
    engine: options.EngineOption = "local",
    checkpoint_minutes: Annotated[float, typer.Option(help="Time between checkpoints.")] = 1.0,
    keep: Annotated[
        int, typer.Option(min=0, help="Keep N models in RUN/kept, at equal shares of the budget.", metavar="N")
    ] = 0,
    mirror: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Copy the run directory to this URL (s3://, gs://, ...) after each checkpoint; without --out there, "
            "resume from it.",
            show_default=False,
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Pretrain an encoder on a corpus within a budget. Ctrl-C saves a checkpoint; the same command again resumes."""
    if recipe is not None or init is None:
        options.check_recipes([recipe or DEFAULT_RECIPE], set or ())
    from maskwright.training.distributed import process_group, rank
    from maskwright.training.pretrain import pretrain

    with process_group():  # An error of all processes of torchrun is printed once, and only rank 0 prints the result.
        run = pretrain(
            corpus,
            out=out,
            recipe=recipe,
            minutes=minutes,
            hours=hours,
            steps=steps,
            tokens=tokens,
            flops=flops,
            set=set or (),
            as_published=as_published,
            seed=seed,
            tokenizer=tokenizer,
            init=init,
            extend_vocabulary=extend_vocabulary,
            teacher=teacher,
            held_out=held_out or (),
            clean=clean or (),
            device=device,
            precision=precision,
            kernels=kernels,
            workers=workers,
            engine=engine,
            checkpoint_minutes=checkpoint_minutes,
            keep=keep,
            mirror=mirror,
        )
        if rank():
            sys.exit(0 if run.finished else 130)
        if json:
            output.print_json(run.to_json())
        elif run.finished:
            output.note(f"try it: {_next_command(run.folder)}")
        if not run.finished:
            output.note(
                f"stopped by {run.stopped_by} after {pluralize(run.steps, 'step')}, checkpoint saved; "
                "run the same command again to resume"
            )
            sys.exit(130)


def _next_command(folder: Path) -> str:
    """Return the command that shows what a finished run has learned; it depends on the saved heads."""
    from maskwright.recipes.catalog import resolve

    recipe = resolve(str(folder / "recipe.json"))
    kinds = {objective.kind for objective in recipe.objectives}
    if "rtd" in kinds:
        return f'maskwright detect {folder} "A text in which some words may be wrong."'
    if "mlm" in kinds and recipe.replacement.shows_masks:
        return f'maskwright fill-mask {folder} "... [MASK] ..."'
    return f'maskwright embed {folder} "A text." "Another text."'
