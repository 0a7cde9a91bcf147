"""Optional libraries, which the extras of the package bring."""

import importlib
import importlib.util
from typing import Any

from maskwright.core.errors import DataError, MaskwrightError, first_line


def install(extra: str) -> str:
    """Return the command that adds an extra to an installed maskwright, from a wheel or a checkout."""
    return f'`pip install "maskwright[{extra}]"`'


def require(what: str, extra: str, *libraries: str) -> None:
    """Raise MaskwrightError if a library that `what` needs is not installed."""
    for library in libraries:
        if importlib.util.find_spec(library) is None:
            raise MaskwrightError(
                f"{what} needs {library}, which is not installed", hint=f"Install the extra: {install(extra)}"
            )


def imported(module: str, purpose: str, extra: str, *, otherwise: str = "", package: str = "") -> Any:
    """Import a module of an optional library, which is part of an extra.

    Args:
        purpose: What needs the library: the beginning of the error message.
        otherwise: Another remedy than to install it.
        package: The name that pip knows it by, if not the module's.

    Raises DataError if it or a dependency is not installed or cannot be loaded.
    """
    package = package or module
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = package if error.name in (None, module) else error.name
        hint = f"Install it: {install(extra)}"
        hint += f", or {otherwise}." if otherwise else "."
        raise DataError(f"{purpose} needs the package {missing}, which is not installed", hint=hint) from error
    except Exception as error:  # A library built for other versions of its dependencies may raise anything.
        raise DataError(
            f"{purpose} needs the package {package}, which is installed but cannot be loaded "
            f"({type(error).__name__}: {first_line(error)})",
            hint=f"Reinstall it with compatible dependencies: `pip install --force-reinstall {package}`.",
        ) from error
