"""Unigram tokenizers: cleaning, words, special tokens, folders and vocabularies as ALBERT's."""

import itertools
import json
import unicodedata

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from token_samples import (
    AWKWARD,
    CHINESE,
    assert_same_as_transformers,
    awkward_text,
    chinese_documents,
    english_sentences,
)
from tokenizers import normalizers, pre_tokenizers

from maskwright.data.tokenizers.backends import NEVER, UNIGRAM_NAMES, unigram_backend
from maskwright.data.tokenizers.spec import Unigram
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.tokenizers.training import train_unigram

ENGLISH = english_sentences()
FOREIGN = (
    "Die Größe der Straßen und ihre Überführung, sagte er.",
    "Числа и слова: приглашение отклонено.",
    "مرحبا بالعالم العربي الكبير، وشكرا.",
    "हिन्दी भाषा में लिखा हुआ है।",
    "한국어 텍스트를 말하기, 안녕하세요.",
)
TEXTS = [
    *AWKWARD,
    *CHINESE,
    *FOREIGN,
    "1,234,567 and 5, or 2019, then 3.5, ``quoted'' (so) x=3°",
    "a <pad> b <unk> c [CLS] d [SEP] e [MASK] f",
    "emoji 😀😀👩‍👩‍👧done 🇩🇪",
]


@pytest.fixture(scope="module")
def learnt() -> dict[bool, Tokenizer]:
    """A tokenizer that lower-cases (True) and one that does not."""
    chinese = [sentence for document in chinese_documents(300) for sentence in document][:600]
    texts = [*ENGLISH, *chinese, *FOREIGN * 20]
    return {cased: train_unigram(Unigram(vocab_size=1500, lowercase=cased), texts, texts) for cased in (True, False)}


def words_of(tokenizer: Tokenizer, text: str) -> list[str]:
    """Return the words of a text as pieces joined, spaces left out."""
    encoded = tokenizer.encode(text)
    marked = [
        ("|" if start else "") + piece.replace("▁", "")
        for piece, start in zip(tokenizer.tokens(encoded.ids), encoded.word_starts, strict=True)
    ]
    return "".join(marked).split("|")[1:]


# Cleaning.


@given(text=awkward_text)
@pytest.mark.parametrize("lowercase", [True, False])
def test_cleaning_agrees_with_alberts_rules_step_by_step(lowercase, text, learnt):
    # What a character of later years is depends on the year of a library's Unicode tables.
    assume(all(unicodedata.ucd_3_2_0.category(character) != "Cn" for character in text))
    quoted = text.replace("``", '"').replace("''", '"')
    taken_apart = unicodedata.normalize("NFKD", quoted)
    plain = "".join(character for character in taken_apart if unicodedata.category(character)[0] != "M")
    # Final sigma is σ: letter by letter.
    expected = "".join(map(str.lower, plain)) if lowercase else plain
    assert learnt[lowercase].backend.normalizer.normalize_str(text) == expected


# Words.


def reference_starts(pieces: list[str], unk: str) -> list[bool]:
    """Return where words begin, piece by piece by the rule."""
    starts: list[bool] = []
    stands_alone_before = lone_before = False
    for piece in pieces:
        body = piece.removeprefix("▁")
        if piece in ("<pad>", "[CLS]", "[SEP]", "[MASK]"):
            starts.append(True)
            stands_alone_before, lone_before = True, False
            continue
        sign = body != "" and piece != unk and alone(body[0])
        ideograph = any("CJK" in unicodedata.name(character, "") for character in body)
        begins = piece.startswith("▁") or ((sign or ideograph or stands_alone_before) and not lone_before)
        starts.append(begins or not starts)
        stands_alone_before = body != "" and piece != unk and alone(body[-1])
        lone_before = piece == "▁"
    return starts


def alone(character: str) -> bool:
    return unicodedata.category(character)[0] in "PS" or "CJK UNIFIED" in unicodedata.name(character, "")


@given(text=awkward_text)
def test_word_starts_follow_the_rule_piece_by_piece(text: str, learnt: dict[bool, Tokenizer]) -> None:
    tokenizer = learnt[True]
    encoded = tokenizer.encode(text)
    assert encoded.word_starts.tolist() == reference_starts(tokenizer.tokens(encoded.ids), "<unk>")
    assert np.array_equal(*tokenizer.encode_batch([text]), encoded.ids)


# Special tokens.


@pytest.mark.parametrize("lowercase", [True, False])
@given(parts=st.lists(st.sampled_from([*UNIGRAM_NAMES, "<", "pad>", " ", "a", "[MASK", "\U00010330"]), max_size=8))
def test_special_tokens_written_in_text_are_spelt(lowercase, parts, learnt):
    tokenizer, text = learnt[lowercase], "".join(parts)
    ids = tokenizer.encode(text).ids
    assert not {0, 2, 3, 4} & set(ids.tolist())
    if "\U00010330" not in text:
        assert 1 not in ids
        spelt = text.lower() if lowercase else text
        assert "".join(tokenizer.tokens(ids)).replace("▁", "") == spelt.replace(" ", "")


