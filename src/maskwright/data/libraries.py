"""Import of optional libraries, with one error message for missing and broken ones."""

from importlib import import_module
from typing import Any

from maskwright.core.errors import DataError


def imported(module: str, *, package: str, purpose: str, todo: str) -> Any:
    """Import a module of an optional library. It is really imported, so that a broken one is not found out later.

    Args:
        todo: How to install it, or to do without.

    Raises:
        DataError: If it, or something that it needs, is not installed; or if it is, and cannot be loaded.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = package if error.name in (None, module) else error.name
        raise DataError(f"{purpose} needs the package {missing}, which is not installed", todo=todo) from error
    except Exception as error:  # A library built for another version of its own libraries may raise anything.
        reason = (str(error).strip().splitlines() or [""])[0]
        raise DataError(
            f"{purpose} needs the package {package}, which is installed but cannot be loaded "
            f"({type(error).__name__}: {reason})",
            todo=f"Install it anew, in versions that go together: `pip install --force-reinstall {package}`.",
        ) from error
