"""Words, phrases and entities as runs of tokens.

Every span begins as a run of characters and grows to whole words, so no word is ever split, whatever the tokenizer
merged. `check_words` checks segmenters, dictionaries and lexicons before any work begins.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskwright.core.spec import fingerprint
from maskwright.core.types import BoolArray, IntArray
from maskwright.data.scripts import chinese_characters, code_points, traditional_texts
from maskwright.data.tokenizers.stream_encoder import TokenOffsets, TokenStream
from maskwright.data.words.lexicon import Lexicon, Spans, content_of, longest, read_lexicon, spans_of
from maskwright.data.words.segmenters import (
    NAME_RULES_VERSION,
    Segmenter,
    is_name,
    open_segmenter,
    segmenter_fingerprint,
)
from maskwright.data.words.span_facts import SpanFacts
from maskwright.data.words.spec import SpanKind, Words, is_lexicon

_NO_SPANS = spans_of(())


@dataclass(frozen=True, slots=True)
class Annotation:
    """The words and spans of T tokens.

    Attributes:
        word_starts: Shape (T,), True where a token begins a word.
        span_starts: For each kind, shape (T,), True where a token begins a span, or a word outside spans.
        facts: For each kind, its spans of two and more words.
    """

    word_starts: BoolArray
    span_starts: dict[str, BoolArray]
    facts: dict[SpanKind, SpanFacts]


@dataclass(frozen=True, slots=True)
class Annotator:
    """Finds words, phrases and entities; without a segmenter, Chinese text is not segmented."""

    words: Words
    segmenter: Segmenter | None
    lexicons: Mapping[str, Sequence[Lexicon]]

    def annotate(self, texts: Sequence[str], stream: TokenStream) -> Annotation:
        assert stream.offsets is not None
        text = _Text.of(texts)
        chinese = self._segment(text)
        tokens = _Tokens(stream.offsets, self._word_starts(stream, text, chinese))
        span_starts: dict[str, BoolArray] = {}
        facts: dict[SpanKind, SpanFacts] = {}
        for kind in self.words.span_kinds:
            spans = tokens.whole_words(self._find_spans(kind, text, chinese))
            span_starts[kind] = tokens.starts_of(spans)
            starts, ends = stream.offsets.first[spans.starts], stream.offsets.end[spans.ends - 1]
            facts[kind] = SpanFacts(
                units=len(spans.starts),
                tokens=int((spans.ends - spans.starts).sum()),
                counts=Counter(text.joined[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)),
            )
        return Annotation(tokens.word_starts, span_starts, facts)

    def _segment(self, text: "_Text") -> "_Chinese":
        no_name = np.zeros(0, dtype=np.bool_)
        mask = chinese_characters(text.codes, text.lengths)
        if self.segmenter is None and self.words.units == "words":
            mask[:] = False
        begins = mask & (text.starts | ~np.concatenate([[False], mask])[:-1])
        if self.segmenter is None or not mask.any():
            return _Chinese(mask, begins, _NO_SPANS, no_name)
        firsts = np.flatnonzero(begins)
        lasts = np.flatnonzero(mask & ~np.concatenate([mask & ~begins, [False]])[1:]) + 1
        runs = [text.joined[start:end] for start, end in zip(firsts.tolist(), lasts.tolist(), strict=True)]
        if (simplify := self.segmenter.simplify) is not None:
            traditional = traditional_texts(text.codes, text.lengths)
            runs = [
                simplify(run) if traditional[number] else run
                for run, number in zip(runs, text.numbers[firsts].tolist(), strict=True)
            ]
        if "tags" in self.words.entities:
            tagged = self.segmenter.tag(runs)
            words, names = [word for word, _ in tagged], [is_name(word, tag) for word, tag in tagged]
        else:
            words, names = self.segmenter.cut(runs), []
        lengths = np.array(list(map(len, words)), dtype=np.int64)
        ends = np.cumsum(lengths)
        positions = np.flatnonzero(mask)
        spans = Spans(positions[ends - lengths], positions[ends - 1] + 1)
        begins[spans.starts] = True
        return _Chinese(mask, begins, spans, np.array(names, dtype=np.bool_))

    def _word_starts(self, stream: TokenStream, text: "_Text", chinese: "_Chinese") -> BoolArray:
        """Return the tokenizer's word starts outside Chinese runs, the segmenter's within them. Shape (T,)."""
        if not chinese.mask.any():
            return stream.word_starts
        assert stream.offsets is not None
        first = stream.offsets.first
        begins = chinese.begins if self.words.units == "words" else chinese.mask
        # The tokenizer may not see the end of a Chinese run: in GPT-2's pattern "模型model" is one word.
        after_run = ~chinese.mask & ~text.starts & np.concatenate([[False], chinese.mask])[:-1]
        by_segmenter = (begins | after_run)[first] & stream.offsets.begins_character
        starts: BoolArray = np.where(chinese.mask[first], by_segmenter, stream.word_starts | by_segmenter)
        return starts

    def _find_spans(self, kind: str, text: "_Text", chinese: "_Chinese") -> list[Spans]:
        """Return the spans that each source of a kind finds, as characters of all texts joined."""
        spans = [_NO_SPANS]
        if kind == "phrase" and "segmenter" in self.words.phrases:
            several = chinese.words.ends - chinese.words.starts > 1
            spans.append(Spans(chinese.words.starts[several], chinese.words.ends[several]))
        if kind == "entity" and "tags" in self.words.entities and len(chinese.is_name):
            spans.append(Spans(chinese.words.starts[chinese.is_name], chinese.words.ends[chinese.is_name]))
        if self.lexicons.get(kind):
            # An entry may not begin or end within a segmenter's word: 京大 is not found in 北京|大学.
            inside = np.zeros(len(text.joined) + 1, dtype=np.bool_)
            if self.segmenter is not None:
                inside[:-1] = chinese.mask & ~chinese.begins
            spans += [lexicon.find(text.joined, inside, text.numbers) for lexicon in self.lexicons[kind]]
        return spans


@dataclass(frozen=True, slots=True)
class _Text:
    """Some texts joined. C characters.

    Attributes:
        lengths: Characters of each text.
        numbers: Shape (C,), the text of each character.
        starts: Shape (C,), True where a text begins.
        codes: Shape (C,), code points.
    """

    joined: str
    lengths: NDArray[np.int64]
    numbers: IntArray
    starts: BoolArray
    codes: NDArray[np.uint32]

    @classmethod
    def of(cls, texts: Sequence[str]) -> "_Text":
        joined = "".join(texts)
        lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
        numbers = np.repeat(np.arange(len(texts), dtype=np.int32), lengths)
        return cls(joined, lengths, numbers, np.diff(numbers, prepend=-1) != 0, code_points(joined))


@dataclass(frozen=True, slots=True)
class _Chinese:
    """The Chinese runs among C characters, segmented.

    Attributes:
        mask: Shape (C,), True in runs of Chinese characters.
        begins: Shape (C,), True where a word begins in such a run.
        words: The words.
        is_name: For each word, whether it is a name; empty if not needed.
    """

    mask: BoolArray
    begins: BoolArray
    words: Spans
    is_name: BoolArray


class _Tokens:
    """Tokens with their offsets and words; turns runs of characters into runs of whole words."""

    def __init__(self, offsets: TokenOffsets, word_starts: BoolArray) -> None:
        self.word_starts = word_starts
        self._offsets = offsets
        self._word_of = np.cumsum(word_starts) - 1
        self._bounds = np.append(np.flatnonzero(word_starts), len(word_starts))

    def whole_words(self, sources: Sequence[Spans]) -> Spans:
        """Return, as tokens, the runs that grow to two words and more; of overlapping ones the longest."""
        spans = Spans(*(np.concatenate(parts) for parts in zip(*sources, strict=True)))
        first = np.searchsorted(self._offsets.end, spans.starts, side="right")
        end = np.searchsorted(self._offsets.first, spans.ends, side="left")
        held = first < end
        first_word, last_word = self._word_of[first[held]], self._word_of[end[held] - 1]
        several = first_word < last_word
        return longest(Spans(self._bounds[first_word[several]], self._bounds[last_word[several] + 1]))

    def starts_of(self, spans: Spans) -> BoolArray:
        """Return the first token of each span and of every word outside. Shape (T,)."""
        change = np.zeros(len(self.word_starts) + 1, dtype=np.int8)
        change[spans.starts + 1] += 1
        change[spans.ends] -= 1
        starts: BoolArray = self.word_starts & (np.cumsum(change[:-1], dtype=np.int8) == 0)
        return starts


# Raise it with every change of what the same words become on the same tokens.
_VERSION = 1


def check_words(words: Words) -> None:
    """Raise DataError at once if a library or a file is missing or broken."""
    segmenter = open_segmenter(words)
    if segmenter is not None:
        segmenter.tag(["语言模型"])
    open_lexicons(words)
    if "collocations" in words.phrases:
        Lexicon([])


def words_fingerprint(words: Words) -> str:
    """Identify words and spans: the choices, the content (not the path) of the files, the segmenter's version."""
    phrases, entities = (
        [content_of(Path(source)) if is_lexicon(source) else source for source in sources]
        for sources in (words.phrases, words.entities)
    )
    names = [NAME_RULES_VERSION] if "tags" in words.entities else []
    return fingerprint([_VERSION, segmenter_fingerprint(words), words.units, phrases, entities, *names])


def open_annotator(words: Words, collocations: Path | None = None) -> Annotator | None:
    """Load segmenter and lexicons; None if words are the tokenizer's own.

    Args:
        collocations: The phrases found in the corpus, one per line; None for none.
    """
    if words.are_the_tokenizers:
        return None
    return Annotator(words, open_segmenter(words), open_lexicons(words, collocations))


def open_lexicons(words: Words, collocations: Path | None = None) -> dict[str, list[Lexicon]]:
    """Read the lexicons of phrases and of entities; DataError if one cannot be read or searched."""
    files = {
        kind: [read_lexicon(Path(source)) for source in sources if is_lexicon(source)]
        for kind, sources in (("phrase", words.phrases), ("entity", words.entities))
    }
    if collocations is not None:
        files["phrase"].append(collocations.read_text(encoding="utf-8").splitlines())
    return {kind: [Lexicon(entries) for entries in lists] for kind, lists in files.items()}
