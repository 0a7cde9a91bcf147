"""`maskwright pretrain`: train an encoder on a corpus."""

import sys
from pathlib import Path

from maskwright.cli import output
from maskwright.cli.options import Arguments, Json, arguments_of, check_recipes
from maskwright.core.text.amounts import pluralize
from maskwright.recipes import DEFAULT_RECIPE


@arguments_of("pretrain", commas=["report_to"], keep={"min": 0})
def command(arguments: Arguments, json: Json = False) -> None:
    """Pretrain an encoder on a corpus within a budget. Ctrl-C saves a checkpoint; the same command again resumes."""
    if arguments["recipe"] is not None or arguments["init"] is None:
        check_recipes([arguments["recipe"] or DEFAULT_RECIPE], arguments["set"])
    from maskwright.training.pretrain import pretrain
    from maskwright.training.ranks.distributed import process_group, rank

    with process_group():  # An error of all processes of torchrun is printed once, and only rank 0 prints the result.
        run = pretrain(**arguments)
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
