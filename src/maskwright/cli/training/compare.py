"""`maskwright compare`: train recipes with equal spend and several seeds, and compare them with a baseline."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from maskwright.cli import output
from maskwright.cli.options import Arguments, Json, arguments_of, check_recipes, split_list
from maskwright.core.text.amounts import short_count

if TYPE_CHECKING:
    from maskwright.study.compare import PlannedRun


@arguments_of("compare", commas=("recipes", "tasks"))
def command(
    arguments: Arguments,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            help="Compare values of a field, e.g. `masking=token,whole_word,span`; repeatable, all combinations."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Compare recipes on a corpus: equal spend, same text, several seeds, statistics and a report. Ctrl-C saves; the
    same command again resumes, and with another recipe, seed or task it runs only what is missing."""
    check_recipes(name.partition("=")[2] or name for name in arguments["recipes"])
    from maskwright.study.compare import compare
    from maskwright.study.report import LEGEND, sentences, summary
    from maskwright.training.ranks.distributed import process_group, rank

    fields = [setting.partition("=") for setting in vary or ()]
    dry_run = arguments["dry_run"]
    with process_group():  # An error of all processes of torchrun is printed once, and only rank 0 prints the result.
        done = compare(**arguments, vary={field: split_list(values) for field, _, values in fields})
        if rank():
            sys.exit(0 if done.finished or dry_run else 130)
        if dry_run and json:
            output.print_json([{**asdict(run), "is_trial": run.is_trial} for run in done.runs])
        elif dry_run:
            _print_plan(done.runs)
        elif json:
            output.print_json(done.report)
        elif done.report is not None:
            output.show_split(summary(done.report))
            for sentence in (LEGEND, *sentences(done.report)):
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
