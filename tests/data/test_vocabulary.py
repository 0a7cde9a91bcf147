import unicodedata
from pathlib import Path

import pytest
from token_samples import auto_tokenizer, chinese_documents, clean_corpus_of, english_documents, files_of, sentences_of

from maskwright.data.cleaning.store import CleanCorpus
from maskwright.data.tokenizers.backends import BYTE_BPE_NAMES, UNIGRAM_NAMES, WORDPIECE_NAMES
from maskwright.data.tokenizers.spec import ByteBPE, Unigram, WordPiece
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.tokenizers.training import sample_texts, train_tokenizer


@pytest.fixture(scope="module")
def english(tmp_path_factory: pytest.TempPathFactory) -> CleanCorpus:
    return clean_corpus_of(tmp_path_factory.mktemp("english"), [english_documents()])


@pytest.fixture(scope="module")
def chinese(tmp_path_factory: pytest.TempPathFactory) -> CleanCorpus:
    return clean_corpus_of(tmp_path_factory.mktemp("chinese"), [chinese_documents()])


@pytest.mark.parametrize("spec", [WordPiece(vocab_size=1500), ByteBPE(vocab_size=1500), Unigram(vocab_size=1500)])
def test_training_gives_the_same_bytes_every_time(spec, english, chinese, tmp_path):
    for corpus in (english, chinese):
        first, second = (tmp_path / f"{corpus.fingerprint}{run}" for run in range(2))
        for cache in (first, second):
            train_tokenizer(spec, corpus, seed=0, cache=cache)
        assert files_of(first) == files_of(second)


@pytest.mark.parametrize(
    ("spec", "ids", "names", "tokens"),
    [
        (WordPiece(vocab_size=1000), [0, 1, 2, 3, 4], WORDPIECE_NAMES, ["of", "the", "function"]),
        (ByteBPE(vocab_size=1000), [1, 3, 0, 2, 999], BYTE_BPE_NAMES, ["Ġof", "Ġthe", "Ġfunction"]),
        (Unigram(vocab_size=1000), [0, 1, 2, 3, 4], UNIGRAM_NAMES, ["▁of", "▁the", "▁function"]),
    ],
)
def test_vocabularies_are_laid_out_as_published(spec, ids, names, tokens, english, tmp_path):
    tokenizer = train_tokenizer(spec, english, seed=0, cache=tmp_path)
    special = tokenizer.special_tokens
    assert [special.pad, special.unk, special.cls, special.sep, special.mask] == ids
    assert tokenizer.tokens(ids) == list(special.names) == list(names)
    assert special.vocab_size == 1000
    assert (tokenizer.kind, tokenizer.lowercase) == (spec.kind, spec.kind != "byte_bpe")
    assert tokenizer.tokens(tokenizer.encode(" of the function").ids) == tokens


def test_wordpiece_vocabulary_contains_all_printable_ascii(english: CleanCorpus, tmp_path: Path) -> None:
    uncased = train_tokenizer(WordPiece(vocab_size=2000), english, seed=0, cache=tmp_path)
    every = "".join(chr(code) for code in range(33, 127))
    for text in (every, " ".join(every), "zq7@xk-jv.QQ"):
        assert uncased.special_tokens.unk not in uncased.encode(text).ids


def test_wordpiece_vocabulary_covers_chinese_beyond_a_thousand_characters(chinese: CleanCorpus, tmp_path: Path) -> None:
    tokenizer = train_tokenizer(WordPiece(vocab_size=3000), chinese, seed=0, cache=tmp_path)
    ids = [id for ids in tokenizer.encode_batch(sentences_of(chinese)) for id in ids.tolist()]
    assert len(set(ids)) > 1500
    assert ids.count(tokenizer.special_tokens.unk) / len(ids) < 1e-3
    assert not [each for each in tokenizer.tokens(range(3000)) if len(each) > 1 and "\u4e00" <= each[-1] <= "\u9fff"]


def test_wordpiece_vocabulary_leaves_room_for_words_when_characters_abound(chinese, english, tmp_path):
    both = clean_corpus_of(tmp_path / "both", [list(chinese.sentences(0)), list(english.sentences(0))])
    tokenizer = train_tokenizer(WordPiece(vocab_size=1000), both, seed=0, cache=tmp_path)
    lengths = [len(token.removeprefix("##")) for token in tokenizer.tokens(range(5, 1000))]
    assert sum(length > 1 for length in lengths) >= 0.2 * 995
    assert tokenizer.tokens(tokenizer.encode("the").ids) == ["the"]


