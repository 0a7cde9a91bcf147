"""`maskwright recipes`: list, show, compare and size the recipes."""

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import typer

from maskwright.cli import output
from maskwright.cli.options import Arguments, Json, arguments_of
from maskwright.reporting.table import Cell

if TYPE_CHECKING:
    from maskwright.recipes.recipe import Recipe
    from maskwright.recipes.sizing import Sizes

command = typer.Typer(help="List, show, compare and size the recipes of the published systems.", no_args_is_help=False)


@command.callback(invoke_without_command=True)
def list_recipes(context: typer.Context, json: Json = False) -> None:
    """List, show, compare and size the recipes of the published systems. Without a subcommand: list them."""
    if (verb := context.invoked_subcommand) is not None:
        if json:
            from maskwright.core.errors import MaskwrightError

            hint = f"Put it at the end: `maskwright recipes {verb} ... --json`"
            raise MaskwrightError(f"--json must come after the subcommand {verb!r}", hint=hint)
        return
    from maskwright.core.text.amounts import short_count
    from maskwright.recipes.catalog import get, names
    from maskwright.recipes.sizing import sizes

    listed: list[dict[str, Any]] = [
        {
            "name": recipe.name,
            "layers": recipe.encoder.num_layers,
            "hidden_size": recipe.encoder.hidden_size,
            "heads": recipe.encoder.num_heads,
            "parameters": sizes(recipe).encoder_and_pooler,
            "summary": recipe.summary,
            "paper": recipe.paper,
        }
        for recipe in map(get, names())
    ]
    if json:
        output.print_json(listed)
        return
    shown = [{**entry, "parameters": short_count(entry["parameters"])} for entry in listed]
    output.table(
        ("recipe", "layers", "hidden", "heads", "parameters", "summary"),
        [[str(value) for value in list(entry.values())[:-1]] for entry in shown],
        right=(1, 2, 3, 4),
    )
    output.note("Details: maskwright recipes show NAME. Any field can be overridden: --set FIELD=VALUE.")


@command.command("show")
@arguments_of("show", module="maskwright.recipes")
def show_recipe(arguments: Arguments, json: Json = False) -> None:
    """Show all settings of a recipe as a table."""
    from maskwright.recipes import show
    from maskwright.recipes.table import rows

    recipe = show(**arguments)
    if json:
        output.print_json(recipe.model_dump(mode="json"))
        return
    listed = rows(recipe)
    output.heading(recipe.name, f"{recipe.summary} ({recipe.paper})")
    output.table(
        ("", "", "", "--set"),
        [(output.strong(row.axis), row.label, row.value, output.faint(row.path)) for row in listed],
        merged=True,
    )


@command.command("diff")
@arguments_of("diff", module="maskwright.recipes")
def diff_recipes(arguments: Arguments, json: Json = False) -> None:
    """Show the differences between two recipes."""
    from dataclasses import asdict

    from maskwright.recipes import diff

    lines, names = diff(**arguments), _labels(arguments["first"], arguments["second"], arguments["set"])
    if json:
        output.print_json({"left": names[0], "right": names[1], "fields": [asdict(line) for line in lines]})
        return
    if not lines:
        output.note(f"{names[0]} and {names[1]} are identical.")
        return
    output.table(
        ("", "", *names),
        [
            (
                output.strong(line.axis),
                line.label,
                line.left,
                output.strong(line.right) if line.differs and arguments["all"] else line.right,
            )
            for line in lines
        ],
        merged=True,
    )


