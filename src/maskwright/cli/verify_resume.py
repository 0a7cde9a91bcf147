"""`maskwright verify-resume`: show that a killed run, started again, equals an uninterrupted one."""

import dataclasses
import sys
from typing import Annotated

import typer

from maskwright.cli import output


def command(
    recipe: Annotated[str, typer.Argument(help="A recipe's name; a small model of it is trained.")] = "bert/mini",
    kills: Annotated[int, typer.Option(help="How often the second run is killed.", min=1, max=10)] = 2,
    seed: Annotated[int, typer.Option(help="Seed of both runs.")] = 0,
    set: Annotated[
        list[str] | None,
        typer.Option("--set", help="Set a field of the recipe; repeatable.", show_default=False),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")] = False,
) -> None:
    """Train twice, once killed at random steps and resumed; compare metrics and weights bit for bit."""
    from maskwright.training.verify_resume import verify_resume

    verdict = verify_resume(recipe, kills=kills, seed=seed, set=set or ())
    if json:
        output.print_json({**dataclasses.asdict(verdict), "equal": verdict.equal})
    else:
        output.table(
            ("", ""),
            [
                ("steps", str(verdict.steps)),
                ("killed after steps", ", ".join(map(str, verdict.killed_at))),
                (
                    "metrics",
                    "equal, byte for byte" if verdict.metrics_equal else f"DIFFER: {verdict.first_difference}",
                ),
                ("weights", "equal, byte for byte" if verdict.weights_equal else "DIFFER"),
            ],
            title=f"{verdict.recipe}: killed and resumed against uninterrupted",
        )
    if not verdict.equal:
        sys.exit(1)
