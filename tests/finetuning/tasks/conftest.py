"""Tiny tokenizers of all kinds, as they are learnt, and as transformers reads the folders they are saved in."""

import warnings

import pytest

from maskwright.data.tokenizers.spec import ByteBPE, Unigram, WordPiece
from maskwright.data.tokenizers.training import train_byte_bpe, train_unigram, train_wordpiece

SENTENCES = (
    "The quick brown fox doesn't jump over the lazy dog, it sleeps beside him.",
    "Die Größe der Städte wächst, und mit ihr wächst der Lärm auf den Straßen.",
    "北京大学在一八九八年建立，至今已有一百多年。",
    "Angela Merkel visited New York in 2019 and met the press there twice.",
    "What did the woman say about the price of the tour? It sounds reasonable.",
    "今天的天气很好，我们去公园散步吧！",
    "Les élèves français préfèrent le café noir à l'Hôtel de Ville.",
)
KINDS = ("wordpiece", "byte_bpe", "unigram")


@pytest.fixture(scope="session", params=KINDS)
def kind(request):
    """Run a test for each kind of tokenizer."""
    return request.param


@pytest.fixture(scope="session")
def tokenizers():
    texts = [text for sentence in SENTENCES for text in (sentence, f" {sentence}")] * 3
    return {
        "wordpiece": train_wordpiece(WordPiece(vocab_size=400), texts, texts),
        "byte_bpe": train_byte_bpe(ByteBPE(vocab_size=400), texts),
        "unigram": train_unigram(Unigram(vocab_size=300, character_coverage=1), texts, texts),
    }


@pytest.fixture(scope="session")
def auto_tokenizers(tokenizers, tmp_path_factory):
    """The same tokenizers as transformers reads them; special tokens written in texts are text there, too."""
    from transformers import AutoTokenizer

    read = {}
    for kind, tokenizer in tokenizers.items():
        folder = tmp_path_factory.mktemp("tokenizers") / kind
        tokenizer.save(folder, max_length=512)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read[kind] = AutoTokenizer.from_pretrained(folder, split_special_tokens=True)
    return read