@command.command("size")
@arguments_of("size", module="maskwright.recipes")
def size_recipe(arguments: Arguments, json: Json = False) -> None:
    """Show the number of parameters, FLOPs and memory of a recipe, or of two side by side."""
    from dataclasses import asdict

    from maskwright.core.text.amounts import share, short_count, size_in_bytes
    from maskwright.recipes.catalog import resolve
    from maskwright.recipes.sizing import embedding_sizes, sizes

    name, second, overrides = arguments["name"], arguments["second"], arguments["set"]
    recipes, names = [resolve(name, () if second else overrides)], [""]
    if second:
        recipes, names = [*recipes, resolve(second, overrides)], _labels(name, second, overrides)
    counted = [sizes(recipe) for recipe in recipes]
    if json:
        totals = ("encoder", "encoder_and_pooler", "pretraining", "training_flops")
        listed = [
            {"name": label or recipe.name, **{total: getattr(each, total) for total in totals}, **asdict(each)}
            for label, recipe, each in zip(names, recipes, counted, strict=True)
        ]
        output.print_json(listed if second else listed[0])
        return
    if not second:
        output.heading(recipes[0].name, recipes[0].summary)
    listed_parameters = [_parameters(*each) for each in zip(recipes, counted, strict=True)]
    _print_sizes(
        "parameters",
        names,
        [{part: count for part, count, _, _ in rows} for rows in listed_parameters],
        lambda count: f"{count:,.0f}",
        {part for rows in listed_parameters for part, _, _, is_total in rows if is_total},
        {part: remark for part, _, remark, _ in listed_parameters[0]},
    )
    embeddings = [embedding_sizes(recipe) for recipe in recipes]
    if any(factorized != full for factorized, full in embeddings):
        parts = ("V x E + E x H (V x H if E is H)", "V x H")
        sides = [dict(zip(parts, each, strict=True)) for each in embeddings]
        factorized, full = embeddings[0]
        remarks = {"V x H": f"{full / factorized:.3g} times as many"}
        _print_sizes("word embeddings", names, sides, lambda count: f"{count:,.0f}", remarks=remarks)
    flops: list[dict[str, float]] = [
        {
            **{f"inference, per token at length {phase.max_length}": phase.inference for phase in each.phases},
            **{f"training, per token at length {phase.max_length}": phase.training for phase in each.phases},
            "training, total": each.training_flops,
        }
        for each in counted
    ]
    shares = {
        f"training, per token at length {phase.max_length}": f"{share(phase.share)} of the steps"
        for phase in counted[0].phases
    }
    _print_sizes("FLOPs", names, flops, short_count, remarks=shares)
    memory = [{**each.memory, "total, without activations": sum(each.memory.values())} for each in counted]
    _print_sizes("training memory, fp32", names, memory, size_in_bytes)
    if second and (ratio := counted[0].encoder_and_pooler / counted[1].encoder_and_pooler) != 1:
        more, less = names if ratio > 1 else names[::-1]
        output.note(f"{less} has {max(ratio, 1 / ratio):.1f} times fewer parameters than {more} (encoder + pooler).")


def _print_sizes(
    title: str,
    names: Sequence[str],
    sides: Sequence[Mapping[str, float]],
    shown: Callable[[float], str],
    totals: Collection[str] = (),
    remarks: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Print the sizes of a recipe by part, with remarks; or of two, with the ratios of the first's to the second's."""
    from maskwright.recipes.table import merged

    rows = []
    for part in merged(list(sides[0]), list(sides[-1])):
        values = [side.get(part) for side in sides]
        last: str | Cell = output.faint(remarks.get(part, ""))
        if len(values) == 2:
            last = f"{values[0] / values[1]:.3g}" if values[0] and values[1] else "–"
        cells = [part, *("–" if value is None else shown(value) for value in values)]
        rows.append([*(map(output.strong, cells) if part in totals else cells), last])
    two = len(names) == 2
    output.table((title, *names, "ratio" if two else ""), rows, right=range(1, 1 + len(names) + two))


def _parameters(recipe: "Recipe", counted: "Sizes") -> "list[tuple[str, int, str, bool]]":
    """List the parameters: part, count, remark, and whether it is a total."""
    from maskwright.recipes.table import format_name

    rows = [(format_name(part), count, "", False) for part, count in counted.parts.items()]
    rows.append(("encoder", counted.encoder, "", True))
    if counted.pooler:
        rows += [("pooler", counted.pooler, "", False), ("encoder + pooler", counted.encoder_and_pooler, "", True)]
    if counted.generator:
        shared = recipe.generator is not None and recipe.generator.shared == "embeddings"
        rows.append(("generator", sum(counted.generator.values()), "without shared embeddings" if shared else "", True))
    rows += [(f"{format_name(kind)} head", count, "", False) for kind, count in counted.heads.items() if count]
    rows.append(("pretraining, total", counted.pretraining, "", True))
    remark = "generator with its embeddings" if counted.generator else "no pooler, no other head"
    return [*rows, ("masked language model only", counted.masked_lm, remark, True)]


def _labels(first: str, second: str, overrides: Sequence[str]) -> list[str]:
    """Return what to call two recipes, also two of one name."""
    from maskwright.recipes.catalog import resolve

    names = [resolve(first).name, resolve(second).name]
    if names[0] == names[1]:  # A run's recipe has the name of the recipe it was resolved from.
        names = [first, " ".join([second, *(f"--set {change}" for change in overrides)])]
    return names
