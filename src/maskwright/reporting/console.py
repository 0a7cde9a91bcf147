"""Consoles: everything that is printed, and the messages and progress line of a run."""

import contextlib
import sys
import time
from collections.abc import Iterable
from typing import IO, Any, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.segment import Segment
from rich.table import Table as RichTable
from rich.text import Text

from maskwright.reporting.reporter import Reporter
from maskwright.reporting.table import Table

_TRAINING = "training"

CONTROL_SYMBOLS = {
    **{code: code + 0x2400 for code in range(0x20) if chr(code) not in "\t\n"},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
}
"""For `str.translate`: control characters to symbols ("\u241b" for an escape), those from 0x80 to U+FFFD."""


class SafeConsole(Console):
    """A console that prints control characters as symbols.

    Texts, file names and vocabularies may contain escape sequences, which can change a terminal or its clipboard.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of anything that is printed."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=segment.text.translate(CONTROL_SYMBOLS))


class ConsoleReporter(Reporter):
    """Lines and a progress bar on a console (standard error by default).

    If the console is not a terminal (a log file), the bar becomes lines: the first and last state of each preparation
    stage, and one every 30 seconds.
    """

    _QUIET_SECONDS = 30.0

    def __init__(self, console: Console | None = None) -> None:
        # A log file has no width; rich would fold its lines at 80 columns.
        width = None if sys.stderr.isatty() else 160
        self.console = console or SafeConsole(file=cast(IO[str], _SafeStderr()), highlight=False, width=width)
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._name = ""
        self._printed = 0.0
        self._unprinted = ""  # The latest state of a preparation stage, if it is not printed yet.

    def message(self, topic: str, text: str) -> None:
        """Print a line: the topic in one column, the text wrapped beside it."""
        self._print(topic, Text(text))

    def table(self, topic: str, table: Table) -> None:
        self._print(topic, table.terminal(plain=True))

    def _print(self, topic: str, content: RenderableType) -> None:
        self._print_last_state()
        grid = RichTable.grid(padding=(0, 1))
        grid.add_column(width=10, style="bold cyan", no_wrap=True)
        grid.add_column(overflow="fold")
        grid.add_row(topic, content)
        self.console.print(grid)

    def stage(self, name: str, done: int, total: int | None) -> None:
        """Show a stage of preparation; its name ends in the unit that is counted, "scoring (tokens)"."""
        name, _, unit = name.removesuffix(")").partition(" (")
        if unit == "bytes":
            counted = f"{done / 1e6:,.1f} of {total / 1e6:,.1f} MB" if total else f"{done / 1e6:,.1f} MB"
        else:
            counted = (f"{done:,} of {total:,} {unit}" if total else f"{done:,} {unit}").rstrip()
        self._show(name, done / total if total else None, counted)

    def training(self, share: float, text: str) -> None:
        self._show(_TRAINING, share, text)

    def _show(self, name: str, share: float | None, text: str) -> None:
        if not self.console.is_terminal:
            self._show_plain(name, share, text)
            return
        if self._bar is None or self._name != name:
            self.close()
            self._bar = Progress(
                TextColumn("{task.description}", style="bold cyan"),
                BarColumn(bar_width=20),
                TextColumn("{task.percentage:>3.0f}%"),
                TextColumn("{task.fields[text]}"),
                console=self.console,
                transient=True,
                refresh_per_second=4,
            )
            self._bar.start()
            self._task = self._bar.add_task(f"{name:<10}", total=1.0 if share is not None else None, text=text)
            self._name = name
        assert self._task is not None
        self._bar.update(self._task, completed=share or 0.0, text=text)
        if share is not None and share >= 1 and name != _TRAINING:
            self.close()

    def _show_plain(self, name: str, share: float | None, text: str) -> None:
        if name != self._name:
            self._print_last_state()
        now = time.monotonic()
        line = f"{name}{'' if share is None else f' {share:.0%}'}  {text}"
        if name != self._name or now - self._printed >= self._QUIET_SECONDS:
            self._printed, self._name, self._unprinted = now, name, ""
            self.console.print(line, soft_wrap=True)
        elif name != _TRAINING:
            self._unprinted = line

    def _print_last_state(self) -> None:
        if self._unprinted:
            self.console.print(self._unprinted, soft_wrap=True)
            self._unprinted = ""

    def close(self) -> None:
        """Remove the progress bar; without a terminal, print the last state of the stage."""
        self._print_last_state()
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
            self._name = ""


class _SafeStderr:
    """Standard error, whose end (`2>&1 | head`, a terminal that is gone) stops no run."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)
