"""The command `maskwright`: a table of verbs, each imported only when it is called.

A verb is one line in `VERBS` and one module `cli/<module>.py` with a name `command`, which is a function with
typer's annotations (`Annotated[..., typer.Option(...)]`; the docstring is the help) or, for a verb with verbs
of its own, a `typer.Typer`; a class `Command` beside it may parse its words. A verb's module

- imports only typer, `cli.output` and the standard library at its top, and what it calls inside the function,
  so that `--help` answers at once everywhere;
- holds no logic: options in, one call, results to `output`;
- lets `MaskwrightError` rise: it ends here as one line on standard error and exit code 2 (where
  MASKWRIGHT_DEBUG=1, as a traceback). An interrupt ends with 130, a closed pipe quietly.
"""

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from maskwright.core.errors import MaskwrightError


@dataclass(frozen=True, slots=True)
class Verb:
    """One line of `maskwright --help`.

    Attributes:
        module: Name of the module in `maskwright.cli`.
        help: What the verb does, in one line.
        panel: The heading under which it stands.
    """

    module: str
    help: str
    panel: str


_TRAIN, _USE, _SEE = "Train", "Use", "See"

VERBS: Mapping[str, Verb] = MappingProxyType(
    {
        "quickstart": Verb("quickstart", "Train and try a small model on text already on this machine.", _TRAIN),
        "pretrain": Verb("pretrain", "Train an encoder on a corpus; run again to resume.", _TRAIN),
        "finetune": Verb("finetune", "Fine-tune a model on labelled examples and measure it.", _TRAIN),
        "fill-mask": Verb("fill_mask", "Let a trained model fill the blanks of a text.", _USE),
        "detect": Verb("detect", "Mark the tokens of a text that look replaced (ELECTRA).", _USE),
        "embed": Verb("embed", "Turn texts into vectors with a trained model.", _USE),
        "predict": Verb("predict", "Let a fine-tuned model predict.", _USE),
        "evaluate": Verb("evaluate", "Measure a fine-tuned model on labelled examples.", _USE),
        "recipes": Verb("recipes", "List, show, compare and size the papers' recipes.", _SEE),
        "show": Verb("show", "Show what a recipe does to a text, in colour.", _SEE),
        "doctor": Verb("doctor", "Say what this machine can do, what training uses on it, what would help.", _SEE),
    }
)


def load(name: str) -> Any:
    """Import a verb's module and return its command, ready to be called."""
    module = importlib.import_module(f"maskwright.cli.{VERBS[name].module}")
    command = module.command
    if isinstance(command, typer.Typer):
        group = get_command(command)
        group.name = name
        return group
    alone = typer.Typer(add_completion=False)
    alone.command(name, cls=getattr(module, "Command", None))(command)
    return get_command(alone)


class LazyGroup(TyperGroup):
    """A group that knows its verbs by name and help line, and imports one only to run it."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, verb in VERBS.items():
            self.add_command(TyperCommand(name, help=verb.help, rich_help_panel=verb.panel))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return (name, command, remaining arguments); an unknown name is answered with the nearest."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None else load(name), rest


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"maskwright {version('maskwright')}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Train, measure and ship your own encoder: the BERT family as recipes."""


def build() -> Any:
    """Build the command tree."""
    app = typer.Typer(
        cls=LazyGroup,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog="New here? `maskwright quickstart` trains a small model on text this machine already has.",
    )
    app.callback()(_root)
    return get_command(app)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit.

    Args:
        arguments: Words after the program's name; None takes those of this process.
    """
    try:
        build().main(args=arguments, prog_name="maskwright")
    except MaskwrightError as error:
        if os.environ.get("MASKWRIGHT_DEBUG"):
            raise
        from maskwright.cli import output

        output.fail(str(error))
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
