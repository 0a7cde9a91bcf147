import errno
import json
import multiprocessing
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from token_samples import chinese_documents, clean_corpus_of, english_documents, files_of

from maskwright.core.errors import DataError, DeviceError
from maskwright.core.flat_arrays import concatenated_ranges
from maskwright.core.storage.checksums import CONTENTS, write_record
from maskwright.core.types import AnnotatedTokens, Documents, IntArray
from maskwright.data.cleaning.store import CleanCorpus
from maskwright.data.shards import tokenize
from maskwright.data.shards.checked_array import CheckedArray, block_checksums
from maskwright.data.shards.corpus import Corpus, sample_sentences
from maskwright.data.shards.tokenize import tokenize_corpus
from maskwright.data.tokenizers.backends import WORDPIECE_NAMES, bert_normalizer, wordpiece_backend
from maskwright.data.tokenizers.tokenizer import Tokenizer

SHARD_TOKENS = 4096


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> CleanCorpus:
    english, chinese = english_documents(), chinese_documents(300)
    empty = [["\x00", " \u200b"], ["Kept.", "\x00", " Kept too."]]
    blocks = [english[:25], english[25:], empty, chinese]
    return clean_corpus_of(tmp_path_factory.mktemp("clean"), blocks, sources=[0, 0, 1, 1])


@pytest.fixture(scope="module", params=["uncased", "byte_bpe"])
def tokenizer(request: pytest.FixtureRequest, trained: dict[str, Tokenizer]) -> Tokenizer:
    return trained[request.param]


@pytest.fixture(scope="module")
def corpus(clean: CleanCorpus, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    cache = tmp_path_factory.mktemp("cache")
    return tokenize_corpus(clean, tokenizer, cache=cache, workers=1, shard_tokens=SHARD_TOKENS)


@pytest.fixture(scope="module")
def stream(corpus: Corpus) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """The whole stream, read from the files by hand."""
    tokens = [np.load(path) for path in sorted(corpus.folder.glob("tokens-*.npy"))]
    packed = [np.load(path) for path in sorted(corpus.folder.glob("word_starts-*.npy"))]
    bits = [np.unpackbits(part, bitorder="little", count=len(ids)) for ids, part in zip(tokens, packed, strict=True)]
    return np.concatenate(tokens).astype(np.int32), np.concatenate(bits).astype(np.bool_)


@given(data=st.data())
def test_take_gives_the_ranges_in_order(data, corpus, stream):
    positions = st.integers(0, corpus.num_tokens)
    near = st.integers(0, corpus.num_tokens - 1).flatmap(
        lambda start: st.tuples(st.just(start), st.integers(start, min(start + 200, corpus.num_tokens)))
    )
    ranges = data.draw(st.lists(st.one_of(near, st.tuples(positions, positions).map(sorted)), max_size=8))
    starts, ends = np.array([pair[0] for pair in ranges], int), np.array([pair[1] for pair in ranges], int)
    ids, word_starts, _ = corpus.gather(starts, ends)
    for actual, whole in ((ids, stream[0]), (word_starts, stream[1])):
        expected = [whole[start:end] for start, end in ranges]
        assert actual.tolist() == np.concatenate([whole[:0], *expected]).tolist()
        assert actual.dtype == whole.dtype


def test_corpus_is_mapped_and_not_read(corpus: Corpus) -> None:
    for values in (corpus.documents.sentence_ends, corpus.document_ends):
        assert isinstance(values.base, np.memmap)
        assert not values.flags.writeable


def test_corpus_survives_pickling_by_mapping_anew(corpus: Corpus) -> None:
    packed = pickle.dumps(corpus)
    assert len(packed) < 1000
    again = pickle.loads(packed)
    everything = np.array([0]), np.array([corpus.num_tokens])
    assert np.array_equal(again.gather(*everything)[0], corpus.gather(*everything)[0])
    assert again.fingerprint == corpus.fingerprint


def test_shards_hold_every_token_and_boundary(clean, tokenizer, corpus, stream):
    sources, documents = [], []
    for block, source in enumerate(clean.block_sources):
        for document in clean.sentences(block):
            # Sentences without tokens, and documents of only such, are left out.
            encoded = [tokenizer.encode(sentence) for sentence in document]
            if kept := [(each.ids, each.word_starts) for each in encoded if len(each.ids)]:
                documents.append(kept)
                sources.append(source)
    sentences = [sentence for document in documents for sentence in document]
    for actual, expected in zip(stream, zip(*sentences, strict=True), strict=True):
        assert np.array_equal(actual, np.concatenate(expected))
    ends = np.cumsum([len(ids) for ids, _ in sentences])
    lasts = np.cumsum([len(document) for document in documents])
    assert np.array_equal(corpus.documents.sentence_ends, ends)
    assert np.array_equal(corpus.documents.last, lasts)
    assert np.array_equal(corpus.documents.first, [0, *lasts[:-1]])
    assert np.array_equal(corpus.document_ends, ends[lasts - 1])
    assert corpus.document_sources.tolist() == sources
    assert corpus.num_tokens == ends[-1] == corpus.documents.num_tokens
    assert len(list(corpus.folder.glob("tokens-*.npy"))) > 3


def test_sentences_and_documents_without_tokens_are_left_out_and_counted(clean, tokenizer, corpus):
    # Byte-level BPE has a token for everything.
    dropped = (3, 1) if tokenizer.kind == "wordpiece" else (0, 0)
    manifest = json.loads((corpus.folder / "manifest.json").read_text())
    assert (manifest["dropped_sentences"], manifest["dropped_documents"]) == dropped
    assert len(corpus.documents) == clean.num_documents - dropped[1]
    assert (np.diff(corpus.documents.sentence_ends, prepend=0) > 0).all()


def test_shards_are_cached_and_progress_is_in_bytes(clean, tokenizer, tmp_path):
    reported: list[tuple[str, int, int | None]] = []
    first = tokenize_corpus(clean, tokenizer, cache=tmp_path, workers=1, progress=lambda *call: reported.append(call))
    size = sum(path.stat().st_size for path in clean.blocks)
    assert [call[0] for call in reported] == ["tokenizing (bytes)"] * 4
    assert reported[-1][1:] == (size, size)
    assert len(list(first.folder.glob("tokens-*.npy"))) == 1
    reported.clear()
    again = tokenize_corpus(clean, tokenizer, cache=tmp_path, workers=1, progress=lambda *call: reported.append(call))
    assert not reported
    assert again.fingerprint == first.fingerprint
    assert [path.name for path in tmp_path.iterdir()] == [f"tokens-{first.fingerprint}"]


@pytest.mark.parametrize("harm", ["cut", "empty", "empty index", "gone", "manifest", "other version"])
def test_damaged_shards_are_refused_and_made_anew_with_a_warning(harm, clean, trained, tmp_path):
    first = tokenize_corpus(clean, trained["uncased"], cache=tmp_path, workers=1)
    before = files_of(first.folder)
    manifest = first.folder / "manifest.json"
    if harm == "cut":
        tokens = first.folder / "tokens-00000.npy"
        tokens.write_bytes(tokens.read_bytes()[:-2])
    elif harm.startswith("empty"):
        (first.folder / ("tokens-00000.npy" if harm == "empty" else "block_checksums.npz")).write_bytes(b"")
    elif harm == "gone":
        (first.folder / "sentence_ends.npy").unlink()
    elif harm == "manifest":
        manifest.write_text(manifest.read_text()[:100])
    else:
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"version": 99}))
    with pytest.raises(DataError, match="damaged"):
        Corpus.open(first.folder)
    with pytest.warns(UserWarning, match="damaged and is rebuilt"):
        again = tokenize_corpus(clean, trained["uncased"], cache=tmp_path, workers=1)
    assert files_of(again.folder) == before