def test_text_after_a_mask_is_tokenized_as_after_a_word(learnt: dict[bool, Tokenizer]) -> None:
    tokenizer = learnt[True]
    assert tokenizer.tokens(tokenizer.encode("so [MASK].", special_tokens_in_text=True).ids)[1:] == ["[MASK]", "▁", "."]
    for text, expected in {
        "the [MASK].": ["▁the", "[MASK]", "."],
        "the[MASK]s the": ["▁the", "[MASK]", "s", "▁the"],
        " [MASK]  the\n": ["[MASK]", "▁the"],
        "[MASK][MASK] [MASK]": ["[MASK]"] * 3,
    }.items():
        encoded = tokenizer.encode_around_masks(text)
        assert tokenizer.tokens(encoded.ids) == expected
        masks = encoded.ids == tokenizer.special_tokens.mask
        assert {text[start:end] for start, end in encoded.offsets[masks]} == {"[MASK]"}


# Folders.


def test_unigram_tokenizer_of_other_assembly_reads_and_saves_with_the_same_ids(learnt, tmp_path):
    """Names, order of ids and cleaning as XLM-R's."""
    vocabulary = json.loads(learnt[False].backend.to_str())["model"]["vocab"]
    names = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
    head = [(name, 0.0) for name in ("<s>", "<pad>", "</s>", "<unk>")]
    pieces = [*head, *((piece, score) for piece, score in vocabulary[5:]), ("<mask>", 0.0)]
    backend = unigram_backend(pieces, names=names, normalizer=normalizers.NFKC())
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    (tmp_path / "model").mkdir()
    backend.save(str(tmp_path / "model" / "tokenizer.json"))
    tokenizer = Tokenizer.from_folder(tmp_path / "model")
    assert tokenizer.special_tokens.names == names
    assert (tokenizer.special_tokens.pad, tokenizer.special_tokens.mask) == (1, len(pieces) - 1)
    # Read as it is but for special tokens that are spelt in text.
    scores = dict(map(tuple, json.loads(tokenizer.backend.to_str())["model"]["vocab"]))
    assert scores["<mask>"] == NEVER
    assert tokenizer.tokens(tokenizer.encode("the <mask>").ids)[-1] != "<mask>"
    assert words_of(tokenizer, "Don't do it") == ["Don", "'", "t", "do", "it"]
    tokenizer.save(tmp_path / "saved")
    assert Tokenizer.from_folder(tmp_path / "saved").fingerprint == tokenizer.fingerprint
    assert_same_as_transformers(tokenizer, tmp_path / "saved", TEXTS)


# Training.


def trained(texts: list[str], **fields: object) -> Tokenizer:
    return train_unigram(Unigram.model_validate(fields), texts, texts)


def test_pieces_are_learnt_from_text_as_it_is_cleaned() -> None:
    texts = ["Der CAFÉ-Händler kam ﬁnal.", "``Ein café'' kostet Ⅳ Euro."] * 20
    cased, uncased = trained(texts, vocab_size=150, lowercase=False), trained(texts, vocab_size=150)
    for tokenizer, words in ((cased, ("Handler", '"Ein', "IV")), (uncased, ("handler", '"ein', "iv"))):
        ids = tokenizer.encode(" ".join(texts)).ids
        assert tokenizer.special_tokens.unk not in ids
        assert tokenizer.decode(ids).count(words[0]) == 20
        assert all(word in tokenizer.decode(ids) for word in words)
    assert not cased.lowercase


def test_no_piece_joins_a_digit_to_a_comma_behind_it() -> None:
    texts = [f"in {number * 37},{number * 91 % 1000:03d} of {number}, and" for number in range(2000)]
    tokenizer = trained(texts, vocab_size=300)
    pieces = tokenizer.tokens(range(tokenizer.special_tokens.vocab_size))
    assert any(len(piece) > 2 and piece[-2:].isdigit() for piece in pieces)
    for text in [*texts, "1,234,567, 2,", "5,,6,"]:
        actual = tokenizer.tokens(tokenizer.encode(text).ids)
        assert "".join(actual).replace("▁", " ").strip() == text
        assert not [piece for piece in actual for a, b in itertools.pairwise(piece) if a.isdigit() and b == ","]


def test_characters_are_covered_to_the_requested_share() -> None:
    texts = ["the same words " * 10] * 100 + ["Ж", "Щ" * 30]
    for coverage, known in ((0.95, ""), (0.999, "щ"), (1.0, "жщ")):
        tokenizer = trained(texts, vocab_size=120, character_coverage=coverage)
        vocabulary = tokenizer.backend.get_vocab()
        assert {letter for letter in "жщ" if letter in vocabulary} == set(known)


@pytest.mark.parametrize("sign", ["▁", "▅", "\x00", "\t", "\x1f", "\u0301", "⁇", "\U0010ffff"])
def test_characters_that_the_trainer_reserves_split_words(sign: str) -> None:
    texts = [*ENGLISH[:100], *[f"one{sign}two {sign} three{sign}", sign, ""] * 30]
    tokenizer = trained(texts, vocab_size=400)
    first, second, *_ = tokenizer.tokens(tokenizer.encode("the three").ids)
    assert first == "▁the"
    assert second.startswith("▁thr")
    assert not {"", "\t"} & set(tokenizer.tokens(range(5, 400)))


def test_vocabulary_of_a_tiny_text_is_smaller_than_requested_and_fits_a_recipe() -> None:
    for lowercase, smallest in ((True, 74), (False, 100)):
        tokenizer = trained(["a"], vocab_size=5000, lowercase=lowercase)
        vocab_size = tokenizer.special_tokens.vocab_size
        assert smallest <= vocab_size < 200
        assert Unigram(vocab_size=vocab_size, lowercase=lowercase).vocab_size == vocab_size
        smallest_asked = trained(["some words"], vocab_size=smallest, lowercase=lowercase)
        assert smallest_asked.special_tokens.vocab_size == smallest
