"""`maskwright compare`: train recipes with equal spend and several seeds, and compare them with a baseline."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maskwright.cli import options, output
from maskwright.core.amounts import short_count

if TYPE_CHECKING:
    from maskwright.study.compare import PlannedRun


def command(
    corpus: options.CorpusArgument,
    recipes: Annotated[str, typer.Option(help="Recipes, comma-separated; `LABEL=RECIPE` names one yourself.")],
    out: Annotated[Path, typer.Option(help="Study directory; the same command again resumes the study.")],
    flops: Annotated[float | None, typer.Option(help="FLOPs of each run, e.g. 1e15.")] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="Minutes that the baseline is expected to train; all runs spend the FLOPs that it does in them."
        ),
    ] = None,
    tokens: Annotated[float | None, typer.Option(help="Tokens of each run, e.g. 1e8.")] = None,
    wall_clock: Annotated[
        bool, typer.Option("--wall-clock", help="With --minutes: equal time instead of equal FLOPs.")
    ] = False,
    seeds: Annotated[int, typer.Option(help="Number of seeds; 3 or more to show differences.")] = 3,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 0,
    tasks: Annotated[
        str,
        typer.Option(
            help="What to measure, comma-separated: masked, intrinsic, cost, `blimp=DIR` (minimal pairs), and tasks of "
            "`finetune` with their data, `sst-2=DIR` or `classification=FILE`; `LABEL:TASK=PATH` names one yourself."
        ),
    ] = "masked,intrinsic,cost",
    baseline: Annotated[
        str | None, typer.Option(help="Recipe that the others are compared with. Default: the first.")
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            "--vary",
            help="Compare values of a field, e.g. `masking=token,whole_word,span`; repeatable, all combinations.",
        ),
    ] = None,
    set: options.SetOfRecipesOption = None,
    clean: options.CleanOption = None,
    finetune_set: Annotated[
        list[str] | None,
        typer.Option("--finetune-set", help="Override a hyperparameter of fine-tuning, e.g. `epochs=2`."),
    ] = None,
    device: options.DeviceOption = "auto",
    precision: options.TrainingPrecisionOption = "auto",
    workers: options.WorkersOption = None,
    engine: options.EngineOption = "local",
    tune_rate: Annotated[
        bool,
        typer.Option(
            "--tune-rate",
            help="Try x0.5, x1 and x2 of the fitted learning rate of each recipe on a seed that is not compared, and "
            "use the best: three more runs of each recipe.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the runs and what they may spend.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Compare recipes on a corpus: equal spend, same text, several seeds, statistics and a report. Ctrl-C saves; the
    same command again resumes, and with another recipe, seed or task it runs only what is missing."""
    names = options.split_list(recipes)
    options.check_recipes(name.partition("=")[2] or name for name in names)
    from maskwright.study.compare import compare
    from maskwright.study.results import overview, sentences
    from maskwright.training.distributed import process_group, rank

    with process_group():  # An error of all processes of torchrun is printed once, and only rank 0 prints the result.
        done = compare(
            corpus,
            names,
            out=out,
            flops=flops,
            tokens=tokens,
            minutes=minutes,
            wall_clock=wall_clock,
            seeds=seeds,
            seed=seed,
            tasks=options.split_list(tasks),
            baseline=baseline,
            vary={
                field: options.split_list(values) for field, _, values in (each.partition("=") for each in vary or ())
            },
            set=set or (),
            clean=clean or (),
            finetune_set=finetune_set or (),
            device=device,
            precision=precision,
            workers=workers,
            engine=engine,
            tune_rate=tune_rate,
            dry_run=dry_run,
        )
        if rank():
            sys.exit(0 if done.finished or dry_run else 130)
        if dry_run:
            _print_plan(done.runs)
        elif json:
            output.print_json(done.report)
        elif done.report is not None:
            columns, rows = overview(done.report)
            output.table(columns, rows, right=range(len(columns) - 3, len(columns)))
            for sentence in sentences(done.report):
                output.note(sentence)
        if not (done.finished or dry_run):
            sys.exit(130)


def _print_plan(runs: "Sequence[PlannedRun]") -> None:
    output.table(
        ("recipe", "seed", "state", "FLOPs", "tokens, about", "to measure"),
        [
            (
                run.label,
                str(run.seed),
                run.state,
                f"{run.flops:.3g}" if run.flops else "–",
                short_count(run.tokens) if run.tokens else "–",
                ", ".join(run.to_measure) or "–",
            )
            for run in runs
        ],
        right=(1, 3, 4),
    )
    spent = sum(run.flops for run in runs if run.is_trial)
    trials = f"; {sum(run.is_trial for run in runs)} of them try learning rates, {spent:.3g} FLOPs" if spent else ""
    output.note(f"{len(runs)} runs, {sum(run.state == 'finished' for run in runs)} finished{trials}")
