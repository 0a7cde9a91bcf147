"""What counts as a word, a phrase and an entity, as a frozen value (the work is done when text is tokenized)."""

from typing import Annotated, Literal

from pydantic import Field

from maskwright.core.spec import Spec

Level = Literal["phrase", "entity"]
Segmenter = Literal["none", "rjieba", "jieba", "ltp", "hanlp", "spacy", "stanza"]


class Words(Spec):
    """Units larger than a token, decided once when text is tokenized and stored beside the ids.

    Attributes:
        segmenter: Who cuts Chinese text into words. "none": the tokenizer's own words, which are single characters in
            Chinese. In every other script words are always the tokenizer's own.
        dictionary: A file of words that the segmenter must know, one a line.
        phrases: Where phrases come from, later sources adding to earlier ones: "segmenter" (its words of several
            characters), "collocations" (words that stand together far more often than chance, found in the corpus
            itself), "corpus" (spans given with the documents), or the path of a lexicon, one phrase a line.
        entities: Where named entities come from: "tags" (the segmenter's part-of-speech names), "corpus", or the path
            of a lexicon.
    """

    segmenter: Segmenter = "none"
    dictionary: str | None = None
    phrases: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    entities: tuple[Annotated[str, Field(min_length=1)], ...] = ()

    @property
    def levels(self) -> tuple[Level, ...]:
        """Levels of units that the stored text carries besides words."""
        named: tuple[tuple[Level, tuple[str, ...]], ...] = (("phrase", self.phrases), ("entity", self.entities))
        return tuple(level for level, sources in named if sources)
