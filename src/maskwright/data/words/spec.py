"""Settings of words, phrases and entities in a recipe."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from maskwright.core.errors import nearest
from maskwright.core.spec import Spec

SpanKind = Literal["phrase", "entity"]
Segmenter = Literal["none", "rjieba"]

_SOURCES: dict[SpanKind, tuple[str, ...]] = {"phrase": ("segmenter", "collocations"), "entity": ("tags",)}


def is_lexicon(source: str) -> bool:
    return Path(source).suffix in (".txt", ".tsv")


class Words(Spec):
    """Units larger than a token, found once when text is tokenized and stored with the ids.

    BERT-wwm and MacBERT mask words: segmenter="rjieba", units="words". ERNIE's basic unit is the character, its phrases
    are the segmenter's words and its entities the segmenter's names: segmenter="rjieba", units="characters",
    phrases=("segmenter",), entities=("tags",).

    Attributes:
        segmenter: Segmenter of runs of Chinese characters. "none": words are the tokenizer's own, which for WordPiece
            are single characters. They are always in other scripts, and in Japanese (a sentence with kana).
        units: Stored word starts in runs of Chinese characters. "words": the segmenter's words; "characters": single
            characters; the segmenter's words are then only phrases and entities.
        dictionary: A file of words that the segmenter must know, one per line, optionally followed by frequency and
            part of speech.
        phrases: Sources of phrases, combined: "segmenter" (its words of several characters), "collocations" (found in
            the corpus), or the path of a lexicon (.txt or .tsv), one phrase per line.
        entities: Sources of named entities: "tags" (the segmenter's names of people, places, organizations and
            products), or the path of a lexicon.
    """

    segmenter: Segmenter = "none"
    units: Literal["words", "characters"] = "words"
    dictionary: str | None = None
    phrases: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    entities: tuple[Annotated[str, Field(min_length=1)], ...] = ()

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        for kind, sources in self._sources:
            for source in sources:
                if source not in _SOURCES[kind] and not is_lexicon(source):
                    guess = nearest(source, _SOURCES[kind])
                    raise ValueError(
                        f"{source!r} is not a source of the kind {kind!r}: it is {', '.join(_SOURCES[kind])} or the "
                        "path of a lexicon (.txt or .tsv)" + (f"; did you mean {guess!r}?" if guess else "")
                    )
            if len(set(sources)) < len(sources):
                raise ValueError(f"{', '.join(sources)} name a source of the kind {kind!r} twice")
        if self.segmenter == "none":
            for field, source in (("phrases", "segmenter"), ("entities", "tags")):
                if source in getattr(self, field):
                    raise ValueError(f"{field} come from {source!r}, but segmenter is 'none': set segmenter=rjieba")
            if self.dictionary is not None:
                raise ValueError("a dictionary is given, but segmenter is 'none': set segmenter=rjieba")
        return self

    @property
    def are_the_tokenizers(self) -> bool:
        """Whether words are the tokenizer's own and there are no spans."""
        return self.segmenter == "none" and self.units == "words" and not self.span_kinds

    @property
    def span_kinds(self) -> tuple[SpanKind, ...]:
        """Kinds of spans stored with the text."""
        return tuple(kind for kind, sources in self._sources if sources)

    @property
    def _sources(self) -> tuple[tuple[SpanKind, tuple[str, ...]], ...]:
        return ("phrase", self.phrases), ("entity", self.entities)
