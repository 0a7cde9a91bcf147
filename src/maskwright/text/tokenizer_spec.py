"""Which tokenizer a recipe wants, as a frozen value (training and loading are in `vocabulary`)."""

from typing import Annotated, Literal

from pydantic import Field

from maskwright.core.spec import ByName, Spec


class WordPiece(Spec):
    """BERT's tokenizer: clean, split on whitespace, punctuation and CJK, then longest prefix first.

    Attributes:
        vocab_size: Entries, special tokens counted (30522 uncased English, 28996 cased, 21128 Chinese).
        lowercase: Lower-case and strip accents.
    """

    kind: Literal["wordpiece"] = "wordpiece"
    vocab_size: Annotated[int, Field(ge=100)] = 30522
    lowercase: bool = True


class ByteBPE(Spec):
    """GPT-2's byte-level byte-pair encoding, as RoBERTa uses it: cased, a leading space belongs to the token.

    Attributes:
        vocab_size: Entries, special tokens counted (50265 in RoBERTa); at least 256 bytes + 5 specials.
    """

    kind: Literal["byte_bpe"] = "byte_bpe"
    vocab_size: Annotated[int, Field(ge=261)] = 50265


class Unigram(Spec):
    """SentencePiece's unigram language model, as ALBERT uses it: the best of all ways to cut a text into pieces.

    Text is normalised as ALBERT's code does it (albert: tokenization.py:182-240): white space collapsed, NFKD, combining
    marks dropped, lower-cased if asked; a space is written "▁" and belongs to the piece that follows it.

    Attributes:
        vocab_size: Entries, special tokens counted (30000 in ALBERT).
        lowercase: Lower-case and strip accents.
        character_coverage: Share of the text's characters that get an entry of their own; rarer ones are unknown.
    """

    kind: Literal["unigram"] = "unigram"
    vocab_size: Annotated[int, Field(ge=100)] = 30000
    lowercase: bool = True
    character_coverage: Annotated[float, Field(gt=0.9, le=1)] = 0.99995


TokenizerSpec = Annotated[WordPiece | ByteBPE | Unigram, Field(discriminator="kind"), ByName]
