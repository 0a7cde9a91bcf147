"""Extension of griffe for the API page: describe each parameter by itself, as the help of its command does.

Groups of parameters are split, and "As for `pretrain`." is replaced by what that function says.
"""

import ast
from typing import Any

import griffe

import maskwright
from maskwright.cli.options import documented


class Arguments(griffe.Extension):
    """Rewrites the section `Args:` of the functions of the package."""

    def on_function_instance(self, *, node: Any, func: griffe.Function, **_: Any) -> None:
        """Rewrite the docstring of a function."""
        if not isinstance(node, ast.FunctionDef) or func.name not in maskwright.__all__ or func.docstring is None:
            return
        before, _, rest = func.docstring.value.partition("\nArgs:\n")
        if rest:
            entries = [f"    {name}: {text}" for name, text in documented(node).items()]
            func.docstring.value = "\n".join([before, "Args:", *entries, "", rest.partition("\n\n")[2]])
