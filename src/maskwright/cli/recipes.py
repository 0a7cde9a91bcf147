"""`maskwright recipes`: list, show, compare and size the recipes."""

from typing import Annotated, Any

import typer

from maskwright.cli import options, output

command = typer.Typer(help="List, show, compare and size the recipes of the published systems.", no_args_is_help=False)

Name = Annotated[str, typer.Argument(help="Name of a recipe, path of its JSON file, or a run directory.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@command.callback(invoke_without_command=True)
def list_recipes(context: typer.Context, as_json: AsJson = False) -> None:
    """List, show, compare and size the recipes of the published systems. Without a subcommand: list them."""
    if (verb := context.invoked_subcommand) is not None:
        if as_json:
            from maskwright.core.errors import MaskwrightError

            todo = f"Put it at the end: `maskwright recipes {verb} ... --json`"
            raise MaskwrightError(f"--json must come after the subcommand {verb!r}", todo=todo)
        return
    from maskwright.core.amounts import short_count
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
    if as_json:
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
def show_recipe(name: Name, changes: options.SetOption = None, as_json: AsJson = False) -> None:
    """Show all settings of a recipe as a table."""
    from maskwright.recipes.catalog import resolve
    from maskwright.recipes.table import rows

    recipe = resolve(name, changes or ())
    if as_json:
        output.print_json(recipe.model_dump(mode="json"))
        return
    listed = rows(recipe)
    output.heading(recipe.name, f"{recipe.summary} ({recipe.paper})")
    output.table(
        ("", "", "", "--set"),
        [
            (output.strong(axis), row.label, row.value, output.faint(row.path))
            for axis, row in zip(output.grouped(row.axis for row in listed), listed, strict=True)
        ],
    )


@command.command("diff")
def diff_recipes(
    first: Name,
    second: Name,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Override a field of the second recipe; repeatable."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Include equal settings.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the differences between two recipes."""
    from dataclasses import asdict

    from maskwright.recipes.catalog import resolve
    from maskwright.recipes.table import diff

    left, right = resolve(first), resolve(second, changes or ())
    lines = diff(left, right, every)
    names = [left.name, right.name]
    if left.name == right.name:  # A run's recipe has the name of the recipe it was resolved from.
        names = [first, " ".join([second, *(f"--set {change}" for change in changes or ())])]
    if as_json:
        output.print_json({"left": names[0], "right": names[1], "fields": [asdict(line) for line in lines]})
        return
    if not lines:
        output.note(f"{names[0]} and {names[1]} are identical.")
        return
    output.table(
        ("", "", *names),
        [
            (
                output.strong(axis),
                line.label,
                line.left,
                output.strong(line.right) if line.differs and every else line.right,
            )
            for axis, line in zip(output.grouped(line.axis for line in lines), lines, strict=True)
        ],
    )


@command.command("size")
def size_recipe(name: Name, changes: options.SetOption = None, as_json: AsJson = False) -> None:
    """Show the number of parameters, FLOPs and memory of a recipe."""
    from dataclasses import asdict

    from maskwright.core.amounts import share, short_count, size_in_bytes
    from maskwright.recipes.catalog import resolve
    from maskwright.recipes.sizing import sizes
    from maskwright.recipes.table import format_name

    recipe = resolve(name, changes or ())
    counted = sizes(recipe)
    if as_json:
        totals = {
            "encoder": counted.encoder,
            "encoder_and_pooler": counted.encoder_and_pooler,
            "pretraining": counted.pretraining,
            "training_flops": counted.training_flops,
        }
        output.print_json({"name": recipe.name, **totals, **asdict(counted)})
        return
    output.heading(recipe.name, recipe.summary)
    parameters: list[tuple[output.Cell, ...]] = [
        (format_name(part), f"{count:,}", "") for part, count in counted.parts.items()
    ]
    parameters.append(_total("encoder", counted.encoder))
    if counted.pooler:
        parameters.append(("pooler", f"{counted.pooler:,}", ""))
        parameters.append(_total("encoder + pooler", counted.encoder_and_pooler))
    if counted.generator:
        shared = recipe.generator is not None and recipe.generator.shared == "embeddings"
        remark = "without shared embeddings" if shared else ""
        parameters.append(_total("generator", sum(counted.generator.values()), remark))
    parameters.extend((f"{format_name(kind)} head", f"{count:,}", "") for kind, count in counted.heads.items() if count)
    parameters.append(_total("pretraining, total", counted.pretraining))
    remark = "generator with its embeddings" if counted.generator else "no pooler, no other head"
    parameters.append(_total("masked language model only", counted.masked_lm, remark))
    output.table(("parameters", "", ""), parameters, right=(1,))
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


def _total(name: str, count: int, remark: str = "") -> tuple[output.Cell, ...]:
    return output.strong(name), output.strong(f"{count:,}"), output.faint(remark)
