"""Words, phrases and entities as runs of tokens.

Every unit begins as a run of characters and grows to whole words, so no whole word is ever split, whatever the
tokenizer merged. `check_words` checks segmenters, dictionaries and lexicons before any work begins.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskwright.core.spec import fingerprint
from maskwright.core.types import BoolArray, IntArray
from maskwright.data.tokenizers.stream_encoder import TokenPlaces, TokenStream
from maskwright.data.words.lexicon import Lexicon, Spans, content_of, longest, read_dictionary, read_lexicon
from maskwright.data.words.scripts import chinese_characters, code_points
from maskwright.data.words.segmenters import NAME_RULES_VERSION, Segmenter, open_segmenter, segmenter_version
from maskwright.data.words.spec import LEXICON_SUFFIXES, Words


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """The facts of a stream of T tokens.

    Attributes:
        word_starts: Shape (T,), True where a token begins a word.
        level_starts: For each level, shape (T,), True where a token begins a unit of that level.
        found: For each level, its units of two and more words as text, in order.
        tokens_inside: For each level, how many tokens these hold.
        lost: For each level, how many given spans cross a sentence's end or hold no token.
    """

    word_starts: BoolArray
    level_starts: dict[str, BoolArray]
    found: dict[str, list[str]]
    tokens_inside: dict[str, int]
    lost: dict[str, int]

    @classmethod
    def of_words(cls, word_starts: BoolArray) -> "Annotation":
        """Return the facts of text in which nothing but words is looked for."""
        return cls(word_starts=word_starts, level_starts={}, found={}, tokens_inside={}, lost={})


class Annotator:
    """Finds words, phrases and entities.

    Args:
        segmenter: Who cuts Chinese text; None if nobody does.
    """

    def __init__(self, words: Words, segmenter: Segmenter | None, lexicons: Mapping[str, Sequence[Lexicon]]) -> None:
        self._words = words
        self._segmenter = segmenter
        self._lexicons = lexicons

    def annotate(
        self, texts: Sequence[str], stream: TokenStream, given: Mapping[str, Spans] | None = None
    ) -> Annotation:
        """Find the words, phrases and entities of some texts.

        Args:
            given: For each level, spans that came with the texts, as characters of all texts joined.
        """
        assert stream.places is not None
        text = _Text(texts)
        cut = self._cut(text)
        tokens = _Tokens(stream.places, self._word_starts(stream, text, cut))
        level_starts: dict[str, BoolArray] = {}
        found: dict[str, list[str]] = {}
        inside: dict[str, int] = {}
        lost: dict[str, int] = {}
        for level in self._words.levels:
            own = (given or {}).get(level, _NO_SPANS)
            within = text.numbers[own.starts] == text.numbers[own.ends - 1]
            own = Spans(own.starts[within], own.ends[within])
            lost[level] = int((~within).sum() + (~tokens.touched(own)).sum())
            units = tokens.whole_words([own, *self._found(level, text, cut)])
            level_starts[level] = tokens.starting(units)
            found[level] = [text.joined[start:end] for start, end in zip(*tokens.characters(units), strict=True)]
            inside[level] = int((units.ends - units.starts).sum())
        return Annotation(
            word_starts=tokens.word_starts, level_starts=level_starts, found=found, tokens_inside=inside, lost=lost
        )

    def _cut(self, text: "_Text") -> "_Cut":
        if self._segmenter is None and self._words.units == "words":
            return _Cut.nowhere(len(text.joined))
        chinese = chinese_characters(text.codes, text.lengths)
        begins = chinese & (text.starts | ~np.concatenate([[False], chinese])[:-1])
        if self._segmenter is None or not chinese.any():
            return _Cut(chinese, begins, _NO_SPANS, np.zeros(0, dtype=np.bool_))
        firsts = np.flatnonzero(begins)
        lasts = np.flatnonzero(chinese & ~np.concatenate([chinese & ~begins, [False]])[1:]) + 1
        runs = [text.joined[start:end] for start, end in zip(firsts.tolist(), lasts.tolist(), strict=True)]
        names = np.zeros(0, dtype=np.bool_)
        if "tags" in self._words.entities:
            pieces = self._segmenter.tag(runs)
            names = np.array([self._segmenter.is_name(word, tag) for word, tag in pieces], dtype=np.bool_)
        else:
            pieces = self._segmenter.cut(runs)
        lengths = np.fromiter((len(word) for word, _ in pieces), dtype=np.int64, count=len(pieces))
        ends = np.cumsum(lengths)
        places = np.flatnonzero(chinese)
        spans = Spans(places[ends - lengths], places[ends - 1] + 1)
        begins[spans.starts] = True
        return _Cut(chinese, begins, spans, names)

    def _word_starts(self, stream: TokenStream, text: "_Text", cut: "_Cut") -> BoolArray:
        """Return where words begin: the tokenizer's own outside Chinese runs, the segmenter's within them."""
        if not cut.chinese.any():
            return stream.word_starts
        assert stream.places is not None
        first = stream.places.first
        begins = cut.begins if self._words.units == "words" else cut.chinese
        # The tokenizer may not see that a Chinese run has ended: to GPT-2's pattern "模型model" is one word.
        after_run = ~cut.chinese & ~text.starts & np.concatenate([[False], cut.chinese])[:-1]
        by_segmenter = (begins | after_run)[first] & stream.places.begins_character
        starts: BoolArray = np.where(cut.chinese[first], by_segmenter, stream.word_starts | by_segmenter)
        return starts

    def _found(self, level: str, text: "_Text", cut: "_Cut") -> list[Spans]:
        """Return what each source of a level finds, as characters of all texts joined."""
        found = []
        if level == "phrase" and "segmenter" in self._words.phrases:
            several = cut.spans.ends - cut.spans.starts > 1
            found.append(Spans(cut.spans.starts[several], cut.spans.ends[several]))
        if level == "entity" and "tags" in self._words.entities and len(cut.names):
            found.append(Spans(cut.spans.starts[cut.names], cut.spans.ends[cut.names]))
        if self._lexicons.get(level):
            # Whoever cuts, an entry may not begin or end within a word: 京大 is not found in 北京|大学.
            inside = np.zeros(len(text.joined) + 1, dtype=np.bool_)
            if self._segmenter is not None:
                inside[:-1] = cut.chinese & ~cut.begins
            found += [lexicon.find(text.joined, inside, text.numbers) for lexicon in self._lexicons[level]]
        return found


_NO_SPANS = Spans(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


class _Text:
    """Some texts joined. C characters.

    Attributes:
        joined: The characters.
        lengths: Characters of each text.
        numbers: Shape (C,), which text a character belongs to.
        starts: Shape (C,), True where a text begins.
        codes: Shape (C,), code points.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self.joined = "".join(texts)
        self.lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
        self.numbers: IntArray = np.repeat(np.arange(len(texts), dtype=np.int32), self.lengths)
        self.starts: BoolArray = np.diff(self.numbers, prepend=-1) != 0
        self.codes = code_points(self.joined)


