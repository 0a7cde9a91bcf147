"""A small corpus and the settings of a run that takes a second."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from maskwright.training.reporting import Reporter

SUBJECTS = ("the cat", "a dog", "my sister", "the old captain", "our teacher", "the river")
VERBS = ("watches", "follows", "remembers", "paints", "likes", "crosses")
OBJECTS = ("the garden", "a red house", "the long road", "some bread", "the quiet sea", "an open door")

TOY = (
    "encoder.hidden_size=32",
    "encoder.num_heads=2",
    "encoder.num_layers=2",
    "encoder.intermediate_size=64",
    "tokenizer.vocab_size=300",
    "training.batch_sequences=8",
    "training.learning_rate=0.01",
    'training.phases=[{"share": 0.5, "max_length": 16}, {"share": 0.5, "max_length": 32}]',
)


def write_corpus(path: Path, documents: int = 60, seed: int = 0) -> Path:
    """Write documents of simple sentences with a grammar that a tiny model can learn."""
    draw = np.random.default_rng(seed)
    texts = []
    for _ in range(documents):
        sentences = [
            f"{SUBJECTS[a].capitalize()} {VERBS[(a + b) % 6]} {OBJECTS[b]}."
            for a, b in draw.integers(0, 6, (int(draw.integers(3, 12)), 2))
        ]
        texts.append(" ".join(sentences))
    path.write_text("\n\n".join(texts), encoding="utf-8")
    return path


class Listening(Reporter):
    """Collects messages; a table as one message a row."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def say(self, topic: str, text: str) -> None:
        self.lines.append((topic, text))

    def tabulate(self, topic: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        self.lines += [(topic, " | ".join(row)) for row in rows]

    def on(self, topic: str, word: str = "") -> list[str]:
        """Return the messages of a topic that contain a word."""
        return [text for about, text in self.lines if about == topic and word in text]
