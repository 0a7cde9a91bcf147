"""The table of similar words: what files are read, what is nearest, what is covered, and that it is kept."""

import gzip
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from token_samples import CHINESE, clean_corpus_of, english_documents

from maskwright.core.errors import DataError
from maskwright.core.similar_words import SimilarWords, SimilarWordsSpec, word_hashes
from maskwright.core.types import SpecialTokens
from maskwright.data.shards.corpus import Corpus
from maskwright.data.shards.tokenize import tokenize_corpus
from maskwright.data.similar_words import (
    KeptTable,
    TokenSample,
    check_source,
    count_words,
    read_synonyms,
    sample_tokens,
    similar_words,
    table_of,
)
from maskwright.data.tokenizers.spec import ByteBPE, WordPiece
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.tokenizers.training import train_tokenizer
from maskwright.data.words.word_vectors import nearest

SYNONYMS = "人 士 人物 人士 人氏\n人类 生人 全人类\n"
PLAIN = "big, large, huge\nsmall\tlittle tiny\n北京 上海、天津\nalone\n"


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.fixture(scope="module")
def english(tmp_path_factory: pytest.TempPathFactory) -> tuple[Corpus, Tokenizer]:
    return corpus_of(tmp_path_factory.mktemp("english"), english_documents(), WordPiece(vocab_size=2000))


def corpus_of(folder: Path, documents: list[list[str]], spec: WordPiece | ByteBPE) -> tuple[Corpus, Tokenizer]:
    clean = clean_corpus_of(folder / "clean", [documents])
    tokenizer = train_tokenizer(spec, clean, seed=0, cache=folder)
    return tokenize_corpus(clean, tokenizer, cache=folder, workers=1), tokenizer


def test_synonyms_are_parted_by_spaces_commas_and_tabs(tmp_path: Path) -> None:
    path = written(tmp_path / "p.txt.gz", gzip.compress(PLAIN.encode("utf-8-sig")))
    synonyms, description = read_synonyms(path)
    assert synonyms["large"] == ["big", "huge"]
    assert synonyms["little"] == ["small", "tiny"]
    assert synonyms["天津"] == ["北京", "上海"]
    assert "3 groups of synonyms" in description


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"id": 1}\n', "JSON"),
        ("<?xml?>\n", "XML"),
        ("alone\nlonely\n", "names no two words"),
        (b"a b\n\xff\xfe\x00\x01 \x81\x00", "line 2: not UTF-8"),
        ("2 3\na 0.1 0.2 0.3\n", "word vectors"),
        ("good 0.1 -2e-05\n", "word vectors"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_at_once(tmp_path: Path, text: str | bytes, message: str) -> None:
    path = written(tmp_path / "file.txt", text)
    with pytest.raises(DataError, match=message):
        check_source(SimilarWordsSpec(source=str(path)))


TOY = SpecialTokens(pad=0, unk=1, cls=2, sep=3, mask=4, vocab_size=100, names=("p", "u", "c", "s", "m"))
sentences = st.lists(
    st.lists(st.lists(st.integers(1, 8), min_size=1, max_size=3), min_size=1, max_size=5), min_size=1, max_size=6
)


@given(sentences)
def test_words_are_counted_as_a_plain_loop_counts_them(text: list[list[list[int]]]) -> None:
    words = [tuple(word) for sentence in text for word in sentence]
    ids = np.array([id for word in words for id in word])
    starts = np.array([index == 0 for word in words for index in range(len(word))])
    ends = np.cumsum([sum(map(len, sentence)) for sentence in text])
    counted = count_words(TokenSample(ids, starts, ends), TOY)
    spelt = [tuple(counted.tokens_of(np.array([number])).tolist()) for number in range(len(counted))]
    assert {word: int(count) for word, count in zip(spelt, counted.counts, strict=True)} == {
        word: words.count(word) for word in words
    }
    assert [spelt[number] for number in counted.running] == words
    assert counted.sentence_ends.tolist() == np.cumsum([len(sentence) for sentence in text]).tolist()
    assert [word for word, ordinary in zip(spelt, counted.ordinary, strict=True) if not ordinary] == [
        word for word in spelt if not set(word).isdisjoint(range(5))
    ]


@given(st.integers(0, 1000), st.integers(1, 5), st.floats(-0.5, 0.9))
@settings(max_examples=30)
def test_the_nearest_are_those_of_a_plain_search(seed: int, most: int, least: float) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(30, 6)).astype(np.float32)
    lengths = rng.integers(1, 4, 30)
    words, others = nearest(vectors, lengths, most=most, least=least)
    unit = vectors - vectors.mean(axis=0)
    unit = unit / np.linalg.norm(unit, axis=1, keepdims=True)
    expected = []
    for word in range(30):
        near = [(-float(unit[word] @ unit[other]), other) for other in range(30)
                if other != word and lengths[other] == lengths[word]]  # fmt: skip
        expected += [(word, other) for cosine, other in sorted(near)[:most] if -cosine >= least]
    assert list(zip(words.tolist(), others.tolist(), strict=True)) == expected


