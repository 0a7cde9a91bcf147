"""`maskwright plan`: what fits a budget of time on this machine."""

from maskwright.cli import output
from maskwright.cli.options import Arguments, Json, arguments_of, check_recipes
from maskwright.core.text.amounts import short_count, size_in_bytes


@arguments_of("plan", commas=["recipes"])
def command(arguments: Arguments, json: Json = False) -> None:
    """Say what fits a budget of time on this machine, from the measured speed and a few short runs: tokens, epochs,
    memory and expected held-out loss of each recipe."""
    check_recipes(name.partition("=")[2] or name for name in arguments["recipes"])
    from maskwright.study.plan import plan

    result = plan(**arguments)
    if json:
        output.print_json(result.to_json())
        return
    output.table(
        ("recipe", "tokens", "epochs", "steps", "memory", "loss per masked word", "95 % interval", ""),
        [
            (
                row.recipe,
                short_count(row.tokens),
                f"{row.epochs:.3g}",
                f"{row.steps:,}",
                size_in_bytes(row.memory),
                "–" if row.loss is None else f"{row.loss:.2f}" + (" (generator)" if row.by == "generator" else ""),
                "–" if row.loss is None else f"{row.low:.2f} to {row.high:.2f}",
                f"refused: {row.refused}" if row.refused else row.note,
            )
            for row in result.recipes
        ],
        right=(1, 2, 3, 4, 5, 6),
    )
    output.note(
        f"no recommendation: {result.reason}"
        if result.recommended is None
        else f"recommended: {result.recommended}: {result.reason}"
    )