@pytest.mark.parametrize("name", ["word_starts-00000.npy", "tokens-00000.npy"])
def test_single_changed_byte_is_found_and_the_shards_are_made_anew(name, clean, trained, tmp_path):
    first = tokenize_corpus(clean, trained["uncased"], cache=tmp_path, workers=1)
    before, path = files_of(first.folder), first.folder / name
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=times)
    if len(data) > 1 << 16:  # The first block is compared on opening, others when they are read.
        corpus = tokenize_corpus(clean, trained["uncased"], cache=tmp_path, workers=1)
        with pytest.raises(DataError, match=rf"{name} is damaged: the 65,536 bytes at [1-9]"):
            corpus.gather(np.array([0]), np.array([corpus.num_tokens]))
    with pytest.warns(UserWarning, match=r"rebuilt.*(contents\.json is missing|is damaged)"):
        again = tokenize_corpus(clean, trained["uncased"], cache=tmp_path, workers=1)
    assert files_of(again.folder) == before


def test_large_vocabularies_take_four_bytes_a_token(tmp_path: Path) -> None:
    words = [f"w{number}" for number in range(1 << 16)]
    names = list(WORDPIECE_NAMES)

    def corpus_of(vocabulary: Sequence[str]) -> Corpus:
        entries = {token: number for number, token in enumerate(vocabulary)}
        backend = wordpiece_backend(entries, normalizer=bert_normalizer(lowercase=True))
        clean = clean_corpus_of(tmp_path / "text", [[["w1 w65530", " w65535 w2"]]])
        return tokenize_corpus(clean, Tokenizer(backend, WORDPIECE_NAMES), cache=tmp_path, workers=1)

    large, small = corpus_of([*names, *words]), corpus_of([*names, *words[: (1 << 16) - 5]])
    assert np.load(large.folder / "tokens-00000.npy").dtype == np.dtype("<u4")
    assert np.load(small.folder / "tokens-00000.npy").dtype == np.dtype("<u2")
    whole = np.array([0]), np.array([4])
    assert large.gather(*whole)[0].tolist() == [6, 65535, 65540, 7]
    assert small.gather(*whole)[0].tolist() == [6, 65535, 1, 7]


