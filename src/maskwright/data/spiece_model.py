"""The pieces of a `spiece.model`, as the sentencepiece library writes it.

The library checks the file, but does not tell which symbols are the user's own nor the table of replacements of the
model's cleaning. So the model is read in its serialised form: protocol buffers, rows of (field number, value), the
numbers as in sentencepiece's sentencepiece_model.proto.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from maskwright.core.errors import DataError

# Numbers of fields (of the model, its trainer_spec, its normalizer_spec, a piece) and values of two enumerations.
_PIECES, _TRAINER_SPEC, _NORMALIZER_SPEC = 1, 2, 3
_MODEL_TYPE, _UNIGRAM = 3, 1
_CHARSMAP = 2
_PIECE_TEXT, _PIECE_SCORE, _PIECE_KIND = 1, 2, 3
_NORMAL, _USER_DEFINED, _BYTE = 1, 4, 6
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5

_NUMBER_COMMA_PENALTY = 100.0  # As in transformers' conversion of ALBERT's own models.


@dataclass(frozen=True, slots=True)
class SpieceModel:
    """What a `spiece.model` says.

    Attributes:
        pieces: Piece and score, in order of id.
        charsmap: The compiled table of replacements of its cleaning; empty if it has none.
    """

    pieces: tuple[tuple[str, float], ...]
    charsmap: bytes


def read_spiece_model(path: Path) -> SpieceModel:
    """Read a unigram model.

    The user's own symbols get the score that makes them win over all other ways to cut a text (sentencepiece does
    that while it cuts), and a piece that joins a digit to a comma behind it one that makes it lose, which is the
    re-splitting of ALBERT's code (albert: tokenization.py:80-100) written into the vocabulary.

    Raises:
        DataError: If it cannot be read or is of another kind.
    """
    import sentencepiece  # Only for folders of this form.

    try:
        model = sentencepiece.SentencePieceProcessor(model_file=str(path)).serialized_model_proto()
    except (OSError, RuntimeError) as error:
        raise DataError(
            f"cannot read the tokenizer file {str(path)!r}: {error}", todo="Fetch or save the tokenizer again."
        ) from error
    fields = list(_fields(model))
    pieces = [_Piece.read(value) for number, value in fields if number == _PIECES and isinstance(value, bytes)]
    is_unigram = dict(_nested(fields, _TRAINER_SPEC)).get(_MODEL_TYPE, _UNIGRAM) == _UNIGRAM
    if not is_unigram or any(piece.kind == _BYTE for piece in pieces):
        what = "falls back to bytes" if is_unigram else "is not a unigram model"
        raise DataError(
            f"the sentencepiece model {str(path)!r} {what}",
            allowed="a model trained with model_type=unigram and without byte_fallback",
            todo="Choose another tokenizer or leave it out to train one.",
        )
    best = max((piece.score for piece in pieces if piece.kind == _NORMAL), default=0.0)
    charsmap = dict(_nested(fields, _NORMALIZER_SPEC)).get(_CHARSMAP, b"")
    return SpieceModel(
        tuple((piece.text, round(_effective_score(piece, best), 6)) for piece in pieces),
        charsmap if isinstance(charsmap, bytes) else b"",
    )


@dataclass(frozen=True, slots=True)
class _Piece:
    text: str
    score: float
    kind: int

    @classmethod
    def read(cls, data: bytes) -> "_Piece":
        text, score, kind = "", 0.0, _NORMAL
        for number, value in _fields(data):
            if number == _PIECE_TEXT and isinstance(value, bytes):
                text = value.decode()
            elif number == _PIECE_SCORE and isinstance(value, bytes):
                (score,) = struct.unpack("<f", value)
            elif number == _PIECE_KIND and isinstance(value, int):
                kind = value
        return cls(text, score, kind)


def _effective_score(piece: _Piece, best: float) -> float:
    if piece.kind == _USER_DEFINED:
        return len(piece.text) * best - 0.1  # As unigram_model.cc scores them.
    if len(piece.text) > 1 and piece.text[-1] == "," and piece.text[-2].isdigit():
        return piece.score - _NUMBER_COMMA_PENALTY
    return piece.score


def _nested(fields: list[tuple[int, int | bytes]], wanted: int) -> Iterator[tuple[int, int | bytes]]:
    for number, value in fields:
        if number == wanted and isinstance(value, bytes):
            yield from _fields(value)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of one message: numbers as they are, everything else as bytes."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, place = _varint(data, place)
            yield number, value
            continue
        if kind == _LENGTH:
            size, place = _varint(data, place)
        else:
            size = {_FOUR_BYTES: 4, _EIGHT_BYTES: 8}[kind]
        yield number, data[place : place + size]
        place += size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
