"""A reporter that records messages."""

from maskwright.reporting.reporter import Reporter
from maskwright.reporting.table import Table


class Recorder(Reporter):
    """Records messages, the rows of tables as messages, and texts of progress."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str]] = []
        self.progress: list[str] = []

    def message(self, topic: str, text: str) -> None:
        self.messages.append((topic, text))

    def table(self, topic: str, table: Table) -> None:
        self.messages += [(topic, " | ".join(map(str, row))) for row in table.rows]

    def stage(self, name: str, done: int, total: int | None) -> None:
        self.progress.append(f"{name} {done} of {total}")

    def training(self, share: float, text: str) -> None:
        assert 0 <= share <= 1
        self.progress.append(text)

    def on(self, topic: str, word: str = "") -> list[str]:
        """Return the messages of a topic that contain a word."""
        return [text for about, text in self.messages if about == topic and word in text]

    def text(self) -> str:
        """Return all messages."""
        return "\n".join(f"{topic} {text}" for topic, text in self.messages)
