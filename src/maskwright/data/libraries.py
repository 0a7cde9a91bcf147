"""Import of optional libraries, with one error message for missing and broken ones."""

from importlib import import_module
from typing import Any

from maskwright.core.errors import DataError


def imported(module: str, *, package: str, purpose: str, todo: str) -> Any:
    """Import a module of an optional library; `todo` says how to install or avoid it.

    Raises:
        DataError: If it or a dependency is not installed or cannot be loaded.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = package if error.name in (None, module) else error.name
        raise DataError(f"{purpose} needs the package {missing}, which is not installed", todo=todo) from error
    except Exception as error:  # A library built for other versions of its dependencies may raise anything.
        reason = (str(error).strip().splitlines() or [""])[0]
        raise DataError(
            f"{purpose} needs the package {package}, which is installed but cannot be loaded "
            f"({type(error).__name__}: {reason})",
            todo=f"Reinstall it with compatible dependencies: `pip install --force-reinstall {package}`.",
        ) from error
