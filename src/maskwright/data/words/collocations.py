"""Collocations: word n-grams that occur together far more often than chance.

PMI-masking (Levine et al. 2021, whose list is described in AI21Labs/pmi-masking, README.md): word n-grams of 2 to 5
words that occur more than 10 times are ranked, each length separately, by

    min over all segmentations of the n-gram of   log (p(n-gram)^2 / product of p(part))

so that a long n-gram does not count as a phrase because of a shorter one in it. Half of the list are two words long, a
quarter three, an eighth four and an eighth five, at most 800,000 in all.

DEVIATION: a small corpus has fewer good phrases than any fixed number; here an n-gram must also reach a normalized
pointwise mutual information (Bouma 2009) of `_MIN_NPMI` over every segmentation.

DEVIATION: an n-gram neither begins nor ends with a connector ("of the", "such as"), and crosses no punctuation and no
number.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskwright.core.spec import fingerprint
from maskwright.core.storage.files import write_text
from maskwright.core.types import BoolArray
from maskwright.data.cache import open_or_build
from maskwright.data.cleaning.store import CleanCorpus
from maskwright.data.scripts import HAN_CLASS, is_han
from maskwright.data.tokenizers.word_starts import JOINERS
from maskwright.data.words.segmenters import Segmenter, open_segmenter, segmenter_fingerprint
from maskwright.data.words.spec import Words
from maskwright.reporting.reporter import Progress, no_progress

_HAN = re.compile(f"[{HAN_CLASS}]")
_HAN_OR_NOT = re.compile(f"[{HAN_CLASS}]+|[^{HAN_CLASS}]+")
_NUMBER = re.compile(r"[\d_]+")
_END = "\n"


@dataclass(frozen=True, slots=True)
class RunningText:
    """A text as numbers of words. W words and breaks.

    Attributes:
        ids: Shape (W,), int64: the number of each word; -1 for a break: punctuation, a number, a sentence's end.
        spaced: Shape (W,), whether a space precedes it.
        names: The distinct words in lower case.
    """

    ids: NDArray[np.int64]
    spaced: BoolArray
    names: list[str]

    def surface(self, start: int, length: int) -> str:
        """Return some neighboring words as written."""
        positions = range(start, start + length)
        written = [(" " if self.spaced[each] else "") + self.names[self.ids[each]] for each in positions]
        return "".join(written).removeprefix(" ")


def running_text(sentences: Iterable[str], segmenter: Segmenter | None) -> RunningText:
    """Cut sentences into words; without a segmenter Chinese characters are words."""
    find = _pieces().findall
    numbers: dict[str, int] = {}
    ids = [np.zeros(0, dtype=np.int32)]
    spaced = [np.zeros(0, dtype=np.bool_)]
    iterator = iter(sentences)
    while batch := list(islice(iterator, _SENTENCES_AT_ONCE)):
        pieces = [piece for sentence in batch for piece in (*find(sentence.lower()), _END)]
        pieces = _with_words(pieces, segmenter)
        words = [piece.removeprefix(" ") for piece in pieces]
        numbered = [
            numbers.setdefault(word, len(numbers)) if word[0].isalnum() and not _NUMBER.fullmatch(word) else -1
            for word in words
        ]
        ids.append(np.array(numbered, dtype=np.int32))
        spaced.append(np.fromiter((piece[0] == " " for piece in pieces), dtype=np.bool_, count=len(pieces)))
    return RunningText(np.concatenate(ids).astype(np.int64), np.concatenate(spaced), list(numbers))


def _with_words(pieces: list[str], segmenter: Segmenter | None) -> list[str]:
    """Segment the runs of Han characters in pieces; a space before a run belongs to its first word."""
    parts = [part for piece in pieces for part in (_HAN_OR_NOT.findall(piece) if _HAN.search(piece) else (piece,))]
    runs = [part for part in parts if _HAN.match(part)]
    if not runs:
        return pieces
    words = iter(segmenter.cut(runs) if segmenter else "".join(runs))
    cut: list[str] = []
    space = ""
    for part in parts:
        if part == " ":
            space = part
        elif not _HAN.match(part):
            cut.append(part)
        else:
            length = 0
            while length < len(part):
                word = next(words)
                length += len(word)
                cut.append(space + word)
                space = ""
    return cut


@cache
def _pieces() -> re.Pattern[str]:
    """Return a pattern of words with the space before them, and single other characters.

    Words include combining marks (Devanagari's vowels), apostrophes and hyphens (don't, co-operate).
    """
    marks = "".join(chr(code) for code in range(0x300, 0x10000) if unicodedata.category(chr(code))[0] == "M")
    part = f"[\\w{marks}{JOINERS}]+"
    return re.compile(f" ?{part}(?:['’-]{part})*|[^ ]")


# Raise it with every change of what the same corpus gives.
_VERSION = 1
_LONGEST = 5
_OVER = 10
_MOST = 800_000
_SHARES = {2: 0.5, 3: 0.25, 4: 0.125, 5: 0.125}
_MIN_NPMI = 0.3

_SAMPLE_BYTES = 1 << 25
_SAMPLE_SEED = 0
_SENTENCES_AT_ONCE = 4096
_FILE = "collocations.txt"
_EXAMPLES = 8

# Short words as common as this are connectors in any language (и, в, की, 的). They occur only inside phrases ("state
# of the art"). A common word of a domain ("linux") is longer, a common short one ("new") rarer.
_CONNECTOR_SHARE = 0.003
_CONNECTOR_CHARACTERS = 3
# Those of English: its articles, pronouns, auxiliaries, prepositions, conjunctions and common adverbs.
_ENGLISH = (
    "a about above after again against all also although am among an and another any are around as at be because been "
    "before behind being below between both but by can could did do does doing done down during each either else even "
    "ever every few for from had has have having he her here hers herself him himself his how i if in into is it its "
    "itself just less like many may me might mine more most much must my myself neither never no none nor not nothing "
    "now of off on once only onto or other others our ours ourselves out over own per perhaps quite rather same shall "
    "she should since so some such than that the their theirs them themselves then there these they this those though "
    "through thus till to too toward towards under unless until up upon us very was we were what whatever when where "
    "whether which while who whom whose why will with within without would yet you your yours yourself"
)
_ENGLISH_CONNECTORS = frozenset(_ENGLISH.split())


def find_collocations(clean: CleanCorpus, words: Words, *, cache: Path, progress: Progress = no_progress) -> Path:
    """Find the phrases of a corpus, or open them from the cache; they depend on the segmenter, not on the tokenizer.

    A corpus over 32 MB is sampled evenly, so memory stays bounded (0.7 GB). Without a segmenter Chinese characters are
    words.

    Returns:
        A lexicon: one phrase per line in lower case, by length and best first.
    """

    def make(folder: Path) -> None:
        progress("finding collocations (phrases)", 0, None)
        phrases = collocations_of(clean.sample(_SAMPLE_BYTES, _SAMPLE_SEED), open_segmenter(words))
        write_text(folder / _FILE, "".join(f"{phrase}\n" for phrase in phrases))
        progress("finding collocations (phrases)", len(phrases), len(phrases))

    key = fingerprint(["collocations", _VERSION, clean.fingerprint, segmenter_fingerprint(words)])
    return open_or_build(cache / f"collocations-{key}", lambda folder: folder / _FILE, make)


def describe_collocations(path: Path) -> str:
    """Describe the result of `find_collocations` in a sentence."""
    phrases = path.read_text(encoding="utf-8").splitlines()
    by_length: dict[int, str] = {}
    for phrase in phrases:
        by_length.setdefault(len(phrase.split()), phrase)
    shown = phrases[:_EXAMPLES] + [phrase for phrase in by_length.values() if phrase not in phrases[:_EXAMPLES]]
    return f"{len(phrases):,} collocations in the corpus" + (f": {', '.join(shown)}" if shown else "")


def collocations_of(sentences: Iterable[str], segmenter: Segmenter | None = None) -> list[str]:
    """Return the phrases of some sentences in lower case, by length and best first (see `find_collocations`)."""
    words = running_text(sentences, segmenter)
    # Without a segmenter, the most frequent Chinese characters begin and end good words.
    edges = ~_connectors(words, longest_han=0 if segmenter is None else 1)
    phrases: list[str] = []
    for length, starts, parts in _frequent_grams(words):
        phrases += _best(length, starts, parts, words, edges)
    return phrases


_Parts = dict[int, tuple[NDArray[np.int32], NDArray[np.float64]]]
"""By length: id of the n-gram that starts at each word, -1 if it is rare; and log relative frequency of each n-gram."""


def _frequent_grams(words: RunningText) -> Iterator[tuple[int, NDArray[np.int64], _Parts]]:
    """Yield each length with the first start of each n-gram that occurs more than 10 times, and the parts up to it."""
    total = len(words.ids)
    counts = np.bincount(words.ids[words.ids >= 0], minlength=len(words.names))
    with np.errstate(divide="ignore"):
        share = np.log(counts / max(1, total))
    common = np.append(counts > _OVER, False)  # -1, a break, indexes the last
    parts: _Parts = {1: (np.where(common[words.ids], words.ids, -1).astype(np.int32), share)}
    for length in range(2, _LONGEST + 1):
        before = parts[length - 1][0].astype(np.int64)
        left, right = before, np.append(before[1:], -1)
        # An n-gram is identified by its two (n-1)-grams, and can be frequent only if they are.
        starts = np.flatnonzero((left >= 0) & (right >= 0))
        _, first, back, number = np.unique(
            left[starts] << 32 | right[starts], return_index=True, return_inverse=True, return_counts=True
        )
        frequent = number > _OVER
        numbers = np.full(total, -1, dtype=np.int32)
        numbers[starts] = np.where(frequent, np.cumsum(frequent) - 1, -1)[back]
        parts[length] = (numbers, np.log(number[frequent] / max(1, total)))
        yield length, starts[first[frequent]], parts


def _best(length: int, starts: NDArray[np.int64], parts: _Parts, words: RunningText, edges: BoolArray) -> list[str]:
    likeliest, (_, log_p) = _likeliest_parts(length, starts, parts), parts[length]
    scores = 2 * log_p - likeliest
    npmi = (log_p - likeliest) / -log_p
    first, last = words.ids[starts], words.ids[starts + length - 1]
    kept = np.flatnonzero((npmi >= _MIN_NPMI) & edges[first] & edges[last])
    # Ties by first occurrence.
    order = kept[np.lexsort((starts[kept], -scores[kept]))]
    best = order[: int(_MOST * _SHARES[length])]
    return [words.surface(start, length) for start in starts[best].tolist()]


def _likeliest_parts(length: int, starts: NDArray[np.int64], parts: _Parts) -> NDArray[np.float64]:
    """Return the largest sum of log p over all segmentations of each n-gram into two and more parts. Shape (G,)."""

    def log_p(start: int, length: int) -> NDArray[np.float64]:
        numbers, shares = parts[length]
        return shares[numbers[starts + start]]

    # best[e]: the best segmentation of the first e words, or these unsegmented if e < n.
    best = {0: np.zeros(len(starts))}
    for end in range(1, length + 1):
        whole = 1 if end == length else 0
        options = [best[start] + log_p(start, end - start) for start in range(whole, end)]
        best[end] = np.max(options, axis=0)
    return best[length]


def _connectors(words: RunningText, longest_han: int) -> BoolArray:
    """Return which words may occur only inside a phrase. Shape (words,)."""
    counts = np.bincount(words.ids[words.ids >= 0], minlength=len(words.names))
    common = counts > _CONNECTOR_SHARE * len(words.ids)
    connectors = [
        name in _ENGLISH_CONNECTORS or (often and len(name) <= (longest_han if is_han(name) else _CONNECTOR_CHARACTERS))
        for name, often in zip(words.names, common.tolist(), strict=True)
    ]
    return np.array(connectors, dtype=np.bool_)
