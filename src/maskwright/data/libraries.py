"""Import of optional libraries, with one error message for missing and broken ones."""

from importlib import import_module
from typing import Any

from maskwright.core.errors import DataError
from maskwright.core.extras import install


def imported(module: str, purpose: str, extra: str, *, otherwise: str = "", package: str = "") -> Any:
    """Import a module of an optional library, which is part of an extra.

    Args:
        purpose: What needs the library: the beginning of the error message.
        otherwise: Another remedy than to install it.
        package: The name that pip knows it by, if not the module's.

    Raises:
        DataError: If it or a dependency is not installed or cannot be loaded.
    """
    package = package or module
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = package if error.name in (None, module) else error.name
        hint = f"Install it: {install(extra)}"
        hint += f", or {otherwise}." if otherwise else "."
        raise DataError(f"{purpose} needs the package {missing}, which is not installed", hint=hint) from error
    except Exception as error:  # A library built for other versions of its dependencies may raise anything.
        reason = (str(error).strip().splitlines() or [""])[0]
        raise DataError(
            f"{purpose} needs the package {package}, which is installed but cannot be loaded "
            f"({type(error).__name__}: {reason})",
            hint=f"Reinstall it with compatible dependencies: `pip install --force-reinstall {package}`.",
        ) from error
