"""What a segmenter is: something that cuts runs of Chinese characters into words, behind one small protocol."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from maskwright.data.libraries import imported

_REMEDIES = {"rjieba": "`pip install 'maskwright[zh]'`"}


class TaggedWords(NamedTuple):
    """Words and their parts of speech.

    Attributes:
        words: All words, in order; they join to the text that was cut.
        tags: For each word, its part of speech in the segmenter's own names.
    """

    words: list[str]
    tags: list[str]


class Segmenter(Protocol):
    """Cuts runs of Chinese characters into words. Runs do not see each other."""

    @property
    def entity_tags(self) -> tuple[str, ...]:
        """What the tags of names of people, places, organisations and other proper nouns begin with."""

    def cut(self, runs: Sequence[str]) -> list[str]:
        """Return the words of all runs, one run after the other; they join to the runs joined."""

    def tag(self, runs: Sequence[str]) -> TaggedWords:
        """Return the words of all runs with their parts of speech; the words may differ from those of `cut`."""


def library(name: str) -> Any:
    """Import the library of a segmenter.

    Raises:
        DataError: If it is not installed, or fails on import.
    """
    package = name.partition(".")[0]
    todo = _REMEDIES.get(package, f"`pip install {package}`, or choose words.segmenter=rjieba")
    return imported(name, package=package, purpose=f"the segmenter {package!r}", todo=f"Install it: {todo}.")


def joined_or_single(run: str, words: Sequence[str]) -> list[str]:
    """Return the words of a run if they join to it, else its single characters.

    Libraries that normalise text may give back another; then nothing is known of the run's words (BERT-wwm did the
    same: Chinese-BERT-wwm, issue 13).
    """
    return list(words) if "".join(words) == run else list(run)


def tagged_or_single(run: str, words: Sequence[str], tags: Sequence[str]) -> TaggedWords:
    """Return the words of a run with their tags if they join to it, else its single characters without (see above)."""
    kept = joined_or_single(run, words)
    return TaggedWords(kept, list(tags) if kept == list(words) else [""] * len(kept))
