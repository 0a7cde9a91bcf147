"""The arguments and options of a command, read from the signature and docstring of its Python function.

So name, type, default and help of an argument are written once. The source is read as a syntax tree: importing the
function would import PyTorch, which takes seconds.
"""

import ast
import inspect
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import maskwright

Arguments = dict[str, Any]
"""The values of a function's parameters, by name."""
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]

PYTHON_ONLY = ("cache", "progress", "reporter")
"""Parameters of functions that commands do not have."""
_NUMBERS = {"bool": bool, "int": int, "float": float}
_REQUIRED = inspect.Parameter.empty
_METAVARS = {
    **dict.fromkeys(("set", "clean", "finetune_set", "read"), "FIELD=VALUE"),
    **dict.fromkeys(("init", "teacher"), "DIR_OR_NAME"),
    "extend_vocabulary": "N_OR_FILE",
    "keep": "N",
    "mirror": "URL",
}


def arguments_of(
    function: str,
    *,
    module: str = "maskwright",
    without: Collection[str] = (),
    commas: Collection[str] = (),
    **details: Mapping[str, Any],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make `run(arguments, **extras)` a command with the parameters of a function.

    The values of these parameters are in `arguments`. `run` declares more of them with typer's annotations, also in
    place of a function's parameter. A parameter is an argument of the command if it is positional, and required or
    empty by default; else an option.

    Args:
        function: Its docstring must describe each parameter.
        module: The module that defines or imports the function.
        without: Parameters that the command does not have.
        commas: Sequences that are one option, separated by commas.
        details: More arguments of `typer.Option` for a parameter; `short` is a short name.
    """

    def decorate(run: Callable[..., None]) -> Callable[..., None]:
        extras = dict(inspect.signature(run).parameters)
        del extras["arguments"]
        hidden = {*PYTHON_ONLY, *without}
        parameters = {parameter.name: parameter for parameter in parameters_of(function, module, hidden)}
        declared = {
            name: parameter.annotated(name in commas, **details.get(name, {})) for name, parameter in parameters.items()
        }
        declared |= {name: extra.replace(kind=inspect.Parameter.KEYWORD_ONLY) for name, extra in extras.items()}

        def command(**values: Any) -> None:
            arguments = {name: values.pop(name) for name in parameters if name not in extras}
            for name, value in arguments.items():
                if value is None:
                    arguments[name] = parameters[name].default
                elif name in commas:
                    arguments[name] = split_list(value)
            run(arguments, **values)

        command.__doc__ = run.__doc__
        command.__annotations__ = {name: parameter.annotation for name, parameter in declared.items()}
        command.__signature__ = inspect.Signature([*declared.values()])  # type: ignore[attr-defined]
        return command

    return decorate


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a function; `kinds` are the names in its type, and its `Literal`."""

    name: str
    kinds: Collection[Any]
    default: Any
    positional: bool
    help: str

    def annotated(self, with_commas: bool, short: Collection[str] = (), **details: Any) -> inspect.Parameter:
        """Return the parameter with typer's annotation."""
        is_path, is_list = "Path" in self.kinds, "Sequence" in self.kinds and not with_commas
        literals = [kind for kind in self.kinds if not isinstance(kind, str)]
        numbers = [_NUMBERS[kind] for kind in self.kinds if kind in _NUMBERS and not is_path]
        kind: Any = str if with_commas else (*literals, *numbers, str)[0]
        default = None if self.default in ((), "") else self.default
        info: Any = typer.Argument(help=self.help)
        if with_commas or not self.positional or default not in (None, _REQUIRED):
            flag = f"--{self.name.replace('_', '-')}"
            if kind is bool and default is None:
                flag = f"{flag}/--no{flag[1:]}"
            metavar = _METAVARS.get(self.name, f"<{'list[path]' if is_list else 'path'}>" if is_path else None)
            help = self.help + " Repeatable." * is_list + " Comma-separated." * with_commas
            info = typer.Option(flag, *short, help=help, **{"metavar": metavar, **details})
        kind = list[kind] if is_list else kind
        if default is None:
            kind = kind | None
        elif default is not _REQUIRED and with_commas:
            default = ",".join(default)
        elif is_list and isinstance(default, str):
            default = [default]
        annotation: Any = Annotated[kind, info]
        return inspect.Parameter(self.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def parameters_of(function: str, module: str, without: Collection[str]) -> Iterator[Parameter]:
    """Yield the parameters of a function but for some."""
    module, defined = _definition(module, function)
    assert isinstance(defined, ast.FunctionDef)
    declared, helps = defined.args, documented(defined)
    defaults = [*[None] * (len(declared.args) - len(declared.defaults)), *declared.defaults, *declared.kw_defaults]
    options = {argument.arg for argument in declared.kwonlyargs}
    for argument, default in zip((*declared.args, *declared.kwonlyargs), defaults, strict=True):
        if argument.arg not in without:
            yield Parameter(
                name=argument.arg,
                kinds=_kinds(module, argument.annotation),
                default=_REQUIRED if default is None else _value(module, default),
                positional=argument.arg not in options,
                help=_option_names(helps[argument.arg], options),
            )


def _kinds(module: str, annotation: ast.expr | None) -> set[Any]:
    """Return the names in an annotation, and its `Literal`; type aliases are resolved unless it allows `str`."""
    assert annotation is not None
    kinds: set[Any] = {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}
    for name in () if "str" in kinds else tuple(kinds):
        origin, defined = _definition(module, name)
        if isinstance(defined, ast.Assign):
            kinds |= _kinds(origin, defined.value)
    for node in ast.walk(annotation):
        match node:
            case ast.Subscript(value=ast.Name(id="Literal"), slice=choices):
                kinds.add(Literal[ast.literal_eval(choices)])
    return kinds


def _value(module: str, default: ast.expr) -> Any:
    """Return a default value: a literal, or what the name of one means."""
    if isinstance(default, ast.Name):
        origin, defined = _definition(module, default.id)
        assert isinstance(defined, ast.Assign), f"{module}: the default {default.id} is not assigned to a name alone"
        return _value(origin, defined.value)
    return ast.literal_eval(default)


def documented(function: ast.FunctionDef) -> dict[str, str]:
    """Return the section `Args:` of a docstring by parameter, with "As for `pretrain`." replaced by that entry."""
    _, _, section = (ast.get_docstring(function) or "").partition("\nArgs:")
    entries = {}
    for entry in re.findall(r"\n    (\w.*(?:\n     .*)*)", section.partition("\n\n")[0]):
        names, _, text = entry.partition(": ")
        for name in names.split(", "):
            entries[name] = " ".join(text.split())
            if reference := re.match(r"As for `(\w+)`\.", text):
                _, other = _definition("maskwright", reference[1])
                assert isinstance(other, ast.FunctionDef)
                start, *in_python = re.split(r"(?= In Python)", documented(other)[name])
                entries[name] = "".join([start, entries[name][reference.end() :], *in_python])
    return entries


def _option_names(text: str, options: Collection[str]) -> str:
    """Return an entry of `Args:` as the help of the command: with the names of options, without "In Python ..."."""
    text = text.partition(" In Python")[0]
    return re.sub(r"`(\w+)`", lambda m: f"--{m[1].replace('_', '-')}" if m[1] in options else m[0], text)


@cache
def _statements(module: str) -> tuple[ast.stmt, ...]:
    """Return the statements of a module, those of `if TYPE_CHECKING` included."""
    path = Path(maskwright.__path__[0], *module.split(".")[1:])  # `find_spec` would import the packages above it.
    source = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")
    body = ast.parse(source).body
    return tuple(inner for outer in body for inner in (outer.body if isinstance(outer, ast.If) else [outer]))


def _definition(module: str, name: str) -> tuple[str, ast.stmt | None]:
    """Return where in this package a name is defined, and the statement; None if it is from elsewhere."""
    for statement in reversed(_statements(module)):
        match statement:
            case ast.FunctionDef(name=defined) | ast.Assign(targets=[ast.Name(id=defined)]) if defined == name:
                return module, statement
            case ast.ImportFrom(module=str(origin), names=names) if origin.startswith("maskwright."):
                for alias in names:
                    if (alias.asname or alias.name) == name:
                        return _definition(origin, alias.name)
    return module, None


def check_recipes(names: Iterable[str], overrides: Iterable[str] = ()) -> None:
    """Raise RecipeError for a recipe that there is not, before PyTorch is imported, which takes seconds."""
    from maskwright.recipes.catalog import resolve

    for name in names if "RANK" not in os.environ else ():  # The processes of torchrun print an error once, later.
        resolve(name, tuple(overrides))


def split_list(text: str) -> list[str]:
    """Split at commas outside of brackets."""
    return [part.strip() for part in re.split(r",(?![^\[{]*[\]}])", text) if part.strip()]