@dataclass(frozen=True, slots=True)
class _Cut:
    """How a segmenter cut texts of C characters.

    Attributes:
        chinese: Shape (C,), True in runs of Chinese characters.
        begins: Shape (C,), True where a word begins in such a run.
        spans: The words.
        names: For each word, whether its tag is that of a name; empty if nobody asked.
    """

    chinese: BoolArray
    begins: BoolArray
    spans: Spans
    names: BoolArray

    @classmethod
    def nowhere(cls, length: int) -> "_Cut":
        nothing = np.zeros(length, dtype=np.bool_)
        return cls(nothing, nothing, _NO_SPANS, nothing[:0])


class _Tokens:
    """Tokens with their places and words; turns runs of characters into runs of whole words."""

    def __init__(self, places: TokenPlaces, word_starts: BoolArray) -> None:
        self.word_starts = word_starts
        self._places = places
        self._word_of = np.cumsum(word_starts) - 1
        self._bounds = np.append(np.flatnonzero(word_starts), len(word_starts))

    def touched(self, spans: Spans) -> BoolArray:
        """Return which runs of characters hold a part of a token."""
        first, end = self._range(spans)
        touched: BoolArray = first < end
        return touched

    def whole_words(self, sources: Sequence[Spans]) -> Spans:
        """Return, as tokens, the runs that grow to two words and more; of those that overlap the longest."""
        spans = Spans(*(np.concatenate(parts) for parts in zip(*sources, strict=True)))
        first, end = self._range(spans)
        held = first < end
        first_word, last_word = self._word_of[first[held]], self._word_of[end[held] - 1]
        several = first_word < last_word
        return longest(Spans(self._bounds[first_word[several]], self._bounds[last_word[several] + 1]))

    def starting(self, units: Spans) -> BoolArray:
        """Return where units begin: the first token of each run, and every word outside."""
        change = np.zeros(len(self.word_starts) + 1, dtype=np.int8)
        change[units.starts + 1] += 1
        change[units.ends] -= 1
        starts: BoolArray = self.word_starts & (np.cumsum(change[:-1], dtype=np.int8) == 0)
        return starts

    def characters(self, units: Spans) -> tuple[list[int], list[int]]:
        """Return the characters that runs of tokens cover, as (starts, ends)."""
        return self._places.first[units.starts].tolist(), self._places.end[units.ends - 1].tolist()

    def _range(self, spans: Spans) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        first = np.searchsorted(self._places.end, spans.starts, side="right")
        end = np.searchsorted(self._places.first, spans.ends, side="left")
        return first, end


