"""`maskwright recipes`: list, show, compare and size the recipes."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import typer

from maskwright.cli import output
from maskwright.cli.options import Arguments, Json, arguments_of

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
    from maskwright.core.text.amounts import share, short_count, size_in_bytes
    from maskwright.recipes.catalog import resolve
    from maskwright.recipes.sizing import embedding_sizes, sizes

    name, second, overrides = arguments["name"], arguments["second"], arguments["set"]
    recipe = resolve(name, () if second else overrides)
    if second is not None:
        _size_two(recipe, resolve(second, overrides), _labels(name, second, overrides), json)
        return
    counted = sizes(recipe)
    if json:
        output.print_json(_size_json(recipe.name, counted))
        return
    output.heading(recipe.name, recipe.summary)
    output.table(
        ("parameters", "", ""),
        [
            (output.strong(part), output.strong(f"{count:,}"), output.faint(remark))
            if is_total
            else (part, f"{count:,}", remark)
            for part, count, remark, is_total in _parameters(recipe, counted)
        ],
        right=(1,),
    )
    factorized, full = embedding_sizes(recipe)
    if factorized != full:
        output.note(f"V x E + E x H = {factorized:,}; V x H would be {full:,}, {full / factorized:.3g} times as many")
    output.table(
        (
            "sequence length",
            "share of steps",
            "training FLOPs per token",
            "inference FLOPs per token",
            "total training FLOPs",
        ),
        [
            (
                str(phase.max_length),
                share(phase.share),
                short_count(phase.training),
                short_count(phase.inference),
                short_count(phase.total),
            )
            for phase in counted.phases
        ],
        right=(0, 1, 2, 3, 4),
    )
    output.table(
        ("training memory, fp32", ""),
        [(kind, size_in_bytes(count)) for kind, count in counted.memory.items()]
        + [("total, without activations", size_in_bytes(sum(counted.memory.values())))],
        right=(1,),
    )


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


def _size_json(name: str, counted: "Sizes") -> dict[str, Any]:
    from dataclasses import asdict

    totals = {
        "encoder": counted.encoder,
        "encoder_and_pooler": counted.encoder_and_pooler,
        "pretraining": counted.pretraining,
        "training_flops": counted.training_flops,
    }
    return {"name": name, **totals, **asdict(counted)}


def _size_two(first: "Recipe", second: "Recipe", names: list[str], json: bool) -> None:
    """Print the sizes of two recipes, and the ratios of the first's to the second's."""
    from maskwright.core.text.amounts import short_count, size_in_bytes
    from maskwright.recipes.sizing import embedding_sizes, sizes

    both = [(recipe, sizes(recipe)) for recipe in (first, second)]
    if json:
        output.print_json([_size_json(name, counted) for name, (_, counted) in zip(names, both, strict=True)])
        return

    def table(title: str, sides: list[dict[str, float]], shown: Callable[[float], str], totals: set[str]) -> None:
        rows = []
        for part in _merged(*map(list, sides)):
            left, right = (side.get(part) for side in sides)
            ratio = f"{left / right:.3g}" if left and right else "–"
            cells = [part, *("–" if value is None else shown(value) for value in (left, right)), ratio]
            rows.append([output.strong(cell) if part in totals else cell for cell in cells])
        output.table((title, *names, "ratio"), rows, right=(1, 2, 3))

    listed = [_parameters(*each) for each in both]
    totals = {part for rows in listed for part, _, _, is_total in rows if is_total}
    parameters: list[dict[str, float]] = [{part: count for part, count, _, _ in rows} for rows in listed]
    table("parameters", parameters, lambda count: f"{count:,.0f}", totals)
    embeddings: list[dict[str, float]] = [
        dict(zip(("V x E + E x H (V x H if E is H)", "V x H"), embedding_sizes(recipe), strict=True))
        for recipe, _ in both
    ]
    table("word embeddings", embeddings, lambda count: f"{count:,.0f}", set())
    flops: list[dict[str, float]] = [
        {
            **{f"inference, per token at length {phase.max_length}": phase.inference for phase in counted.phases},
            **{f"training, per token at length {phase.max_length}": phase.training for phase in counted.phases},
            "training, total": counted.training_flops,
        }
        for _, counted in both
    ]
    table("FLOPs", flops, short_count, set())
    memory: list[dict[str, float]] = [{"without activations": sum(counted.memory.values())} for _, counted in both]
    table("training memory, fp32", memory, size_in_bytes, set())
    ratio = both[0][1].encoder_and_pooler / both[1][1].encoder_and_pooler
    more, less = names if ratio >= 1 else names[::-1]
    if ratio != 1:
        output.note(f"{less} has {max(ratio, 1 / ratio):.1f} times fewer parameters than {more} (encoder + pooler).")


def _merged(first: list[str], second: list[str]) -> list[str]:
    """Return the names of both lists once, those of the second only behind their predecessors there."""
    merged = list(first)
    for number, name in enumerate(second):
        if name not in merged:
            merged.insert(merged.index(second[number - 1]) + 1 if number else 0, name)
    return merged


def _labels(first: str, second: str, overrides: Sequence[str]) -> list[str]:
    """Return what to call two recipes, also two of one name."""
    from maskwright.recipes.catalog import resolve

    names = [resolve(first).name, resolve(second).name]
    if names[0] == names[1]:  # A run's recipe has the name of the recipe it was resolved from.
        names = [first, " ".join([second, *(f"--set {change}" for change in overrides)])]
    return names
