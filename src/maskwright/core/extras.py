"""Optional libraries, which the extras of the package bring."""

import importlib.util

from maskwright.core.errors import MaskwrightError


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