def test_a_sample_is_made_of_whole_sentences_from_all_over(english: tuple[Corpus, Tokenizer]) -> None:
    corpus, _ = english
    whole = sample_tokens(corpus)
    assert len(whole.ids) == corpus.num_tokens
    assert whole.share == 1
    assert whole.sentence_ends.tolist() == corpus.documents.sentence_ends.tolist()
    part = sample_tokens(corpus, corpus.num_tokens // 4)
    assert part.share == len(part.ids) / corpus.num_tokens < 1
    assert part.sentence_ends[-1] == len(part.ids)
    originals = {whole.ids[low:high].tobytes() for low, high in pairwise([0, *whole.sentence_ends.tolist()])}
    assert all(part.ids[low:high].tobytes() in originals for low, high in pairwise([0, *part.sentence_ends.tolist()]))


def words_at(table: SimilarWords, first: int, count: int, size: int) -> list[tuple[int, ...]]:
    return list(map(tuple, table.ids[first : first + count * size].reshape(count, size).tolist()))


def candidates(made: KeptTable, tokenizer: Tokenizer, word: str) -> list[str]:
    ids = tokenizer.encode(word).ids
    actual = made.table.similar_to(word_hashes(ids, np.zeros(1, dtype=np.int64)), np.array([len(ids)]))
    return list(map(tokenizer.decode, words_at(made.table, actual.firsts[0], actual.counts[0], len(ids))))


def test_synonyms_give_words_of_the_same_number_of_tokens(tmp_path: Path) -> None:
    sentences = [*CHINESE, "人物 和 人士 都 是 人。", "人士 人士 人氏"]
    corpus, tokenizer = corpus_of(tmp_path, [sentences], WordPiece(vocab_size=300))
    sample = joined_characters(sample_tokens(corpus), tokenizer, "人物")
    spec = SimilarWordsSpec(source=str(written(tmp_path / "s.txt", SYNONYMS)))
    made = table_of(spec, sample, tokenizer)
    # 士 and 人 have one token, the other synonyms two; the commonest in the corpus comes first.
    assert candidates(made, tokenizer, "人物") == ["人 士", "人 氏"]
    assert candidates(made, tokenizer, "人") == ["士"]
    assert candidates(made, tokenizer, "苹果") == []
    assert made.coverage.words == len(count_words(sample, tokenizer.special_tokens).running)
    assert 0 < made.coverage.covered < made.coverage.words
    assert not np.isin(made.table.ids, [tokenizer.special_tokens.unk, tokenizer.special_tokens.mask]).any()


def joined_characters(sample: TokenSample, tokenizer: Tokenizer, word: str) -> TokenSample:
    """The same text cut by somebody who takes a word for one."""
    starts, ids = sample.word_starts.copy(), tokenizer.encode(word).ids
    for at in range(len(sample.ids) - len(ids) + 1):
        if sample.ids[at : at + len(ids)].tolist() == ids.tolist():
            starts[at + 1 : at + len(ids)] = False
    return TokenSample(sample.ids, starts, sample.sentence_ends)


def test_a_thesaurus_finds_words_after_spaces_and_with_capitals(tmp_path: Path) -> None:
    text = ["Big cat, big dog.", "Large cat, large dog.", "Such big, large, Big and Large ones."] * 20
    corpus, tokenizer = corpus_of(tmp_path, [text], ByteBPE(vocab_size=320))
    spec = SimilarWordsSpec(source=str(written(tmp_path / "s.txt", "big large\n")))
    made = table_of(spec, sample_tokens(corpus), tokenizer)
    for word, other in ((" big", " large"), ("Big", "Large"), (" Large", " Big")):
        same_size = len(tokenizer.encode(word).ids) == len(tokenizer.encode(other).ids)
        assert candidates(made, tokenizer, word) == ([other] if same_size else [])
    assert len(made.table)


def test_words_are_never_similar_to_punctuation(tmp_path: Path) -> None:
    corpus, tokenizer = corpus_of(tmp_path, [["的 。 了 ， 山"] * 9], WordPiece(vocab_size=200))
    made = table_of(SimilarWordsSpec(min_similarity=-1), sample_tokens(corpus), tokenizer)
    actual = {word: set(candidates(made, tokenizer, word)) for word in "的。了，"}
    assert actual == {"的": {"了", "山"}, "了": {"的", "山"}, "。": {"，"}, "，": {"。"}}


@pytest.mark.parametrize(
    ("source", "remedy"),
    [
        ("corpus", r"0 distinct words.*min_count=N \(now 9999\)"),
        ("北京 上海\n苹果 梨\n", "2 groups.*corpus's language"),
    ],
)
def test_a_source_that_covers_nothing_is_refused(english, tmp_path, source, remedy):
    corpus, tokenizer = english
    named = source if source == "corpus" else str(written(tmp_path / "s.txt", source))
    spec = SimilarWordsSpec(source=named, min_count=9999)
    for _ in range(2):  # kept or not
        with pytest.raises(DataError, match=rf"(?s)no word of the corpus has a similar word.*{remedy}"):
            similar_words(spec, corpus, tokenizer, cache=tmp_path)


def test_what_is_learnt_from_a_corpus_is_the_same_again(english: tuple[Corpus, Tokenizer], tmp_path: Path) -> None:
    corpus, tokenizer = english
    spec = SimilarWordsSpec(min_count=10, candidates=3, min_similarity=0.1)
    reported: list[tuple[str, int, int | None]] = []
    first = similar_words(spec, corpus, tokenizer, cache=tmp_path / "a", progress=lambda *stage: reported.append(stage))
    again = similar_words(spec, corpus, tokenizer, cache=tmp_path / "b")
    kept = similar_words(spec, corpus, tokenizer, cache=tmp_path / "a", progress=lambda *_: pytest.fail("made anew"))
    for other in (again, kept):
        assert first.coverage == other.coverage
        assert all(
            np.array_equal(getattr(first.table, name), getattr(other.table, name))
            for name in ("ids", "hashes", "lengths", "firsts", "counts", "random_firsts", "random_counts")
        )
    table, stage = first.table, "finding similar words (words)"
    assert reported == [(stage, 0, None), (stage, len(table), len(table))]
    assert len(table) > 50
    assert table.counts.max() <= 3
    # Candidates and random words are words of the corpus, ordinary, and frequent enough.
    words = count_words(sample_tokens(corpus), tokenizer.special_tokens)
    frequent = {
        tuple(words.tokens_of(np.array([number])).tolist())
        for number in np.flatnonzero(words.ordinary & (words.counts >= 10)).tolist()
    }
    for first, count, size in zip(table.firsts, table.counts, table.lengths, strict=True):
        assert frequent.issuperset(words_at(table, first, count, size))
    for size in range(1, len(table.random_counts)):
        drawn = words_at(table, table.random_firsts[size], table.random_counts[size], size)
        of_size = {word for word in frequent if len(word) == size}
        assert set(drawn) == of_size or not of_size
        assert len(set(drawn)) == len(drawn)


def test_another_source_or_setting_is_another_table(english: tuple[Corpus, Tokenizer], tmp_path: Path) -> None:
    corpus, tokenizer = english
    path = written(tmp_path / "s.txt", "class function\n")
    spec = SimilarWordsSpec(source=str(path))
    assert 0 < len(similar_words(spec, corpus, tokenizer, cache=tmp_path).table) <= 2
    written(path, "class function\nmodule file\n")
    assert len(similar_words(spec, corpus, tokenizer, cache=tmp_path).table) > 2
    assert len(list(tmp_path.glob("similar-words-*"))) == 2
