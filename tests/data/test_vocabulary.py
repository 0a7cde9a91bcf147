from pathlib import Path

import pytest
from token_samples import chinese_documents, clean_corpus_of, english_documents

from maskwright.data.cleaning.store import CleanCorpus
from maskwright.data.tokenizers.spec import ByteBPE, TokenizerSpec, Unigram, WordPiece
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.tokenizers.training import sample_texts, train_tokenizer


@pytest.fixture(scope="module")
def english(tmp_path_factory: pytest.TempPathFactory) -> CleanCorpus:
    return clean_corpus_of(tmp_path_factory.mktemp("english"), [english_documents()])


@pytest.fixture(scope="module")
def chinese(tmp_path_factory: pytest.TempPathFactory) -> CleanCorpus:
    return clean_corpus_of(tmp_path_factory.mktemp("chinese"), [chinese_documents()])


@pytest.fixture(scope="module")
def uncased(english: CleanCorpus, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return train_tokenizer(WordPiece(vocab_size=2000), english, seed=0, cache=tmp_path_factory.mktemp("cache"))


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("spec", [WordPiece(vocab_size=1500), ByteBPE(vocab_size=1500), Unigram(vocab_size=1500)])
def test_training_gives_the_same_bytes_every_time(
    spec: TokenizerSpec, english: CleanCorpus, chinese: CleanCorpus, tmp_path: Path
) -> None:
    for corpus in (english, chinese):
        made = [
            train_tokenizer(spec, corpus, seed=0, cache=tmp_path / f"{corpus.fingerprint}{run}") for run in range(3)
        ]
        first, *others = [files_of(tokenizer.folder) for tokenizer in made if tokenizer.folder]
        assert len(others) == 2
        assert all(other == first for other in others)


def test_wordpiece_vocabulary_begins_with_special_tokens_and_has_the_size_asked_for(uncased: Tokenizer) -> None:
    special = uncased.special_tokens
    assert uncased.tokens(range(5)) == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert (special.pad, special.unk, special.cls, special.sep, special.mask) == (0, 1, 2, 3, 4)
    assert special.vocab_size == 2000
    assert uncased.lowercase


def test_wordpiece_vocabulary_knows_all_printable_ascii(uncased: Tokenizer) -> None:
    every = "".join(chr(code) for code in range(33, 127))
    for text in (every, " ".join(every), "zq7@xk-jv.QQ"):
        assert uncased.special_tokens.unk not in uncased.encode(text).ids


def test_wordpiece_vocabulary_covers_chinese_beyond_a_thousand_characters(chinese: CleanCorpus, tmp_path: Path) -> None:
    tokenizer = train_tokenizer(WordPiece(vocab_size=3000), chinese, seed=0, cache=tmp_path)
    ids = [
        id for document in chinese.sentences(0) for ids, _ in tokenizer.encode_batch(document) for id in ids.tolist()
    ]
    assert len(set(ids)) > 1500
    assert ids.count(tokenizer.special_tokens.unk) / len(ids) < 1e-3
    assert not [
        token for token in tokenizer.tokens(range(3000)) if len(token) > 1 and "\u4e00" <= token[-1] <= "\u9fff"
    ]


def test_wordpiece_vocabulary_leaves_room_for_words_when_characters_abound(
    chinese: CleanCorpus, english: CleanCorpus, tmp_path: Path
) -> None:
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


def test_byte_bpe_vocabulary_is_laid_out_as_robertas(english: CleanCorpus, tmp_path: Path) -> None:
    tokenizer = train_tokenizer(ByteBPE(vocab_size=1000), english, seed=0, cache=tmp_path)
    special = tokenizer.special_tokens
    assert tokenizer.tokens([0, 1, 2, 3, 999]) == ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    assert (special.cls, special.pad, special.sep, special.unk, special.mask) == (0, 1, 2, 3, 999)
    assert special.vocab_size == 1000
    assert tokenizer.tokens(tokenizer.encode(" of the function").ids) == ["Ġof", "Ġthe", "Ġfunction"]


def test_vocabulary_of_a_tiny_corpus_is_smaller_than_asked_for(tmp_path: Path) -> None:
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
