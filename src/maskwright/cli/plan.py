"""`maskwright plan`: what fits a budget of time on this machine."""

from typing import Annotated

import typer

from maskwright.cli import options, output


def command(
    corpus: options.CorpusArgument,
    hours: Annotated[float | None, typer.Option(help="Hours of a run.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Minutes of a run.")] = None,
    recipes: Annotated[str, typer.Option(help="Recipes, comma-separated.")] = "bert/tiny,bert/mini,bert/small",
    trial_minutes: Annotated[float, typer.Option(help="Training time of all short runs together.")] = 4.0,
    set: options.SetOfRecipesOption = None,
    clean: options.CleanOption = None,
    device: options.DeviceOption = "auto",
    precision: options.TrainingPrecisionOption = "auto",
    workers: options.WorkersOption = None,
    engine: options.EngineOption = "local",
    json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Say what fits a budget of time on this machine, from the measured speed and a few short runs: tokens, epochs,
    memory and expected held-out loss of each recipe."""
    from maskwright.core.amounts import short_count, size_in_bytes

    names = options.split_list(recipes)
    options.check_recipes(name.partition("=")[2] or name for name in names)
    from maskwright.study.plan import plan

    found = plan(
        corpus,
        names,
        hours=hours,
        minutes=minutes,
        trial_minutes=trial_minutes,
        set=set or (),
        clean=clean or (),
        device=device,
        precision=precision,
        workers=workers,
        engine=engine,
    )
    if json:
        output.print_json(found.to_json())
        return
    output.table(
        ("recipe", "tokens", "epochs", "steps", "memory", "loss per masked word", "95 % interval", ""),
        [
            (
                each.recipe,
                short_count(each.tokens),
                f"{each.epochs:.3g}",
                f"{each.steps:,}",
                size_in_bytes(each.memory),
                "–" if each.loss is None else f"{each.loss:.2f}" + (" (generator)" if each.by == "generator" else ""),
                "–" if each.loss is None else f"{each.low:.2f} to {each.high:.2f}",
                f"refused: {each.refused}" if each.refused else each.note,
            )
            for each in found.recipes
        ],
        right=(1, 2, 3, 4, 5, 6),
    )
    output.note(
        f"no recommendation: {found.reason}"
        if found.recommended is None
        else f"recommended: {found.recommended}: {found.reason}"
    )
