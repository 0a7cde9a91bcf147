"""Tokenizer directories as Hugging Face libraries read and write them.

A directory holds `tokenizer.json` (everything), or the older `vocab.txt` (WordPiece), or `vocab.json` with
`merges.txt` (byte-level BPE), or `spiece.model` (unigram); `tokenizer_config.json` and `special_tokens_map.json` name
the special tokens and the casing.

The sentencepiece library validates a `spiece.model` but exposes neither user-defined symbols nor the normalizer's
character map, so these are read from its protocol buffer: (field number, value) pairs numbered as in
sentencepiece_model.proto.
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, processors

from maskwright.core.errors import DataError
from maskwright.core.files import read_json, write_json, write_text
from maskwright.data.tokenizers.backends import (
    BYTE_BPE_NAMES,
    CONTINUATION,
    MAX_WORD_CHARACTERS,
    UNIGRAM_NAMES,
    WORDPIECE_NAMES,
    SpecialNames,
    albert_normalizer,
    byte_bpe_backend,
    is_albert_splitting,
    reserved,
    state_of,
    unigram_backend,
    wordpiece_backend,
)

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


ROLES = ("pad", "unk", "cls", "sep", "mask")
_LAYOUTS = (
    "tokenizer.json, or vocab.txt (WordPiece), or vocab.json with merges.txt (byte-level BPE), "
    "or spiece.model (unigram)"
)


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """What a tokenizer folder says.

    Attributes:
        backend: The tokenizer, truncation and padding switched off.
        names: Written forms of (pad, unk, cls, sep, mask).
    """

    backend: tokenizers.Tokenizer
    names: SpecialNames


def read_folder(folder: Path) -> TokenizerFiles:
    """Read any tokenizer folder of the BERT family.

    Raises:
        DataError: If there is no such folder, no tokenizer in it, or it lacks one of the five special tokens.
    """
    if not folder.is_dir():
        raise DataError(
            f"there is no tokenizer folder {str(folder)!r}",
            allowed=f"a folder with {_LAYOUTS}",
            todo="Check the path, or leave the tokenizer out to train one.",
        )
    config = {**_read(folder / "special_tokens_map.json"), **_read(folder / "tokenizer_config.json")}
    if (folder / "tokenizer.json").is_file():
        backend = _whole(folder / "tokenizer.json")
        names = _names(folder, config, backend.get_vocab())
        if isinstance(backend.model, models.Unigram):
            _reserve(backend, names)
    elif (folder / "vocab.txt").is_file():
        # Lines end with "\n" only: a vocabulary may hold other characters that Python counts as line ends.
        lines = _text(folder / "vocab.txt").removesuffix("\n").split("\n")
        vocabulary = {line.removesuffix("\r"): number for number, line in enumerate(lines)}
        vocabulary |= _read(folder / "added_tokens.json")
        names = _names(folder, config, vocabulary)
        normalizer = normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=bool(config.get("tokenize_chinese_chars", True)),
            strip_accents=config.get("strip_accents"),
            lowercase=bool(config.get("do_lower_case", True)),
        )
        backend = wordpiece_backend(vocabulary, names=names, normalizer=normalizer)
    elif (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        vocabulary = _read(folder / "vocab.json") | _read(folder / "added_tokens.json")
        names = _names(folder, config, vocabulary)
        backend = _byte_bpe(folder, vocabulary, names)
    elif (folder / "spiece.model").is_file():
        spiece = read_spiece_model(folder / "spiece.model")
        names = _names(folder, config, {piece: number for number, (piece, _) in enumerate(spiece.pieces)})
        cleaning = albert_normalizer(
            lowercase=bool(config.get("do_lower_case", True)),
            keep_accents=bool(config.get("keep_accents", False)),
            charsmap=spiece.charsmap,
        )
        backend = unigram_backend(reserved(spiece.pieces, names), names=names, normalizer=cleaning)
    else:
        held = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
        raise DataError(
            f"the folder {str(folder)!r} holds no tokenizer (found: {held})",
            allowed=_LAYOUTS,
            todo="Choose a folder saved with `save_pretrained`, or leave the tokenizer out to train one.",
        )
    backend.no_truncation()
    backend.no_padding()
    return TokenizerFiles(backend, names)


def write_folder(
    folder: Path,
    backend: tokenizers.Tokenizer,
    names: SpecialNames,
    *,
    lowercase: bool,
    max_length: int | None,
    segments: bool | None = None,
    split_special_tokens: bool = False,
) -> None:
    """Write every file that transformers, tokenizers and older tools look for (see the module's head)."""
    vocabulary = sorted(backend.get_vocab().items(), key=lambda entry: entry[1])
    tokens = [token for token, _ in vocabulary]
    complete = [number for _, number in vocabulary] == list(range(len(vocabulary)))
    write_text(folder / "tokenizer.json", backend.to_str(pretty=True))
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    special = {f"{role}_token": name for role, name in zip(ROLES, names, strict=True)}
    if isinstance(backend.model, tokenizers.models.WordPiece):
        if complete and not any("\n" in token for token in tokens):
            write_text(folder / "vocab.txt", "".join(f"{token}\n" for token in tokens))
        if _is_bert(backend):
            cleaning = backend.normalizer
            settings = {
                "tokenizer_class": "BertTokenizer",
                "do_lower_case": lowercase,
                "strip_accents": cleaning.strip_accents,
                "tokenize_chinese_chars": cleaning.handle_chinese_chars,
            }
    elif isinstance(backend.model, models.Unigram):
        if _is_albert(backend, names):
            cleaned = {part["type"] for part in state_of(backend.normalizer)["normalizers"]}
            settings = {
                "tokenizer_class": "AlbertTokenizer",
                "do_lower_case": lowercase,
                "keep_accents": "StripAccents" not in cleaned,
                "add_prefix_space": True,
                # ALBERT has segments, but the class does not ask for them by itself.
                "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
            }
            special |= {"bos_token": names[2], "eos_token": names[3]}
    else:
        merges = json.loads(backend.model.__getstate__())["merges"]
        write_text(folder / "vocab.json", json.dumps(dict(vocabulary), ensure_ascii=False))
        write_text(folder / "merges.txt", "#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))
        if _is_roberta(backend):
            settings = {
                "tokenizer_class": "RobertaTokenizer",
                "add_prefix_space": False,
                "trim_offsets": True,
            }
            # The mask token's taste for the space before it stands in tokenizer.json.
            special |= {"bos_token": names[2], "eos_token": names[3]}
    if max_length is not None:
        settings["model_max_length"] = max_length
    if segments is not None:
        settings["model_input_names"] = ["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"]
    if split_special_tokens:
        settings["split_special_tokens"] = True
    write_json(folder / "tokenizer_config.json", settings | special)
    write_json(folder / "special_tokens_map.json", special)


def _is_bert(backend: tokenizers.Tokenizer) -> bool:
    # transformers builds a BertTokenizer anew from vocabulary and casing, so only this very assembly may say
    # so.
    return (
        isinstance(backend.normalizer, normalizers.BertNormalizer)
        and backend.normalizer.clean_text
        and isinstance(backend.pre_tokenizer, pre_tokenizers.BertPreTokenizer)
        and backend.model.continuing_subword_prefix == CONTINUATION
        and backend.model.max_input_chars_per_word == MAX_WORD_CHARACTERS
    )


def _is_roberta(backend: tokenizers.Tokenizer) -> bool:
    splitting = backend.pre_tokenizer
    return (
        backend.normalizer is None
        and isinstance(splitting, pre_tokenizers.ByteLevel)
        and splitting.use_regex
        and not splitting.add_prefix_space
        and isinstance(backend.post_processor, processors.RobertaProcessing)
    )


def _is_albert(backend: tokenizers.Tokenizer, names: SpecialNames) -> bool:
    # transformers builds an AlbertTokenizer anew from pieces and casing.
    return (
        names == UNIGRAM_NAMES
        and backend.token_to_id(names[1]) == 1
        and is_albert_splitting(backend, with_charsmap=True)
        and {token.content for token in backend.get_added_tokens_decoder().values()} == set(names)
    )


def _reserve(backend: tokenizers.Tokenizer, names: SpecialNames) -> None:
    state = state_of(backend.model)
    pieces = [(piece, score) for piece, score in state["vocab"]]
    lowered = reserved(pieces, names)
    if lowered != pieces:
        backend.model = models.Unigram(lowered, state["unk_id"], state.get("byte_fallback", False))


def _whole(path: Path) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # The library raises bare `Exception` for any fault in the file.
        raise _unreadable(path, error) from error


def _byte_bpe(folder: Path, vocabulary: dict[str, int], names: SpecialNames) -> tokenizers.Tokenizer:
    lines = _text(folder / "merges.txt").split("\n")
    pairs = [line.removesuffix("\r").split(" ") for line in lines if line and not line.startswith("#version")]
    try:
        return byte_bpe_backend(vocabulary, [(first, second) for first, second in pairs], names=names)
    except Exception as error:  # As above; and merges of more or fewer than two tokens.
        raise _unreadable(folder / "merges.txt", error) from error


def _names(folder: Path, config: dict[str, Any], vocabulary: dict[str, int]) -> SpecialNames:
    found = []
    for role, candidates in zip(ROLES, zip(WORDPIECE_NAMES, BYTE_BPE_NAMES, UNIGRAM_NAMES, strict=True), strict=True):
        stated = config.get(f"{role}_token")
        stated = stated.get("content") if isinstance(stated, dict) else stated
        name = stated or next((name for name in candidates if name in vocabulary), None)
        if name is None or name not in vocabulary:
            problem = f"its {role} token {name!r} is not in the vocabulary" if name else f"it has no {role} token"
            raise DataError(
                f"the tokenizer in {str(folder)!r} cannot be used for masked language modelling: {problem}",
                allowed="a tokenizer with pad, unk, cls, sep and mask tokens",
                todo="Name the token in tokenizer_config.json, or choose a tokenizer of the BERT family.",
            )
        found.append(str(name))
    pad, unk, cls, sep, mask = found
    return pad, unk, cls, sep, mask


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = read_json(path)
    except (ValueError, OSError) as error:
        raise _unreadable(path, error) from error
    if not isinstance(value, dict):
        raise _unreadable(path, f"an object was expected, found {type(value).__name__}")
    return value


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except (UnicodeDecodeError, OSError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, reason: object) -> DataError:
    return DataError(
        f"cannot read the tokenizer file {str(path)!r}: {reason}", todo="Fetch or save the tokenizer again."
    )
