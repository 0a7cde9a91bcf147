"""Tokenizer directories as Hugging Face libraries read and write them.

A directory contains `tokenizer.json` (everything), or the older `vocab.txt` (WordPiece) or `vocab.json` with
`merges.txt` (byte-level BPE); `tokenizer_config.json` and `special_tokens_map.json` name the special
tokens and the casing.
"""

import json
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, processors

from maskwright.core.errors import DataError
from maskwright.core.storage.files import read_if_exists, write_json, write_text
from maskwright.core.text.amounts import listed
from maskwright.data.tokenizers.backends import (
    BYTE_BPE_NAMES,
    CONTINUATION,
    MAX_WORD_CHARACTERS,
    UNIGRAM_NAMES,
    WORDPIECE_NAMES,
    SpecialNames,
    byte_bpe_backend,
    is_albert_splitting,
    is_gpt2_splitting,
    library_errors,
    reserved,
    state_of,
    wordpiece_backend,
)
from maskwright.data.tokenizers.growth import refuse_growth

ROLES = ("pad", "unk", "cls", "sep", "mask")
_LAYOUTS = "tokenizer.json, or vocab.txt (WordPiece), or vocab.json with merges.txt (byte-level BPE)"


def read_folder(folder: Path) -> tuple[tokenizers.Tokenizer, SpecialNames]:
    """Read any tokenizer folder of the BERT family: the tokenizer, without truncation and padding, and its names.

    Raises DataError if there is no such folder, no tokenizer in it, or it lacks one of the five special tokens.
    """
    if not folder.is_dir():
        raise DataError(
            f"there is no tokenizer folder {str(folder)!r}",
            allowed=f"a folder with {_LAYOUTS}",
            hint="Check the path, or leave the tokenizer out to train one.",
        )
    config = {**read_if_exists(folder / "special_tokens_map.json"), **read_if_exists(folder / "tokenizer_config.json")}
    if (folder / "tokenizer.json").is_file():
        with library_errors(_cannot_read(folder / "tokenizer.json")):
            backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        names = _names(folder, config, backend.get_vocab())
        if isinstance(backend.model, models.Unigram):
            _reserve(backend, names)
        refuse_growth(backend, folder)
    elif (folder / "vocab.txt").is_file():
        # Lines end with "\n" only: a vocabulary may hold other characters that Python counts as line ends.
        lines = _text(folder / "vocab.txt").removesuffix("\n").split("\n")
        vocabulary = {line.removesuffix("\r"): number for number, line in enumerate(lines)}
        vocabulary |= _vocabulary(folder / "added_tokens.json")
        names = _names(folder, config, vocabulary)
        normalizer = normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=bool(config.get("tokenize_chinese_chars", True)),
            strip_accents=config.get("strip_accents"),
            lowercase=bool(config.get("do_lower_case", True)),
        )
        backend = wordpiece_backend(vocabulary, names=names, normalizer=normalizer)
    elif (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        vocabulary = _vocabulary(folder / "vocab.json") | _vocabulary(folder / "added_tokens.json")
        names = _names(folder, config, vocabulary)
        backend = _byte_bpe(folder, vocabulary, names)
    else:
        files = sorted(path.name for path in folder.iterdir())
        raise DataError(
            f"the folder {str(folder)!r} contains no tokenizer (it contains: {listed(files, 8) or 'nothing'})",
            allowed=_LAYOUTS,
            hint="Choose a folder that contains one, or save one there with transformers' `save_pretrained`.",
        )
    backend.no_truncation()
    backend.no_padding()
    return backend, names


TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("vocab.txt", "vocab.json", "merges.txt"),
)
"""Files that `write_folder` writes, the last three only for some kinds."""


