from pathlib import Path

import numpy as np
import pytest
from token_samples import chinese_documents, clean_corpus_of, english_documents, files_of, sentences_of
from word_samples import SCRIPTS

from maskwright.data.cleaning.store import CleanCorpus
from maskwright.data.shards.corpus import Corpus
from maskwright.data.shards.tokenize import tokenize_corpus
from maskwright.data.tokenizers.spec import WordPiece
from maskwright.data.tokenizers.stream_encoder import StreamEncoder
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.tokenizers.training import train_tokenizer
from maskwright.data.words.annotator import Annotator
from maskwright.data.words.segmenters import open_segmenter
from maskwright.data.words.span_facts import SpanFacts, describe_spans
from maskwright.data.words.spec import Words

ERNIE = Words(segmenter="rjieba", units="characters", phrases=("segmenter",), entities=("tags",))


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> CleanCorpus:
    scripts = [[sentence for sentences in SCRIPTS.values() for sentence in sentences]]
    blocks = [english_documents()[:20], chinese_documents(200)[:60], [["\x00"], *scripts], chinese_documents(50)[:30]]
    return clean_corpus_of(tmp_path_factory.mktemp("clean"), blocks, sources=[0, 0, 1, 1])


@pytest.fixture(scope="module")
def tokenizer(clean: CleanCorpus, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return train_tokenizer(WordPiece(vocab_size=900), clean, seed=0, cache=tmp_path_factory.mktemp("cache"))


def corpus_of(clean: CleanCorpus, tokenizer: Tokenizer, cache: Path, words: Words, workers: int = 1) -> Corpus:
    return tokenize_corpus(clean, tokenizer, words=words, cache=cache, workers=workers, shard_tokens=1024)


@pytest.fixture(scope="module")
def ernie(clean: CleanCorpus, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return corpus_of(clean, tokenizer, tmp_path_factory.mktemp("cache"), ERNIE)


def test_levels_are_stored_beside_the_ids(clean: CleanCorpus, tokenizer: Tokenizer, ernie: Corpus) -> None:
    sentences = sentences_of(clean)
    stream = StreamEncoder(tokenizer, with_offsets=True).encode(sentences)
    expected = Annotator(ERNIE, open_segmenter(ERNIE), {}).annotate(sentences, stream)
    taken = ernie.gather(np.array([0]), np.array([ernie.num_tokens]))
    assert taken.ids.tolist() == stream.ids.tolist()
    assert taken.word_starts.tolist() == expected.word_starts.tolist()
    assert sorted(taken.span_starts) == ["entity", "phrase"]
    for level, starts in expected.span_starts.items():
        assert taken.span_starts[level].tolist() == starts.tolist()
        assert ernie.span_facts[level]["units"] == expected.facts[level].units
        inside = expected.facts[level].tokens / len(stream.ids)
        assert ernie.span_facts[level]["share_of_tokens"] == pytest.approx(inside, abs=1e-6)
        assert ernie.span_facts[level]["distinct"] == len(expected.facts[level].counts)


@pytest.mark.usefixtures("processes")
def test_files_are_the_same_bytes_for_any_number_of_workers(clean, tokenizer, ernie, tmp_path):
    pooled = files_of(corpus_of(clean, tokenizer, tmp_path, ERNIE, workers=2).folder)
    assert pooled == files_of(ernie.folder)
    assert "phrase_starts-00003.npy" in pooled


def test_changed_lexicon_makes_other_shards(clean: CleanCorpus, tokenizer: Tokenizer, tmp_path: Path) -> None:
    lexicon = tmp_path / "list.txt"
    words = Words(phrases=(str(lexicon),))
    paths = []
    for entry in ("机器学习", "公园散步"):
        lexicon.write_text(f"{entry}\n", encoding="utf-8")
        corpus = corpus_of(clean, tokenizer, tmp_path, words)
        paths.append((corpus.fingerprint, corpus.span_facts["phrase"]["examples"]))
    assert [examples for _, examples in paths] == [["机器学习"], ["公园散步"]]
    assert paths[0][0] != paths[1][0]


def test_collocations_are_kept_with_the_tokens(clean: CleanCorpus, tokenizer: Tokenizer, tmp_path: Path) -> None:
    corpus = corpus_of(clean, tokenizer, tmp_path, Words(segmenter="rjieba", phrases=("collocations",)))
    phrases = corpus.collocations.read_text(encoding="utf-8").splitlines()
    assert "机器学习" in phrases
    assert {example.lower() for example in corpus.span_facts["phrase"]["examples"]} <= set(phrases)
    assert "Linux 内核" in corpus.span_facts["phrase"]["examples"]
    assert corpus_of(clean, tokenizer, tmp_path, Words()).collocations is None


def test_facts_count_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maskwright.data.words.span_facts._MAX_DISTINCT", 3)
    facts = SpanFacts()
    for part in (["b", "a", "a"], ["c", "d", "a"], ["e", "b"]):
        more = SpanFacts(units=len(part), tokens=2 * len(part))
        more.counts.update(part)
        facts.add(more)
    data = facts.to_json(64)
    assert (data["units"], data["share_of_tokens"], data["distinct"]) == (8, 0.25, 3)
    assert data["examples"] == ["a", "b", "c"]
    described = describe_spans("phrase", data)
    assert described == "8 phrases of two words or more (over 3 distinct, 25.0 % of the tokens): a, b, c"
    chinese = describe_spans("phrase", {**data, "examples": ["一个"]})
    assert chinese.startswith("8 phrases of two characters or more (over")
    described = describe_spans("entity", SpanFacts().to_json(0))
    assert described == "no entity of two words or more (Chinese: two characters or more) was found"
