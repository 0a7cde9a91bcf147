"""The console that everything is printed with."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

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
