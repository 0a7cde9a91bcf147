"""Real text that every machine has: the docstrings of its Python installation; and made text of any size."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.settings import Settings
from maskwright.data.cleaning.store import clean_corpus

_MEGABYTES, _QUICK_MEGABYTES = 20.0, 0.3
_WORDS, _LETTERS = 60_000, "etaoinshrdlucmfwypvbgkjqxz"


def prose(settings: Settings) -> Path:
    """Return a text file with a blank line between documents: the one asked for, or docstrings.

    Args:
        settings: With tiny settings a few hundred kilobytes.
    """
    if settings.corpus is not None and not settings.quick:
        return settings.corpus
    source = settings.corpus or "docstrings"
    path = settings.scratch / "prose.txt"
    if not path.exists():
        # The usual cache: the docstrings of an installation take a minute to collect, and quickstart wants them too.
        clean = clean_corpus([source])
        limit = 1e6 * (_QUICK_MEGABYTES if settings.quick else _MEGABYTES)
        with open(path, "w", encoding="utf-8") as file:
            for document in itertools.chain.from_iterable(clean.sentences(block) for block in range(len(clean.blocks))):
                file.write("\n".join(sentence.strip() for sentence in document) + "\n\n")
                if file.tell() > limit:
                    break
    return path


def documents(path: Path) -> list[str]:
    """Read a text file's documents as they are."""
    return [document for document in path.read_text(encoding="utf-8").split("\n\n") if document.strip()]


def write_made_text(path: Path, megabytes: float, seed: int) -> None:
    """Write documents of made words, as frequent as Zipf's law has them; no two documents are alike.

    Args:
        path: The file.
        megabytes: Its size, roughly.
        seed: Keys it.
    """
    with open(path, "w", encoding="utf-8") as file:
        for document in _made_documents(seed):
            file.write(document + "\n\n")
            if file.tell() > 1e6 * megabytes:
                return


def _made_documents(seed: int) -> Iterator[str]:
    draws = np.random.default_rng([seed, 4])
    words = ["".join(draws.choice(list(_LETTERS[:12] * 2 + _LETTERS), draws.integers(2, 10))) for _ in range(_WORDS)]
    bounds = np.cumsum(1 / (np.arange(_WORDS) + 3.7))
    bounds /= bounds[-1]
    while True:
        sentences = []
        for _ in range(int(draws.integers(2, 30))):
            chosen = np.searchsorted(bounds, draws.random(int(draws.integers(4, 25))))
            sentence = " ".join(words[min(number, _WORDS - 1)] for number in chosen)
            sentences.append(sentence.capitalize() + ".")
        yield "\n".join(sentences)