def test_cased_wordpiece_keeps_case_and_accents(tmp_path: Path) -> None:
    corpus = clean_corpus_of(tmp_path / "text", [[["The café of Zoë and the Café of Zoë."] * 5]])
    spec = WordPiece(vocab_size=300, lowercase=False)
    tokenizer = train_tokenizer(spec, corpus, seed=0, cache=tmp_path)
    assert tokenizer.tokens(tokenizer.encode("Zoë The café").ids) == ["Zoë", "The", "café"]
    assert not tokenizer.lowercase


NEEDING_MARKS = {
    "Hindi": "यह एक परीक्षण वाक्य है और दिल्ली भारत की राजधानी है",
    "Malayalam": "മലയാളം ഭാഷ കേരളം",
    "Tamil": "தமிழ் ஒரு மொழி ஆகும்",
    "Thai": "กรุงเทพมหานครเป็นเมืองหลวงที่ใหญ่",
    "Japanese": "がっこうでべんきょうする デザイン",
    "Korean": "서울은 대한민국의 수도이다",
}


@pytest.mark.parametrize("text", NEEDING_MARKS.values(), ids=NEEDING_MARKS.keys())
@pytest.mark.parametrize("spec", [WordPiece(vocab_size=300), Unigram(vocab_size=200)])
def test_uncased_tokenizers_keep_marks_that_are_letters(spec, text, tmp_path):
    corpus = clean_corpus_of(tmp_path / "text", [[[text, " In Delhi. Café."] * 5]])
    tokenizer = train_tokenizer(spec, corpus, seed=0, cache=tmp_path)
    assert tokenizer.lowercase
    assert not tokenizer.drops_marks
    text += " café"
    ids = tokenizer.encode(f"{text} CAFÉ").ids
    spelled = "".join(tokenizer.tokens(ids)).replace("##", "").replace("\u2581", "")
    assert spelled == f"{text}café".replace(" ", "")
    tokenizer.save(tmp_path / "saved")
    other = auto_tokenizer(tmp_path / "saved")
    assert other(f"{text} CAFÉ", add_special_tokens=False)["input_ids"] == ids.tolist()
    assert not Tokenizer.from_folder(tmp_path / "saved").drops_marks
    assert tokenizer.encode(unicodedata.normalize("NFD", f"{text} CAFÉ")).ids.tolist() == ids.tolist()


@pytest.mark.parametrize(
    "text", ["The café of Zoë \u2764\ufe0f", "Ελλάδα και Ёлка", "كِتَابٌ", "שָׁלוֹם", "中文文本"], ids=ascii
)
@pytest.mark.parametrize("spec", [WordPiece(vocab_size=300), Unigram(vocab_size=200)])
def test_uncased_tokenizers_drop_accents_and_points(spec, text, tmp_path):
    corpus = clean_corpus_of(tmp_path / "text", [[[text, " In Delhi."] * 5]])
    tokenizer = train_tokenizer(spec, corpus, seed=0, cache=tmp_path)
    assert tokenizer.drops_marks
    assert tokenizer.encode("Zoë").ids.tolist() == tokenizer.encode("zoe").ids.tolist()


def test_vocabulary_of_a_tiny_corpus_is_smaller_than_requested(tmp_path: Path) -> None:
    corpus = clean_corpus_of(tmp_path / "text", [[["One sentence only."]]])
    for spec in (WordPiece(vocab_size=5000), ByteBPE(vocab_size=5000), Unigram(vocab_size=5000)):
        tokenizer = train_tokenizer(spec, corpus, seed=0, cache=tmp_path)
        vocab_size = tokenizer.special_tokens.vocab_size
        assert vocab_size < 500
        assert tokenizer.decode(tokenizer.encode("one sentence").ids) == "one sentence"


def test_tokenizer_is_kept_and_progress_reported(english: CleanCorpus, tmp_path: Path) -> None:
    reported: list[tuple[str, int, int | None]] = []
    spec = WordPiece(vocab_size=1500)
    first = train_tokenizer(spec, english, seed=0, cache=tmp_path, progress=lambda *call: reported.append(call))
    assert reported[0][1] == 0
    assert reported[-1][1] == reported[-1][2]
    reported.clear()
    again = train_tokenizer(spec, english, seed=0, cache=tmp_path, progress=lambda *call: reported.append(call))
    assert again.fingerprint == first.fingerprint
    assert not reported
    train_tokenizer(spec, english, seed=1, cache=tmp_path, progress=lambda *call: reported.append(call))
    assert reported


def test_sample_is_bounded_seeded_and_cuts_unbroken_runs(english: CleanCorpus, tmp_path: Path) -> None:
    draw = [sample_texts(english, 20_000, seed) for seed in (0, 0, 1)]
    assert draw[0] == draw[1] != draw[2]
    assert sum(len(text.encode()) for text in draw[0]) <= 20_000
    run = clean_corpus_of(tmp_path, [[["a" * 2500]]])
    assert [len(text) for text in sample_texts(run, 10_000, 0)] == [1000, 1000, 500]
