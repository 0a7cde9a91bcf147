"""What a row is told: how much to measure, on what, and where to keep things meanwhile."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the command line asked for.

    Attributes:
        scratch: A folder for models and shards; it is removed afterwards.
        quick: Tiny settings that show that a row works; its figures mean nothing.
        rounds: Timed rounds; None takes each row's own number.
        sizes: Names of the model sizes to measure; empty for all of a row.
        vocabulary: Entries of the vocabulary; None takes each size's own.
        corpus: A text file whose documents are used instead of made ones; None makes them.
        labelled: Folder of published labelled sets (`score_sets`) for the rows of fine-tuning; None makes examples.
        model: A pretrained model to fine-tune; None draws weights.
        seed: Keys weights, texts and masks.
        keeps_memory: Whether the C library was told to keep freed memory, on every side.
    """

    scratch: Path
    quick: bool = False
    rounds: int | None = None
    sizes: tuple[str, ...] = ()
    vocabulary: int | None = None
    corpus: Path | None = None
    labelled: Path | None = None
    model: Path | None = None
    seed: int = 0
    keeps_memory: bool = False

    def rounds_or(self, usual: int) -> int:
        """Return how many rounds to time.

        Args:
            usual: The row's own number.
        """
        return self.rounds or (2 if self.quick else usual)
