"""The command `maskwright`: a table of subcommands, each imported only when it is called.

A subcommand is one line in `SUBCOMMANDS` and one module `cli/<panel>/<name>.py` with the attribute `command`, which is
a function (the docstring is the help) or, for a group of subcommands, a `typer.Typer`. A subcommand's module

- gets its arguments from the Python function of the same name (`options.arguments_of`);
- imports at the top only what imports neither PyTorch nor NumPy, and everything else inside the function, so that
  `--help` is fast;
- calls the library and prints the result with `output`;
- lets `MaskwrightError` propagate: it is printed here as one line on standard error with exit code 2 (with
  MASKWRIGHT_DEBUG=1, as a traceback). So is an error of the system: no memory, a full disk, a path too long. An
  interrupt exits with 130, a closed pipe silently.
"""

import importlib
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from maskwright.core.errors import MaskwrightError


@dataclass(frozen=True, slots=True)
class Subcommand:
    """One line of `maskwright --help`: a help, and the heading of its group."""

    help: str
    panel: str


_TRAIN, _USE, _SEE = "Training", "Inference", "Inspection"

SUBCOMMANDS: Mapping[str, Subcommand] = MappingProxyType(
    {
        "quickstart": Subcommand("Train and try a small model on text already on this machine.", _TRAIN),
        "pretrain": Subcommand("Pretrain an encoder on a corpus; run again to resume.", _TRAIN),
        "prepare": Subcommand("Clean and tokenize a corpus ahead of training, also on a cluster.", _TRAIN),
        "finetune": Subcommand("Fine-tune a model on labeled examples and evaluate it.", _TRAIN),
        "compare": Subcommand("Compare recipes on your text with equal spend, seeds and statistics.", _TRAIN),
        "plan": Subcommand("Say what fits a budget of time on this machine, and what to expect.", _TRAIN),
        "fill-mask": Subcommand("Predict the masked tokens of a text.", _USE),
        "detect": Subcommand("Mark tokens of a text that look replaced (ELECTRA).", _USE),
        "embed": Subcommand("Compute sentence embeddings.", _USE),
        "predict": Subcommand("Predict with a fine-tuned model.", _USE),
        "evaluate": Subcommand("Evaluate a fine-tuned model on labeled examples.", _USE),
        "serve": Subcommand("Serve models by HTTP, with a playground page.", _USE),
        "export": Subcommand("Write a model for ONNX Runtime, OpenVINO, sentence-transformers or the hub.", _USE),
        "push": Subcommand("Upload an exported model to the model hub.", _USE),
        "recipes": Subcommand("List, show, compare and size the recipes of the published systems.", _SEE),
        "show": Subcommand("Show how a recipe masks a text, in color.", _SEE),
        "doctor": Subcommand("Describe this machine and what training uses of it, or explain a run.", _SEE),
    }
)


_DISTRIBUTED = ("pretrain", "finetune", "compare")
"""Subcommands that may be started by torchrun."""


def load(name: str) -> Any:
    """Import a subcommand's module and return its command."""
    module = importlib.import_module(f"maskwright.cli.{SUBCOMMANDS[name].panel.lower()}.{name.replace('-', '_')}")
    command = module.command
    if isinstance(command, typer.Typer):
        group = get_command(command)
        group.name = name
        return group
    app = typer.Typer(add_completion=False)
    app.command(name)(command)
    return get_command(app)


# The base class of typer's usage errors, which typer does not export.
_UsageError: Any = typer.BadParameter.__mro__[1]
_SYNONYMS = {"model": "recipe", "gpu": "device", "output": "out", "output-dir": "out", "fp16": "precision"}


def _suggest(error: Any) -> None:
    """Replace the suggestions for an unknown option: click compares the dashes too, "--model" with "--help"."""
    import difflib

    command, name = error.ctx.command, error.option_name.lstrip("-")
    options = [option[2:] for parameter in command.params for option in parameter.opts if option.startswith("--")]
    synonym = _SYNONYMS.get(name)
    similar = [synonym] if synonym in options else difflib.get_close_matches(name, options, cutoff=0.65)
    error.possibilities = [f"--{option}" for option in similar]
    if any(parameter.name == name and not parameter.opts[0].startswith("-") for parameter in command.params):
        error.message += f". {name} is an argument without a name: {error.ctx.command_path} {name.upper()} ..."
        error.possibilities = []
    elif not error.possibilities and (field := _field(command.name, name.replace("-", "_"))):
        error.message += f". Use --set {field}=VALUE"