def test_corpus_without_a_token_is_refused_and_leaves_nothing(tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no token"):
        tokenize_corpus(clean_corpus_of(tmp_path / "text", []), tokenizer, cache=tmp_path / "cache", workers=1)
    assert not list((tmp_path / "cache").iterdir())


def test_a_full_disk_leaves_neither_processes_nor_files(trained, tmp_path, monkeypatch):
    clean = clean_corpus_of(tmp_path / "text", [english_documents()[:2]] * 8)
    processes = []

    def fill_disk(*_: object, **__: object) -> None:
        processes.append(len(multiprocessing.active_children()))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tokenize, "write_shard", fill_disk)
    with pytest.raises(DeviceError):
        tokenize_corpus(clean, trained["uncased"], cache=tmp_path / "cache", workers=2, shard_tokens=8)
    assert processes == [2]
    assert not multiprocessing.active_children()
    assert not list((tmp_path / "cache").iterdir())


def test_preparing_text_imports_no_large_library_without_need() -> None:
    modules = ("data.shards.tokenize", "data.tokenizers.training", "data.similar_words")
    code = f"import sys, {', '.join(f'maskwright.{module}' for module in modules)};"
    code += "sys.exit(','.join({'torch', 'transformers', 'pyarrow', 'scipy'} & set(sys.modules)) or 0)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_block_of_an_array_is_compared_when_it_is_first_read(tmp_path: Path) -> None:
    folder, path = tmp_path / "kept", tmp_path / "kept" / "a.npy"
    folder.mkdir()
    np.save(path, np.arange(100_000, dtype="<u2"))
    written = block_checksums(path)
    data = bytearray(path.read_bytes())
    data[70_000] ^= 1  # element 34,936, in the second of four blocks
    path.write_bytes(data)
    write_record(folder / CONTENTS, {})
    array = CheckedArray(path, written)
    array.compare(np.array([0, 65_536]), np.array([32_704, 100_000]))
    assert (folder / CONTENTS).exists()
    with pytest.raises(DataError, match="65,536 bytes at 65,536 are damaged"):
        array.compare(np.array([0, 0, 40_000]), np.array([10, 32_705, 40_001]))
    assert not (folder / CONTENTS).exists(), "the next call of open_or_build rebuilds the folder"
    path.write_bytes(data[:-2])
    with pytest.raises(ValueError, match=r"."):
        CheckedArray(path, written)


def gather_offsets(starts: IntArray, ends: IntArray) -> AnnotatedTokens:
    return AnnotatedTokens(concatenated_ranges(starts, ends - starts), np.empty(0, dtype=np.bool_), {})


def documents_of(sentences: list[int], tokens: int = 10) -> Documents:
    last = np.cumsum(sentences)
    return Documents(np.arange(1, last[-1] + 1) * tokens, last - sentences, last)


def test_a_sample_of_sentences_is_bounded_and_in_order() -> None:
    documents = documents_of([7] * 30 + [500])
    whole, ends = sample_sentences([documents], [1.0], gather_offsets, 10**6)
    assert np.array_equal(whole.ids, np.arange(7100))
    assert np.array_equal(ends, np.arange(10, 7101, 10))
    some = [sample_sentences([documents], [1.0], gather_offsets, most)[0].ids for most in (1000, 1009)]
    assert np.array_equal(*some)
    assert len(np.unique(some[0] // 10)) == 100, "whole sentences"
    assert (np.diff(some[0]) > 0).all()
    part = documents.pick(np.arange(3, 20))
    assert np.array_equal(sample_sentences([part], [1.0], gather_offsets, 10**6)[0].ids, np.arange(210, 1400))


def test_a_sample_of_sentences_has_each_source_by_its_weight() -> None:
    documents = documents_of([7] * 300)
    sources = [documents.pick(np.arange(*each)) for each in ((0, 20), (20, 120), (120, 300))]
    tokens, _ = sample_sentences(sources, [2.0, 1.0, 1.0], gather_offsets, 8000)
    # The first has fewer tokens than its share.
    assert np.histogram(tokens.ids, [0, 1400, 8400, 21_000])[0].tolist() == [1400, 2000, 2000]
