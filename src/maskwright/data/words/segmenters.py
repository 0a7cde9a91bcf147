"""Chinese word segmentation by jieba (`rjieba`, written in Rust), and its names of people, places and organizations.

Its words are simplified. Traditional text is segmented in simplified form (OpenCC), character by character.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from maskwright.core.extras import imported, install
from maskwright.core.spec import fingerprint
from maskwright.data.scripts import code_points, has_han, traditional_texts
from maskwright.data.words.lexicon import content_of, read_dictionary
from maskwright.data.words.spec import Words

NAME_RULES_VERSION = 2
"""Raise it with every change of `is_name`."""

_FEW_TRADITIONAL = 0.01
_NAME_TAGS = ("nr", "ns", "nt", "nz")  # ICTCLAS's: people (also nrt, nrfg), places, organizations, others
_NOT_NAME_ENDINGS = "性化者符证器键式"
# The most frequent of them in Chinese articles on Linux and in CLUECorpusSmall.
_NOT_NAMES = frozenset(Path(__file__).with_name("not_names.txt").read_text(encoding="utf-8").split())


@dataclass(frozen=True, slots=True)
class Segmenter:
    """Cuts runs of Chinese characters into words, each run separately; the words join to the runs joined.

    Attributes:
        cut: Runs to words.
        tag: Runs to (word, part of speech); the words may differ from those of `cut`.
        simplify: A run of traditional characters to as many simplified ones, which `cut` and `tag` know; None if OpenCC
            is not installed.
    """

    cut: Callable[[Sequence[str]], list[str]]
    tag: Callable[[Sequence[str]], list[tuple[str, str]]]
    simplify: Callable[[str], str] | None = None


def is_name(word: str, tag: str) -> bool:
    """Return whether a tagged word is the name of a person, place, organization or product.

    The dictionary tags common words as names (东西, 日志, 索引), and so does its model for unknown words (贡献者); on
    technical text 7 of 10 tagged words are no names. Frequent ones and derived nouns are excluded here.
    """
    return tag.startswith(_NAME_TAGS) and word[-1] not in _NOT_NAME_ENDINGS and word not in _NOT_NAMES


def open_segmenter(words: Words) -> Segmenter | None:
    """Load the segmenter, if there is one; DataError if the library or the dictionary is missing or broken."""
    if words.segmenter == "none":
        return None
    library = imported("rjieba", "the segmenter 'rjieba'", "zh", otherwise="choose another words.segmenter")
    simplify = _open_simplifier()
    if words.dictionary is not None:
        library = library.Jieba()
        for word, frequency, tag in read_dictionary(Path(words.dictionary)):
            for form in {word, simplify(word) if simplify else word}:
                library.add_word(form, frequency or library.suggest_freq(form), tag or "n")
    # All runs in one call: a line break is a word, and no word crosses it.
    return Segmenter(
        cut=lambda runs: [word for word in library.cut("\n".join(runs)) if word != "\n"],
        tag=lambda runs: [pair for pair in library.tag("\n".join(runs)) if pair[0] != "\n"],
        simplify=simplify,
    )


def _open_simplifier() -> Callable[[str], str] | None:
    if find_spec("opencc") is None:
        return None
    convert = imported("opencc", "traditional Chinese", "zh").OpenCC("t2s").convert

    def simplify(run: str) -> str:
        simplified: str = convert(run)
        return simplified if len(simplified) == len(run) else run

    return simplify


def describe_traditional(words: Words, texts: Iterable[str]) -> str:
    """Describe how the traditional Chinese among some sentences is segmented; "" if there is none or no segmenter."""
    sentences = [text for text in texts if has_han(text)] if words.segmenter != "none" else []
    codes, lengths = code_points("".join(sentences)), np.array(list(map(len, sentences)), dtype=np.int64)
    share = traditional_texts(codes, lengths).mean() if sentences else 0.0
    if share < _FEW_TRADITIONAL:
        return ""
    finding = f"{share:.0%} of the Chinese sentences are traditional"
    if find_spec("opencc") is not None:
        return f"{finding}; OpenCC converts them for segmentation only"
    return f"{finding}, of which the segmenter knows few words and invents others: install OpenCC, {install('zh')}"


def segmenter_fingerprint(words: Words) -> str:
    """Identify the segmentation of Chinese text: the library's version and the content of the dictionary."""
    if words.segmenter == "none":
        return "none"
    try:
        version = metadata.version(words.segmenter)
    except metadata.PackageNotFoundError:
        version = ""
    dictionary = "" if words.dictionary is None else content_of(Path(words.dictionary))
    converter = [] if find_spec("opencc") is None else [metadata.version("opencc")]
    return fingerprint([words.segmenter, version, None, dictionary, *converter])