def _field(command: str, name: str) -> str | None:
    """Return the field that a name below `--set` probably means."""
    if command == "finetune":
        from maskwright.core.errors import nearest
        from maskwright.finetuning.hyperparameters import Hyperparameters

        return nearest(name, Hyperparameters.model_fields)
    if command in ("pretrain", "show"):
        from maskwright.core.fields import suggest_path
        from maskwright.recipes.recipe import Recipe

        return Recipe.synonyms.get(name) or suggest_path(name, "", list(Recipe.model_fields), Recipe)
    return None


class LazyGroup(TyperGroup):
    """A group that imports a subcommand only to run it."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, verb in SUBCOMMANDS.items():
            self.add_command(TyperCommand(name, help=verb.help, rich_help_panel=verb.panel))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return (name, command, remaining arguments); for an unknown name, suggest the nearest."""
        name, command, remaining = super().resolve_command(ctx, args)
        if name not in _DISTRIBUTED and _is_distributed():
            if os.environ["RANK"] != "0":
                sys.exit(2)
            raise MaskwrightError(
                f"torchrun started {os.environ['WORLD_SIZE']} processes, and `{name}` uses one",
                allowed=", ".join(_DISTRIBUTED) + " under torchrun",
                hint=f"Use `maskwright {name} ...` instead.",
            )
        return name, command if name is None else load(name), remaining

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand; improve the messages of usage errors and EOFError."""
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            if _is_distributed() and os.environ["RANK"] != "0":  # All processes find it, and the first prints it.
                sys.exit(2)
            if hasattr(error, "possibilities"):  # Only the error for an unknown option has them.
                _suggest(error)
            # Typer's check of allowed values passes pydantic's prefix on.
            error.message = error.message.replace("Value error, ", "")
            raise
        except EOFError as error:  # click takes it for the end of a user's input, and prints "Aborted." alone.
            raise MaskwrightError(
                f"a file is empty or ends too early: {error or 'nothing says which'}",
                hint="MASKWRIGHT_DEBUG=1 before the command shows where it is read.",
            ) from error


def _print_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        print(f"maskwright {version('maskwright')}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Train, evaluate and ship your own BERT-family encoder."""


def build() -> Any:
    app = typer.Typer(
        cls=LazyGroup,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog="New here? `maskwright quickstart` trains a small model on text that this machine already has.",
    )
    app.callback()(_root)
    return get_command(app)


def _is_distributed() -> bool:
    """Return whether torchrun started this process and others."""
    return "TORCHELASTIC_RUN_ID" in os.environ and os.environ["WORLD_SIZE"] != "1"


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning in one line, without the line of code that it comes from."""
    from maskwright.cli import output

    output.warn(str(message))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit.

    Args:
        arguments: Command-line arguments; None for those of this process.
    """
    warnings.showwarning = _show_warning
    try:
        try:
            build().main(args=arguments, prog_name="maskwright")
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # What fails at the end of the process is only printed.
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        problem = error if isinstance(error, MaskwrightError) else _of_system(error)
        if os.environ.get("MASKWRIGHT_DEBUG") or problem is None:
            raise
        from maskwright.cli import output

        output.fail(str(problem))
        if isinstance(error, OSError):  # Else what is left of the output fails again.
            sys.stdout = None
        sys.exit(2)


_NO_MEMORY = (
    *("not enough memory", "Cannot allocate memory", "failed to map segment", "bad_alloc", "can't start new thread"),
)
_LONGEST_PATH = 100


def _of_system(error: Exception) -> MaskwrightError | None:
    """Return the error that says what the system refused, memory or a file; None for other errors."""
    if isinstance(error, MemoryError) or any(sign in str(error) for sign in _NO_MEMORY):
        # Libraries that cannot be loaded or allocate in C++ say it in their own errors.
        return MaskwrightError(
            f"there is not enough memory ({': '.join(filter(None, (type(error).__name__, str(error))))})",
            hint="Close other programs, raise the limit of this one (`ulimit -v`), or choose a smaller model or batch",
        )
    if not isinstance(error, OSError) or error.errno is None:
        return None
    if error.filename is None:
        return MaskwrightError(f"cannot read or write: {error.strerror}", hint="Check where the output goes")
    path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else str(error.filename)
    if len(path) > _LONGEST_PATH:
        path = f"{path[:_LONGEST_PATH]}... ({len(path):,} characters)"
    return MaskwrightError(f"cannot use {path!r}: {error.strerror}", hint="Check the path")
