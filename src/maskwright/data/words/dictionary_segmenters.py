"""Segmenters that carry their dictionary with them: rjieba (in Rust, fast) and jieba (its original)."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from maskwright.data.words.segmenter import Segmenter, TaggedWords, joined_or_single, library, tagged_or_single
from maskwright.data.words.word_lists import read_dictionary

# ICTCLAS's names, as jieba has them: people (also nrt, nrfg), places, organisations, other proper nouns.
_NAMES = ("nr", "ns", "nt", "nz")
_BETWEEN = "\n"


class Jieba:
    """A segmenter of the jieba kind: dictionary, most probable path, hidden Markov model for unknown words.

    Args:
        cut: Cuts a text into words.
        tag: Cuts a text into words with tags.
    """

    entity_tags = _NAMES

    def __init__(self, cut: Callable[[str], list[str]], tag: Callable[[str], list[tuple[str, str]]]) -> None:
        self._cut, self._tag = cut, tag

    def cut(self, runs: Sequence[str]) -> list[str]:
        """See `Segmenter.cut`."""
        # One call for all runs: a line break is a word of its own, and no word reaches across it.
        words = [word for word in self._cut(_BETWEEN.join(runs)) if word != _BETWEEN]
        if sum(map(len, words)) == sum(map(len, runs)):
            return words
        return [word for run in runs for word in joined_or_single(run, self._cut(run))]

    def tag(self, runs: Sequence[str]) -> TaggedWords:
        """See `Segmenter.tag`."""
        pairs = [pair for pair in self._tag(_BETWEEN.join(runs)) if pair[0] != _BETWEEN]
        if sum(len(word) for word, _ in pairs) == sum(map(len, runs)):
            return TaggedWords([word for word, _ in pairs], [tag for _, tag in pairs])
        every = TaggedWords([], [])
        for run in runs:
            found = self._tag(run)
            words, tags = tagged_or_single(run, [word for word, _ in found], [tag for _, tag in found])
            every.words.extend(words)
            every.tags.extend(tags)
        return every


def _rjieba(dictionary: Path | None) -> Segmenter:
    module = library("rjieba")
    if dictionary is None:
        return Jieba(module.cut, module.tag)
    own = module.Jieba()
    for entry in read_dictionary(dictionary):
        frequency = entry.frequency or own.suggest_freq(entry.word)
        own.add_word(entry.word, frequency, entry.tag or "n")
    return Jieba(own.cut, own.tag)


def _jieba(dictionary: Path | None) -> Segmenter:
    module, tagging = library("jieba"), library("jieba.posseg")
    own: Any = module.Tokenizer()
    module.setLogLevel("WARNING")
    for entry in read_dictionary(dictionary) if dictionary else ():
        own.add_word(entry.word, entry.frequency, entry.tag or None)
    tagger = tagging.POSTokenizer(own)
    return Jieba(own.lcut, lambda text: [(pair.word, pair.flag) for pair in tagger.cut(text)])


DICTIONARY_SEGMENTERS: dict[str, Callable[[Path | None], Segmenter]] = {"rjieba": _rjieba, "jieba": _jieba}
"""By name."""