# Raise it with every change of what the same words become on the same tokens.
_VERSION = 1
_TRIED = "语言模型"


def check_words(words: Words) -> None:
    """Find out at once what would fail later: a library, a model or a file that is missing or broken.

    Raises:
        DataError: If something is.
    """
    if words.dictionary is not None:
        read_dictionary(Path(words.dictionary))
    segmenter = segmenter_of(words)
    if segmenter is not None:
        segmenter.tag([_TRIED])
    for path in _lexicon_paths(words):
        read_lexicon(path)
    if "collocations" in words.phrases or any(_lexicon_paths(words)):
        Lexicon([])


def words_fingerprint(words: Words) -> str:
    """Identify what counts as a word: the choices, the content of the files, the versions of segmenter and model.

    Where the files are is no part of it.

    Raises:
        DataError: If a file cannot be read.
    """
    phrases, entities = (
        [content_of(Path(source)) if _is_file(source) else source for source in sources]
        for sources in (words.phrases, words.entities)
    )
    names = [NAME_RULES_VERSION] if "tags" in words.entities else []
    return fingerprint([_VERSION, segmenter_fingerprint(words), words.units, phrases, entities, *names])


def segmenter_fingerprint(words: Words) -> str:
    """Identify who cuts Chinese text into words.

    Raises:
        DataError: If the dictionary cannot be read.
    """
    if words.segmenter == "none":
        return "none"
    dictionary = "" if words.dictionary is None else content_of(Path(words.dictionary))
    version = segmenter_version(words.segmenter)
    return fingerprint([words.segmenter, version, words.model, dictionary])


def segmenter_of(words: Words) -> Segmenter | None:
    """Load the segmenter, if there is one.

    Raises:
        DataError: If it cannot be loaded.
    """
    if words.segmenter == "none":
        return None
    dictionary = None if words.dictionary is None else Path(words.dictionary)
    return open_segmenter(words.segmenter, dictionary, words.model)


def open_annotator(words: Words, collocations: Path | None = None) -> Annotator | None:
    """Load all that finds words; None where they are simply the tokenizer's own.

    Args:
        words: What counts as a word, a phrase and an entity.
        collocations: The corpus's own phrases, one a line; None leaves them out.

    Raises:
        DataError: If something cannot be loaded.
    """
    if words.are_the_tokenizers:
        return None
    lexicons = {
        "phrase": _lexicons(words.phrases, collocations),
        "entity": _lexicons(words.entities, None),
    }
    return Annotator(words, segmenter_of(words), lexicons)


def _lexicons(sources: Sequence[str], collocations: Path | None) -> list[Lexicon]:
    lists = [read_lexicon(Path(source)) for source in sources if _is_file(source)]
    if collocations is not None:
        lists.append(collocations.read_text(encoding="utf-8").splitlines())
    return [Lexicon(entries) for entries in lists]


def _lexicon_paths(words: Words) -> Iterator[Path]:
    yield from (Path(source) for source in (*words.phrases, *words.entities) if _is_file(source))


def _is_file(source: str) -> bool:
    return Path(source).suffix in LEXICON_SUFFIXES
