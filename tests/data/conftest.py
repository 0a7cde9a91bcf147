"""Tokenizers of every kind, trained once for all tests, and local processes that were started once a module."""

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import nullcontext

import pytest
from token_samples import chinese_documents, clean_corpus_of, english_documents

from maskwright.data import engines
from maskwright.data.tokenizers.spec import ByteBPE, Unigram, WordPiece
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.tokenizers.training import train_tokenizer

_SPECS = {
    "uncased": WordPiece(vocab_size=1500),
    "cased": WordPiece(vocab_size=1500, lowercase=False),
    "byte_bpe": ByteBPE(vocab_size=1000),
    "unigram": Unigram(vocab_size=1200),
    "unigram cased": Unigram(vocab_size=1200, lowercase=False),
}


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    """Tokenizers trained on English and Chinese text."""
    folder = tmp_path_factory.mktemp("trained")
    clean = clean_corpus_of(folder / "text", [english_documents(), chinese_documents(300)])
    return {name: train_tokenizer(spec, clean, seed=0, cache=folder) for name, spec in _SPECS.items()}


@pytest.fixture(scope="module")
def started() -> Iterator[Executor]:
    with engines._Processes(2) as executor:
        yield executor


@pytest.fixture
def processes(started: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the local engine use the same two processes for every map, which it starts for each."""
    monkeypatch.setattr(engines, "_Processes", lambda workers: nullcontext(started))
