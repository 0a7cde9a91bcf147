"""`maskwright plan`: what fits a budget of time on this machine."""

from maskwright.cli import output
from maskwright.cli.options import Arguments, Json, arguments_of, check_recipes
from maskwright.core.amounts import short_count, size_in_bytes


@arguments_of("plan", commas=["recipes"])
def command(arguments: Arguments, json: Json = False) -> None:
    """Say what fits a budget of time on this machine, from the measured speed and a few short runs: tokens, epochs,
    memory and expected held-out loss of each recipe."""
    check_recipes(name.partition("=")[2] or name for name in arguments["recipes"])
    from maskwright.study.plan import plan

    found = plan(**arguments)
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
