"""Settings of words, phrases and entities in a recipe."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from maskwright.core.errors import nearest
from maskwright.core.spec import Spec

Level = Literal["phrase", "entity"]
Segmenter = Literal["none", "rjieba", "jieba", "ltp"]

LEXICON_SUFFIXES = (".txt", ".tsv")
_SOURCES: dict[Level, tuple[str, ...]] = {
    "phrase": ("segmenter", "collocations", "corpus"),
    "entity": ("tags", "corpus"),
}


class Words(Spec):
    """Units larger than a token, decided once when text is tokenized and stored beside the ids.

    Two questions are answered apart: who cuts Chinese text into words (`segmenter`), and what one unit of whole-word
    masking is (`units`). BERT-wwm and MacBERT mask words: segmenter="rjieba", units="words". ERNIE's basic unit is
    the character while its phrases are the segmenter's words and its entities the segmenter's names:
    segmenter="rjieba", units="characters", phrases=("segmenter",), entities=("tags",).

    Attributes:
        segmenter: Who cuts runs of Chinese characters into words. "none": nobody; the words are the tokenizer's own,
            which for WordPiece are single characters. In every other script words are always the tokenizer's own, and
            so they are in Japanese (a sentence with kana).
        units: What the stored word starts are in runs of Chinese characters. "words": the segmenter's words;
            "characters": single characters, whoever cuts; the segmenter's words are then only phrases and entities.
        dictionary: A file of words that the segmenter must know, one per line, optionally followed by frequency and
            part of speech.
        model: LTP's model; None for "LTP/small".
        phrases: Where phrases come from, later sources adding to earlier ones: "segmenter" (its words of several
            characters), "collocations" (words that stand together far more often than chance, found in the corpus
            itself), "corpus" (spans given with the documents of a .jsonl file), or the path of a lexicon (.txt or
            .tsv), one phrase a line.
        entities: Where named entities come from: "tags" (the segmenter's part-of-speech names of people, places,
            organizations and other proper nouns), "corpus", or the path of a lexicon.
    """

    segmenter: Segmenter = "none"
    units: Literal["words", "characters"] = "words"
    dictionary: str | None = None
    model: str | None = None
    phrases: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    entities: tuple[Annotated[str, Field(min_length=1)], ...] = ()

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        for level, sources in self._sources:
            for source in sources:
                if source not in _SOURCES[level] and Path(source).suffix not in LEXICON_SUFFIXES:
                    guess = nearest(source, _SOURCES[level])
                    raise ValueError(
                        f"{source!r} is no source of the level {level!r}: it is {', '.join(_SOURCES[level])} or the "
                        "path of a lexicon (.txt or .tsv)" + (f"; did you mean {guess!r}?" if guess else "")
                    )
            if len(set(sources)) < len(sources):
                raise ValueError(f"{', '.join(sources)} name a source of the level {level!r} twice")
        if self.segmenter == "none":
            for field, source in (("phrases", "segmenter"), ("entities", "tags")):
                if source in getattr(self, field):
                    raise ValueError(f"{field} come from {source!r}, but segmenter is 'none': set segmenter=rjieba")
            if self.dictionary is not None:
                raise ValueError("a dictionary is given, but segmenter is 'none': set segmenter=rjieba")
            if self.model is not None:
                raise ValueError("a model is given, but segmenter is 'none': set segmenter=ltp")
        return self

    @property
    def are_the_tokenizers(self) -> bool:
        """Whether nothing is to be found: words are the tokenizer's own and there are no other levels."""
        return self.segmenter == "none" and self.units == "words" and not self.span_kinds

    @property
    def needs_given_spans(self) -> bool:
        """Whether spans that come with the documents are to be read."""
        return "corpus" in self.phrases or "corpus" in self.entities

    @property
    def span_kinds(self) -> tuple[Level, ...]:
        """Levels of units that the stored text stores beside words."""
        return tuple(level for level, sources in self._sources if sources)

    @property
    def _sources(self) -> tuple[tuple[Level, tuple[str, ...]], ...]:
        return ("phrase", self.phrases), ("entity", self.entities)
