"""Tokenizer kinds and settings of a recipe."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from maskwright.core.spec import ByName, Spec

MAX_VOCABULARY = 1 << 21
TokenizerKind = Literal["wordpiece", "byte_bpe", "unigram"]


class WordPiece(Spec):
    """BERT's tokenizer: clean, split on whitespace, punctuation and CJK, then longest prefix first.

    Attributes:
        vocab_size: Entries, special tokens counted (30522 uncased English, 28996 cased, 21128 Chinese).
        lowercase: Lower-case and strip accents.
    """

    kind: Literal["wordpiece"] = "wordpiece"
    pad: ClassVar[int] = 0  # The padding id of every vocabulary of this kind that is learned here.
    vocab_size: Annotated[int, Field(ge=100, le=MAX_VOCABULARY)] = 30522
    lowercase: bool = True


class ByteBPE(Spec):
    """GPT-2's byte-level byte-pair encoding, as RoBERTa uses it: cased, a leading space belongs to the token.

    Attributes:
        vocab_size: Entries, special tokens counted (50265 in RoBERTa); at least 256 bytes + 5 specials.
    """

    kind: Literal["byte_bpe"] = "byte_bpe"
    pad: ClassVar[int] = 1
    vocab_size: Annotated[int, Field(ge=261, le=MAX_VOCABULARY)] = 50265


class Unigram(Spec):
    """SentencePiece's unigram language model, as ALBERT uses it: the best of all ways to cut a text into pieces.

    Text is normalized as ALBERT's code does it (albert: tokenization.py:182-240): white space collapsed, NFKD,
    combining marks dropped, lower-cased if asked; a space is written "▁" and belongs to the piece that follows it.

    Attributes:
        vocab_size: Entries, special tokens counted (30000 in ALBERT); at least 5 specials, "▁" and printable ASCII.
        lowercase: Lower-case. Accents are dropped in any case.
        character_coverage: Share of the text's characters that get an entry of their own; rarer ones are unknown.
    """

    kind: Literal["unigram"] = "unigram"
    pad: ClassVar[int] = 0
    vocab_size: Annotated[int, Field(ge=74, le=MAX_VOCABULARY)] = 30000
    lowercase: bool = True
    character_coverage: Annotated[float, Field(gt=0.9, le=1)] = 0.99995

    @model_validator(mode="after")
    def _holds_ascii(self) -> Self:
        if not self.lowercase and self.vocab_size < 100:
            raise ValueError(f"vocab_size={self.vocab_size} is too small for cased text: 100 at least")
        return self


TokenizerSpec = Annotated[WordPiece | ByteBPE | Unigram, Field(discriminator="kind"), ByName]
