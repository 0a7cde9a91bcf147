"""Sentences in seven scripts, tokenizers of three kinds that know them, and words counted in another way."""

import re
import unicodedata
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import rjieba
from token_samples import clean_corpus_of

from maskwright.core.types import BoolArray
from maskwright.data.tokenizers.spec import ByteBPE, Unigram, WordPiece
from maskwright.data.tokenizers.stream_encoder import StreamEncoder, TokenStream
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.tokenizers.training import train_tokenizer

SCRIPTS = {
    "latin": ("Whole words are masked together, never in parts.", " Überraschend naïve Wörter, wie immer."),
    "chinese": (
        "使用语言模型来预测下一个词的概率。",
        "北京大学的研究人员训练了Linux上的模型model，效果很好。",
        "模型在2019年的数据集上运行，模型的参数很多。",
    ),
    "japanese": ("東京大学の学生は日本語の文章を読みます。", "カタカナの単語ーも使います。"),
    "persian": (
        "من می\u200cخواهم کتاب\u200cهای تازه بخوانم.",
        " آن\u200cها به خانه\u200cی ما می\u200cآیند.",
    ),
    "arabic": ("اللغة العربية جميلة جدا.", " كِتَابٌ جديد على الطاولة."),
    "devanagari": ("हिन्दी भाषा बहुत सुन्दर है।", " यह एक किताब है।", " यह क्\u200dष और क्\u200cष है।"),
    "korean": ("한국어 문장을 단어로 나눕니다.", " 언어 모델은 다음 단어를 예측합니다."),
}

# Escaped: written out, U+F900 becomes U+8C48 wherever text is normalized, and the range then takes in Hangul.
_HAN = re.compile("[\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+")
_KANA = re.compile("[ぁ-ゖァ-ヺ]")
_JOINERS = "\u200c\u200d"


def trained_tokenizers(folder: Path) -> dict[str, Tokenizer]:
    """Train a tokenizer of each kind on all scripts; small vocabularies, so that words fall into pieces."""
    documents = [[sentence for sentences in SCRIPTS.values() for sentence in sentences] for _ in range(12)]
    clean = clean_corpus_of(folder / "scripts", [documents])
    specs = {
        "wordpiece": WordPiece(vocab_size=420, lowercase=False),
        "byte_bpe": ByteBPE(vocab_size=460),
        "unigram": Unigram(vocab_size=360, lowercase=False, character_coverage=1.0),
    }
    return {name: train_tokenizer(spec, clean, seed=0, cache=folder) for name, spec in specs.items()}


def encoded(tokenizer: Tokenizer, sentences: list[str]) -> TokenStream:
    return StreamEncoder(tokenizer, with_offsets=True).encode(sentences)


def written_words(text: str) -> Iterator[tuple[int, int]]:
    """Yield the words of a sentence of any script, found letter by letter: the oracle."""
    chinese = [] if _KANA.search(text) else [match.span() for match in _HAN.finditer(text)]
    for start, end in chinese:
        for word in rjieba.cut(text[start:end]):
            yield start, start + len(word)
            start += len(word)
    inside = {index for start, end in chinese for index in range(start, end)}
    kinds = ["" if index in inside else _kind(character) for index, character in enumerate(text)]
    start = None
    for index in range(len(text) + 1):
        kind = kinds[index] if index < len(text) else ""
        han = index < len(text) and _HAN.match(text[index])
        goes_on = start is not None and kind and kind in ("LM" if kinds[start] in "LM" else kinds[start]) and not han
        if start is not None and not goes_on:
            yield start, index
            start = None
        if start is None and kind in ("L", "M", "N") and not han:
            start = index


def _kind(character: str) -> str:
    return "M" if character in _JOINERS else unicodedata.category(character)[0]


def cuts_of(stream: TokenStream, starts: BoolArray) -> set[int]:
    """Return the characters at which units begin, counted through all sentences joined."""
    return set(stream.offsets.first[np.flatnonzero(starts)].tolist())


def surfaces(stream: TokenStream, starts: BoolArray, text: str) -> list[str]:
    """Return the units as they are written."""
    bounds = [*stream.offsets.first[np.flatnonzero(starts)].tolist(), len(text)]
    return [text[start:end].strip() for start, end in pairwise(bounds)]
