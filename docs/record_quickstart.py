"""Record `maskwright quickstart` as docs/quickstart.svg: python docs/record_quickstart.py [MINUTES]."""

import contextlib
import os
import re
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from maskwright.cli import main, output
from maskwright.reporting import console as consoles


def record(minutes: str) -> str:
    """Return the output as SVG, with system fonts."""
    console = Console(record=True, width=112, highlight=False, force_terminal=False, file=sys.stderr)
    output._console = lambda stream: console
    consoles.SafeConsole = lambda **_: console
    console.print(Text.assemble(("$ ", "bold green"), "maskwright quickstart"))
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(SystemExit):
        os.chdir(folder)
        main.main(["quickstart", "--minutes", minutes])
    svg = console.export_svg(title="maskwright quickstart")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


if __name__ == "__main__":
    target = Path(__file__).resolve().with_name("quickstart.svg")
    target.write_text(record(*sys.argv[1:] or ["3.5"]), encoding="utf-8")
