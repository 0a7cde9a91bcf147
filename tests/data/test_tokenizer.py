import itertools
import json
import pickle
import shutil
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import regex
import tokenizers
from hypothesis import assume, given
from hypothesis import strategies as st
from token_samples import AWKWARD, CHINESE, assert_same_as_transformers, auto_tokenizer, awkward_text

from maskwright.core.errors import DataError
from maskwright.data.tokenizers.tokenizer import Tokenizer


@pytest.fixture(scope="module", params=["uncased", "cased", "byte_bpe", "unigram", "unigram cased"])
def tokenizer(request: pytest.FixtureRequest, trained: dict[str, Tokenizer]) -> Tokenizer:
    return trained[request.param]


@pytest.fixture(scope="module")
def google(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A vocab.txt laid out as Google's: [PAD] 0, [UNK] 100, [CLS] 101, [SEP] 102, [MASK] 103."""
    unused = [f"[unused{number}]" for number in range(99)]
    words = ["[UNK]", "[CLS]", "[SEP]", "[MASK]", "una", "##ffa", "##ble", "un", "$", "5", "cafe", "中", "a", "##a"]
    folder = tmp_path_factory.mktemp("google")
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", *unused, *words]) + "\n", encoding="utf-8")
    return Tokenizer.from_folder(folder)


# WordPiece as published.


def test_wordpiece_folder_keeps_googles_ids(google: Tokenizer) -> None:
    special = google.special_tokens
    assert (special.pad, special.unk, special.cls, special.sep, special.mask) == (0, 100, 101, 102, 103)
    assert special.vocab_size == 114
    assert google.kind == "wordpiece"
    assert google.lowercase


def test_wordpiece_takes_the_longest_piece_first_and_splits_as_bert(google: Tokenizer) -> None:
    assert google.tokens(google.encode("Unaffable $5 Café中café").ids) == [
        *("una", "##ffa", "##ble", "$", "5", "cafe", "中", "cafe")
    ]
    assert google.tokens(google.encode("a" * 100).ids) == ["a", *["##a"] * 99]
    assert google.tokens(google.encode("a" * 101 + " unb").ids) == ["[UNK]", "[UNK]"]


def reference_wordpiece(text: str, vocabulary: set[str], *, lowercase: bool) -> list[tuple[str, bool]]:
    """BERT's tokenizer step by step: (piece, whether it begins a word)."""
    cleaned = []
    for character in text:
        category, code = unicodedata.category(character), ord(character)
        if character in " \t\n\r" or category == "Zs":
            cleaned.append(" ")
        elif 0x4E00 <= code <= 0x9FFF:
            cleaned.append(f" {character} ")
        elif code not in (0, 0xFFFD) and category[0] != "C":
            cleaned.append(character)
    pieces = []
    for stretch in "".join(cleaned).split(" "):
        if lowercase:
            plain = unicodedata.normalize("NFD", stretch.lower())
            stretch = "".join(character for character in plain if unicodedata.category(character) != "Mn")
        for word in reference_words(stretch):
            pieces += [(piece, index == 0) for index, piece in enumerate(reference_pieces(word, vocabulary))]
    return pieces


def reference_words(stretch: str) -> list[str]:
    words, current = [], ""
    for character in stretch:
        if unicodedata.category(character)[0] == "P" or (character.isascii() and not character.isalnum()):
            words += [current, character]
            current = ""
        else:
            current += character
    return [word for word in [*words, current] if word]


def reference_pieces(word: str, vocabulary: set[str]) -> list[str]:
    pieces, start = [], 0
    while start < len(word) <= 100:
        prefix = "##" if start else ""
        end = next((end for end in range(len(word), start, -1) if prefix + word[start:end] in vocabulary), None)
        if end is None:
            return ["[UNK]"]
        pieces.append(prefix + word[start:end])
        start = end
    return pieces or ["[UNK]"]


@given(
    text=st.text(
        alphabet=st.one_of(
            st.sampled_from("abc def the THE ing. ,!$_éÉñçüß中文字  \t\n\x00\u0301\ufffd“”—"),
            st.characters(max_codepoint=0x17F, exclude_categories=["Cs"]),
        ),
        max_size=60,
    )
)
@pytest.mark.parametrize("name", ["uncased", "cased"])
def test_wordpiece_agrees_with_berts_rules_step_by_step(name: str, text: str, trained: dict[str, Tokenizer]) -> None:
    tokenizer = trained[name]
    vocabulary = set(tokenizer.backend.get_vocab())
    # U+0130 lower-cases to two characters in one order of steps and to one in the other.
    text = text.replace("\u0130", "")
    encoded = tokenizer.encode(text)
    actual = list(zip(tokenizer.tokens(encoded.ids), encoded.word_starts.tolist(), strict=True))
    assert actual == reference_wordpiece(text, vocabulary, lowercase=tokenizer.lowercase)


# Byte-level BPE as published.

GPT2 = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")


def byte_alphabet() -> dict[int, str]:
    """Map each byte to GPT-2's printable character for it."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + index) for index, byte in enumerate(others)}


def reference_bpe(text: str, ranks: dict[tuple[str, str], int]) -> list[tuple[str, bool]]:
    alphabet, pieces = byte_alphabet(), []
    for match in GPT2.finditer(text):
        word, goes_on = match.group(), within_a_written_word(text, match.start())
        parts = [alphabet[byte] for byte in word.encode()]
        while len(parts) > 1:
            rank, position = min((ranks.get(pair, 1 << 30), at) for at, pair in enumerate(itertools.pairwise(parts)))
            if rank == 1 << 30:
                break
            pair = (parts[position], parts[position + 1])
            merged, at = [], 0
            while at < len(parts):
                whole = tuple(parts[at : at + 2]) == pair
                merged.append("".join(pair) if whole else parts[at])
                at += 1 + whole
            parts = merged
        pieces += [(part, position == 0 and not goes_on) for position, part in enumerate(parts)]
    return pieces


def within_a_written_word(text: str, position: int) -> bool:
    """Say whether a mark, or a letter behind one, goes on with the word before it: our only change to GPT-2."""
    if position == 0:
        return False
    before, after = (unicodedata.category(character)[0] for character in text[position - 1 : position + 1])
    return (after == "M" and before in "LM") or (after == "L" and before == "M")


@given(text=awkward_text)
def test_byte_bpe_decodes_exactly_and_agrees_with_gpt2s_rules(text: str, trained: dict[str, Tokenizer]) -> None:
    tokenizer = trained["byte_bpe"]
    assert tokenizer.decode(tokenizer.encode(text).ids) == text
    # Which unassigned code points are letters depends on the year of a library's Unicode tables.
    assume(all(unicodedata.category(character) != "Cn" for character in text))
    merges = json.loads(tokenizer.backend.model.__getstate__())["merges"]
    ranks = {(first, second): rank for rank, (first, second) in enumerate(merges)}
    encoded = tokenizer.encode(text)
    actual = list(zip(tokenizer.tokens(encoded.ids), encoded.word_starts.tolist(), strict=True))
    assert actual == reference_bpe(text, ranks)


# Special tokens in text.


def test_special_tokens_written_in_a_corpus_are_ordinary_text(tokenizer: Tokenizer) -> None:
    special = tokenizer.special_tokens
    text = f"so {special.names[4]} and {special.names[3]}"
    reserved = {special.pad, special.cls, special.sep, special.mask}
    [ids] = tokenizer.encode_batch([text])
    assert not reserved & set(ids.tolist())
    assert np.array_equal(ids, tokenizer.encode(text).ids)


# Offsets and text.


def test_offsets_cover_the_words_of_the_text(tokenizer: Tokenizer) -> None:
    text = "Naïve 函数 returns 3 values, not 45."
    encoded = tokenizer.encode(text)
    assert encoded.offsets.shape == (len(encoded.ids), 2)
    first_of_word = np.flatnonzero(encoded.word_starts)
    ends = [*first_of_word[1:], len(encoded.ids)]
    words = [
        text[encoded.offsets[a, 0] : encoded.offsets[b - 1, 1]].strip()
        for a, b in zip(first_of_word, ends, strict=True)
    ]
    # Unknown characters that stand together are one unknown token of a unigram tokenizer.
    han = ["函", "数"] if tokenizer.kind == "wordpiece" else ["函数"]
    assert words == ["Naïve", *han, "returns", "3", "values", ",", "not", "45", "."]


def test_token_text_is_readable(trained: dict[str, Tokenizer]) -> None:
    wordpiece, byte_bpe = trained["uncased"], trained["byte_bpe"]
    assert wordpiece.token_text(wordpiece.backend.token_to_id("##s")) == "##s"
    assert byte_bpe.token_text(byte_bpe.backend.token_to_id("Ġthe")) == " the"
    assert byte_bpe.token_text(byte_bpe.special_tokens.mask) == "<mask>"
    ids = byte_bpe.encode("龘").ids
    assert byte_bpe.token_text(int(ids[0])) == "�"


# Folders.


def test_saved_folder_reads_back_the_same(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    again = Tokenizer.from_folder(tmp_path)
    assert again.fingerprint == tokenizer.fingerprint
    assert again.special_tokens == tokenizer.special_tokens
    assert (again.kind, again.lowercase) == (tokenizer.kind, tokenizer.lowercase)
    assert again.folder == tmp_path
    if tokenizer.kind != "unigram":
        # The older vocabulary files alone give the same tokenizer.
        (tmp_path / "tokenizer.json").unlink()
        assert Tokenizer.from_folder(tmp_path).fingerprint == tokenizer.fingerprint


def test_tokenizer_survives_pickling(tokenizer: Tokenizer) -> None:
    again = pickle.loads(pickle.dumps(tokenizer))
    assert again.fingerprint == tokenizer.fingerprint
    text = f"the function {tokenizer.special_tokens.names[4]}"
    assert np.array_equal(again.encode(text).ids, tokenizer.encode(text).ids)


def test_truncation_and_padding_of_a_folder_are_switched_off(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    backend = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    backend.enable_truncation(8)
    backend.enable_padding(length=8)
    backend.save(str(tmp_path / "tokenizer.json"))
    assert len(Tokenizer.from_folder(tmp_path).encode("one two three four " * 5).ids) >= 20


def test_tokenizer_without_mask_token_is_refused(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\n")
    with pytest.raises(DataError, match="it has no mask token"):
        Tokenizer.from_folder(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"mask_token": "<blank>"}')
    with pytest.raises(DataError, match="mask token '<blank>' is not in the vocabulary"):
        Tokenizer.from_folder(tmp_path)


def test_tokenizer_of_another_kind_is_refused(tmp_path: Path) -> None:
    pieces = [(name, 0.0) for name in ("<pad>", "<unk>", "<s>", "</s>", "<mask>", "a")]
    backend = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, unk_id=1))
    backend.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(DataError, match="of the kind Unigram"):
        Tokenizer.from_folder(tmp_path)


@pytest.mark.parametrize("content", ['{"model":', "[1]"])
@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_unreadable_file_is_named(name: str, content: str, google: Tokenizer, tmp_path: Path) -> None:
    google.save(tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=name.replace(".", r"\.")):
        Tokenizer.from_folder(tmp_path)


# Parity with transformers.

TEXTS = [*AWKWARD, *CHINESE, "Final Σίγμα and a quite longer line, with (brackets) and numbers 12345."]


def test_saved_folder_loads_in_transformers_with_the_same_ids(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path, max_length=128)
    theirs = assert_same_as_transformers(tokenizer, tmp_path, TEXTS)
    classes = {"wordpiece": "BertTokenizer", "byte_bpe": "RobertaTokenizer", "unigram": "AlbertTokenizer"}
    assert type(theirs).__name__ == classes[tokenizer.kind]
    assert ("token_type_ids" in theirs("a")) == (tokenizer.kind != "byte_bpe")
    assert theirs.model_max_length == 128


def test_folder_saved_by_transformers_reads_back_the_same(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "ours")
    auto_tokenizer(tmp_path / "ours").save_pretrained(tmp_path / "theirs")
    again = Tokenizer.from_folder(tmp_path / "theirs")
    assert again.special_tokens == tokenizer.special_tokens
    assert (again.kind, again.lowercase) == (tokenizer.kind, tokenizer.lowercase)
    for text in TEXTS:
        assert np.array_equal(again.encode(text).ids, tokenizer.encode(text).ids)


def test_modernberts_form_is_read_with_the_ids_of_transformers(tmp_path: Path) -> None:
    # In the published tokenizer.json runs of spaces and a mark of e-mail addresses follow the trained entries, then
    # [UNK] 50280, [CLS] 50281, [SEP] 50282, [PAD] 50283, [MASK] 50284 and unused entries.
    names = ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.normalizer = tokenizers.normalizers.NFC()
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(TEXTS * 2, trainer)
    spaces = [tokenizers.AddedToken(" " * count, normalized=True) for count in range(24, 1, -1)]
    backend.add_tokens([*spaces, tokenizers.AddedToken("|||EMAIL_ADDRESS|||", normalized=False)])
    first = backend.get_vocab_size()
    special = [tokenizers.AddedToken(name, normalized=False, lstrip=name == "[MASK]") for name in names]
    backend.add_special_tokens(special)
    backend.add_tokens([tokenizers.AddedToken(f"[unused{number}]", normalized=False) for number in range(3)])
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", first + 1), ("[SEP]", first + 2)],
    )
    backend.save(str(tmp_path / "tokenizer.json"))
    roles = {f"{name[1:-1].lower()}_token": name for name in names}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": ["input_ids", "attention_mask"]}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings | roles), encoding="utf-8")

    read = Tokenizer.from_folder(tmp_path)
    ids = read.special_tokens
    assert [ids.unk, ids.cls, ids.sep, ids.pad, ids.mask] == list(range(first, first + 5))
    assert (read.kind, read.lowercase, ids.vocab_size) == ("byte_bpe", False, first + 8)
    texts = [*TEXTS, "if a:" + " " * 30 + "b  c", "to |||EMAIL_ADDRESS||| [unused1]", "as [CLS] text [SEP][PAD]"]
    theirs = assert_same_as_transformers(read, tmp_path, texts)
    assert "token_type_ids" not in theirs("a", "b")
    assert theirs("a b")["input_ids"] == [ids.cls, *read.encode("a b").ids, ids.sep]

    read.save(tmp_path / "saved", segments=False)
    again = assert_same_as_transformers(Tokenizer.from_folder(tmp_path / "saved"), tmp_path / "saved", texts)
    assert again(texts)["input_ids"] == theirs(texts)["input_ids"]
    assert "token_type_ids" not in again("a", "b")


def test_tokenizer_of_other_assembly_loads_in_transformers_with_the_same_ids(trained, tmp_path):
    backend = tokenizers.Tokenizer.from_str(trained["uncased"].backend.to_str())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    mixed = Tokenizer(backend, trained["uncased"].special_tokens.names)
    mixed.save(tmp_path / "wordpiece")
    assert_same_as_transformers(mixed, tmp_path / "wordpiece", TEXTS)
    backend = tokenizers.Tokenizer.from_str(trained["byte_bpe"].backend.to_str())
    backend.normalizer = tokenizers.normalizers.Sequence([tokenizers.normalizers.Lowercase()])
    lowered = Tokenizer(backend, trained["byte_bpe"].special_tokens.names)
    assert lowered.lowercase
    lowered.save(tmp_path / "byte_bpe")
    assert_same_as_transformers(lowered, tmp_path / "byte_bpe", TEXTS)
    shutil.rmtree(tmp_path)
