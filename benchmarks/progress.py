"""Where a row is: one line on the terminal, written over again and again; nothing where nobody looks."""

import sys


def tell(text: str) -> None:
    """Show a few words in place of those before; "" takes them away."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