def write_folder(
    folder: Path, backend: tokenizers.Tokenizer, names: SpecialNames, *, lowercase: bool, settings: dict[str, Any]
) -> None:
    """Write every file that transformers, tokenizers and older tools look for.

    Args:
        settings: Further entries of `tokenizer_config.json`.
    """
    vocabulary = sorted(backend.get_vocab().items(), key=lambda entry: entry[1])
    write_text(folder / "tokenizer.json", backend.to_str(pretty=True))
    if isinstance(backend.model, models.WordPiece):
        complete = [number for _, number in vocabulary] == list(range(len(vocabulary)))
        if complete and not any("\n" in token for token, _ in vocabulary):
            write_text(folder / "vocab.txt", "".join(f"{token}\n" for token, _ in vocabulary))
    elif isinstance(backend.model, models.BPE):
        merges = state_of(backend.model)["merges"]
        write_text(folder / "vocab.json", json.dumps(dict(vocabulary), ensure_ascii=False))
        write_text(folder / "merges.txt", "#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))
    settings = _class_settings(backend, names, lowercase) | settings
    special = {f"{role}_token": name for role, name in zip(ROLES, names, strict=True)}
    if settings["tokenizer_class"] in ("AlbertTokenizer", "RobertaTokenizer"):
        special |= {"bos_token": names[2], "eos_token": names[3]}
    write_json(folder / "tokenizer_config.json", settings | special)
    write_json(folder / "special_tokens_map.json", special)


def _class_settings(backend: tokenizers.Tokenizer, names: SpecialNames, lowercase: bool) -> dict[str, Any]:
    """Return transformers' class for a tokenizer with its settings.

    transformers rebuilds the tokenizer of a class from vocabulary and settings, so only exactly this assembly may be
    called by its name.
    """
    model, cleaning, splitting = backend.model, backend.normalizer, backend.pre_tokenizer
    if (
        isinstance(model, models.WordPiece)
        and isinstance(cleaning, normalizers.BertNormalizer)
        and cleaning.clean_text
        and isinstance(splitting, pre_tokenizers.BertPreTokenizer)
        and model.continuing_subword_prefix == CONTINUATION
        and model.max_input_chars_per_word == MAX_WORD_CHARACTERS
    ):
        return {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": lowercase,
            "strip_accents": cleaning.strip_accents,
            "tokenize_chinese_chars": cleaning.handle_chinese_chars,
        }
    if (
        isinstance(model, models.Unigram)
        and names == UNIGRAM_NAMES
        and backend.token_to_id(names[1]) == 1
        and is_albert_splitting(backend)
        and {token.content for token in backend.get_added_tokens_decoder().values()} == set(names)
    ):
        return {
            "tokenizer_class": "AlbertTokenizer",
            "do_lower_case": lowercase,
            "keep_accents": False,
            "add_prefix_space": True,
            # ALBERT has segments, but the class does not ask for them by itself.
            "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        }
    if (
        cleaning is None
        and is_gpt2_splitting(splitting)
        and isinstance(backend.post_processor, processors.RobertaProcessing)
    ):
        return {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": False, "trim_offsets": True}
    return {"tokenizer_class": "PreTrainedTokenizerFast"}


def _reserve(backend: tokenizers.Tokenizer, names: SpecialNames) -> None:
    state = state_of(backend.model)
    pieces = [(piece, score) for piece, score in state["vocab"]]
    lowered = reserved(pieces, names)
    if lowered != pieces:
        backend.model = models.Unigram(lowered, state["unk_id"], state.get("byte_fallback", False))


def _byte_bpe(folder: Path, vocabulary: dict[str, int], names: SpecialNames) -> tokenizers.Tokenizer:
    lines = _text(folder / "merges.txt").split("\n")
    pairs = [line.removesuffix("\r").split(" ") for line in lines if line and not line.startswith("#version")]
    with library_errors(_cannot_read(folder / "merges.txt")):  # also merges of more or fewer than two tokens
        return byte_bpe_backend(vocabulary, [(first, second) for first, second in pairs], names=names)


def _names(folder: Path, config: dict[str, Any], vocabulary: dict[str, int]) -> SpecialNames:
    names = []
    for role, candidates in zip(ROLES, zip(WORDPIECE_NAMES, BYTE_BPE_NAMES, UNIGRAM_NAMES, strict=True), strict=True):
        stated = config.get(f"{role}_token")
        stated = stated.get("content") if isinstance(stated, dict) else stated
        name = stated or next((name for name in candidates if name in vocabulary), None)
        if name is None or name not in vocabulary:
            problem = f"its {role} token {name!r} is not in the vocabulary" if name else f"it has no {role} token"
            raise DataError(
                f"the tokenizer in {str(folder)!r} cannot be used for masked language modelling: {problem}",
                allowed="a tokenizer with pad, unk, cls, sep and mask tokens",
                hint="Name the token in tokenizer_config.json, or choose a tokenizer of the BERT family.",
            )
        names.append(str(name))
    pad, unk, cls, sep, mask = names
    return pad, unk, cls, sep, mask


def _vocabulary(path: Path) -> dict[str, int]:
    ids = read_if_exists(path)
    for token, id in ids.items():
        if type(id) is not int or not 0 <= id < 1 << 31:
            raise _unreadable(path, f"the id of {token!r} is {id!r}")
    return ids


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except (UnicodeDecodeError, OSError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, reason: object) -> DataError:
    return DataError(f"{_cannot_read(path)}: {reason}", hint="Fetch or save the tokenizer again.")


def _cannot_read(path: Path) -> str:
    return f"cannot read the tokenizer file {str(path)!r}"
