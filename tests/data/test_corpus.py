import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from token_samples import clean_corpus_of, english_documents

from maskwright.core.errors import DataError
from maskwright.data.shards.corpus import Corpus
from maskwright.data.shards.tokenize import tokenize_corpus
from maskwright.data.tokenizers.spec import WordPiece
from maskwright.data.tokenizers.vocabulary import train_tokenizer


@pytest.fixture(scope="module", params=[64, 1 << 20])
def corpus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("corpus")
    clean = clean_corpus_of(folder / "text", [english_documents(20)[:3], english_documents(20)[3:5]])
    tokenizer = train_tokenizer(WordPiece(vocab_size=800), clean, seed=0, cache=folder)
    return tokenize_corpus(clean, tokenizer, cache=folder, workers=1, shard_tokens=request.param)


@pytest.fixture(scope="module")
def stream(corpus: Corpus) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """The whole stream, read from the files by hand."""
    tokens = [np.load(path) for path in sorted(corpus.folder.glob("tokens-*.npy"))]
    packed = [np.load(path) for path in sorted(corpus.folder.glob("word_starts-*.npy"))]
    bits = [np.unpackbits(part, bitorder="little", count=len(ids)) for ids, part in zip(tokens, packed, strict=True)]
    return np.concatenate(tokens).astype(np.int32), np.concatenate(bits).astype(np.bool_)


@given(data=st.data())
def test_take_gives_the_ranges_in_order(
    data: st.DataObject, corpus: Corpus, stream: tuple[NDArray[np.int32], NDArray[np.bool_]]
) -> None:
    place = st.integers(0, corpus.num_tokens)
    near = st.integers(0, corpus.num_tokens - 1).flatmap(
        lambda start: st.tuples(st.just(start), st.integers(start, min(start + 200, corpus.num_tokens)))
    )
    ranges = data.draw(st.lists(st.one_of(near, st.tuples(place, place).map(sorted)), max_size=8))
    starts, ends = np.array([pair[0] for pair in ranges], int), np.array([pair[1] for pair in ranges], int)
    ids, word_starts, _ = corpus.take(starts, ends)
    for found, whole in ((ids, stream[0]), (word_starts, stream[1])):
        expected = [whole[start:end] for start, end in ranges]
        assert found.tolist() == np.concatenate([whole[:0], *expected]).tolist()
        assert found.dtype == whole.dtype


def test_corpus_is_mapped_and_not_read(corpus: Corpus) -> None:
    for values in (corpus.documents.sentence_ends, corpus.document_ends):
        assert isinstance(values.base, np.memmap)
        assert not values.flags.writeable


def test_corpus_survives_pickling_by_mapping_anew(corpus: Corpus) -> None:
    packed = pickle.dumps(corpus)
    assert len(packed) < 1000
    again = pickle.loads(packed)
    everything = np.array([0]), np.array([corpus.num_tokens])
    assert np.array_equal(again.take(*everything)[0], corpus.take(*everything)[0])
    assert again.fingerprint == corpus.fingerprint


def test_opening_what_is_no_corpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="damaged"):
        Corpus.open(tmp_path)
