"""Tokenizers of every kind, trained once for all tests, and processes that were started once a module."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from token_samples import chinese_documents, clean_corpus_of, english_documents

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
def processes() -> Iterator[ProcessPoolExecutor]:
    """Two processes as an engine, none of which other modules see. The local engine starts its own for each map."""
    with ProcessPoolExecutor(2, get_context("spawn")) as executor:
        yield executor
