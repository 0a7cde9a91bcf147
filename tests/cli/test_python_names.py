"""Each command is also a Python function with the same arguments; importing the package imports nothing heavy."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from typer.main import get_command

import maskwright
from maskwright.cli.main import SUBCOMMANDS, load
from maskwright.cli.options import PYTHON_ONLY, documented, parameters_of
from maskwright.cli.training.pretrain import command as pretrain_command
from maskwright.recipes import DEFAULT_RECIPE

DISPLAY = {"json", "html", "help"}
"""Options that choose how a result is printed; functions return it."""
# Commands read texts from the command line or a file, and write results; the functions get and return values.
DIFFERENT = {
    "predict": ({"texts", "out"}, {"inputs"}),
    "push": ({"yes"}, set()),
    "show": ({"text_file", "limit"}, {"max_sequences"}),
    "recipes": ({"name"}, set()),
    "doctor": ({"folder"}, set()),  # maskwright.examine
}


def _options(command: Any) -> set[str]:
    names = (max(parameter.opts, key=len).lstrip("-").replace("-", "_") for parameter in command.params)
    return set(names) - DISPLAY


@pytest.mark.parametrize("name", sorted(set(SUBCOMMANDS) - {"recipes"}))
def test_every_command_is_a_function_with_its_arguments(name: str) -> None:
    python_name = name.replace("-", "_")
    function = getattr(maskwright, python_name)
    assert inspect.isfunction(function)
    assert function.__name__ == python_name
    assert python_name in maskwright.__all__
    left_out, added = DIFFERENT.get(name, (set(), set()))
    parameters = inspect.signature(function).parameters
    assert set(parameters) - {*PYTHON_ONLY} == (_options(load(name)) - left_out) | added
    # They are read from the source as Python sees them.
    for read in parameters_of(python_name, "maskwright", PYTHON_ONLY):
        positional = parameters[read.name].kind is not inspect.Parameter.KEYWORD_ONLY
        assert (read.default, read.positional) == (parameters[read.name].default, positional)


def test_types_of_options_are_those_of_the_function() -> None:
    expected = {
        "corpus": list[str],
        "out": str,
        "steps": int | None,
        "tokens": float | None,
        "as_published": bool,
        "extend_vocabulary": str | None,
        "set": list[str] | None,
        "precision": Literal["auto", "fp32", "bf16"],
        "engine": Literal["local", "ray"] | None,
        "keep": int,
    }
    assert expected.items() <= get_type_hints(pretrain_command).items()


def _literals(annotation: Any) -> set[Any]:
    if get_origin(annotation) is Literal:
        return set(get_args(annotation))
    return {literal for part in get_args(annotation) for literal in _literals(part)}


@pytest.mark.parametrize("name", ["pretrain", "finetune", "evaluate", "predict", "embed", "serve", "export", "compare"])
def test_choices_of_options_are_those_of_the_function(name: str) -> None:
    parameters = inspect.signature(getattr(maskwright, name)).parameters
    module = vars(sys.modules[getattr(maskwright, name).__module__])
    checked = 0
    for option in load(name).params:
        annotation = parameters[option.name].annotation if option.name in parameters else None
        allowed = _literals(eval(annotation, module) if isinstance(annotation, str) else annotation)
        if allowed:
            assert _literals(option.type_descriptor.annotation) == allowed, option.name
            checked += 1
    assert checked


def test_every_option_is_described_in_the_words_of_the_command_line() -> None:
    for parameter in (parameter for name in SUBCOMMANDS if name != "recipes" for parameter in load(name).params):
        assert parameter.help
        assert "As for" not in parameter.help
        assert "In Python" not in parameter.help
        assert not re.search(r"`[a-z]+_[a-z_]+`", parameter.help)
    (recipe,) = (parameter.help for parameter in load("pretrain").params if parameter.name == "recipe")
    assert f"`{DEFAULT_RECIPE}`, with --init" in recipe


def test_references_to_other_functions_are_replaced_and_notes_on_python_come_last() -> None:
    source = '''
def measure(seed, device, precision):
    """Measure.

    Args:
        seed, device: As for `pretrain`.
        precision: As for `load`.
            Measurements use it too.

    Raises:
        ValueError: Never.
    """
'''
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    entries = documented(function)
    assert list(entries) == ["seed", "device", "precision"]
    assert (entries["seed"], entries["device"]) == ("Random seed.", "auto, cpu, cuda or cuda:N.")
    command_line, _, python = entries["precision"].partition(" In Python")
    assert command_line.endswith("Measurements use it too.")
    assert "PrecisionWarning" in python


@pytest.mark.parametrize("name", ["show", "diff", "size"])
def test_every_subcommand_of_recipes_is_a_function(name: str) -> None:
    group: Any = get_command(importlib.import_module("maskwright.cli.inspection.recipes").command)
    assert set(group.commands) == {"show", "diff", "size"}
    function = getattr(maskwright.recipes, name)
    assert set(inspect.signature(function).parameters) == _options(group.commands[name])


def test_functions_of_recipes_return_values() -> None:
    assert "bert/base" in maskwright.recipes.names()
    assert maskwright.recipes.show("bert/tiny", set=["masking.rate=0.3"]).masking.rate == 0.3
    (line,) = maskwright.recipes.diff("bert/tiny", "bert/tiny", set=["masking.rate=0.3"])
    assert (line.path, line.left, line.right) == ("masking.rate", "15 %", "30 %")
    assert maskwright.recipes.size("bert/base").encoder_and_pooler == 109_482_240
    first, second = maskwright.recipes.size("bert/base", "bert/base", set=["encoder.num_layers=6"])
    assert first.parts["attention"] == 2 * second.parts["attention"]


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'pretrian'"):
        maskwright.pretrian  # noqa: B018


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, maskwright; sys.exit(','.join({'torch', 'numpy', 'pydantic'} & set(sys.modules)) or 0)"
    subprocess.run([sys.executable, "-c", code], check=True)
