"""Text and small clean corpora for the tests of tokenizers, vocabularies and shards."""

import argparse
import ast
import logging
import random
import subprocess
import tarfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import strategies as st

from maskwright.core.spec import fingerprint
from maskwright.core.storage.files import checksum
from maskwright.data.cleaning.store import CleanCorpus
from maskwright.data.tokenizers.tokenizer import Tokenizer

CHINESE = (
    "编码器把一句话变成一串向量。",
    "北京大学在一八九八年建立，至今已有一百多年。",
    "今天的天气很好，我们去公园散步吧！",
    "机器学习需要大量的文本和耐心。",
    "他说：“明天见”，然后就走了。",
    "Linux 内核 5.10 版本支持更多的硬件。",
)

AWKWARD = (
    "",
    "   ",
    " a",
    "a ",
    "Hello world!",
    "don't I'll they've",
    "a\tb\nc\r\nd",
    "a\x00b \ufffd c",
    "a\u00a0b\u3000c",
    "emoji 😀👩‍👩‍👧 done",
    "e\u0301tude café CAFÉ",
    "ΟΔΥΣΣΕΥΣ ΣΑΣ",
    "İstanbul ẞ ß ﬁ",
    "שלום עולם",
    "مرحبا بالعالم",
    "हिन्दी भाषा",
    "ไทยภาษา",
    "x" * 100 + " " + "y" * 101,
    "中文 English 混排，真的！",
    "\ufeffbom zero\u200bwidth",
    "a  b   c    ",
    "𠀀𠀁 extension",
    "Ａ ｆｕｌｌ width",
    "1,234.56 $9 50% 30° x²",
    "a\x1cb \x1d",
    "한국어 텍스트",
    "ひらがな カタカナ",
    "...!!!??? --- ===",
    "one\u2028two\x85three",
    "q\u0307\u0323 combining",
)

awkward_text = st.one_of(
    st.sampled_from(AWKWARD),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    st.text(alphabet="ab A'é,.中文 \t\u00a0\u0301\x00", max_size=40),
    st.lists(st.sampled_from(["the", "The", "don't", "中文", "word,", "", " ", "naïve"]), max_size=8).map(" ".join),
)


@cache
def english_paragraphs() -> tuple[str, ...]:
    """Return a few thousand paragraphs of English prose: docstrings of the standard library."""
    paragraphs = []
    for module in (argparse, logging, subprocess, tarfile, random, ast):
        for node in ast.walk(ast.parse(Path(module.__file__).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
                paragraphs += [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
    return tuple(paragraph for paragraph in paragraphs if paragraph)


def english_documents(count: int = 60) -> list[list[str]]:
    """Return documents of sentences as a clean corpus stores them: each but the first begins with a space."""
    paragraphs = english_paragraphs()
    size = max(1, len(paragraphs) // count)
    groups = [paragraphs[start : start + size] for start in range(0, size * count, size)]
    return [[first, *(f" {paragraph}" for paragraph in rest)] for first, *rest in groups]


def english_sentences() -> list[str]:
    return [sentence for document in english_documents() for sentence in document]


def chinese_documents(characters: int = 1500, seed: int = 0) -> list[list[str]]:
    """Return documents that hold some thousand different ideographs."""
    rng = random.Random(seed)
    wide = [chr(0x4E00 + code) for code in range(characters)]
    documents = []
    for _ in range(400):
        rare = "".join(rng.choices(wide, k=30))
        documents.append([*rng.choices(CHINESE, k=3), f"{rare}。"])
    return documents


def sentences_of(clean: CleanCorpus) -> list[str]:
    return [sentence for n in range(len(clean.blocks)) for document in clean.sentences(n) for sentence in document]


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the content of all files by relative path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def auto_tokenizer(folder: Path, **options: Any) -> Any:
    return pytest.importorskip("transformers").AutoTokenizer.from_pretrained(folder, **options)


def assert_same_as_transformers(tokenizer: Tokenizer, folder: Path, texts: Sequence[str]) -> Any:
    """Compare ids, segments and special tokens with those of transformers' tokenizer of a folder; return it."""
    theirs, as_text = auto_tokenizer(folder), auto_tokenizer(folder, split_special_tokens=True)
    special, marked = tokenizer.special_tokens, tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
    assert (theirs.pad_token_id, theirs.unk_token_id) == (special.pad, special.unk)
    assert (theirs.cls_token_id, theirs.sep_token_id, theirs.mask_token_id) == (special.cls, special.sep, special.mask)
    assert len(theirs) == special.vocab_size
    mask = special.names[4]
    texts = [*texts, f"a {mask} b", f"a{mask}. {mask}", f"{mask} {mask}"]
    for text, other in zip(texts, reversed(texts), strict=True):
        found = theirs(text, add_special_tokens=False)["input_ids"]
        assert found == tokenizer.encode(text, special_tokens_in_text=True).ids.tolist()
        assert (special.mask in found) == (mask in text)
        assert as_text(text, add_special_tokens=False)["input_ids"] == tokenizer.encode(text).ids.tolist()
        other = other or "transformers takes an empty second text for none"
        ours, expected = marked.encode(text, other), theirs(text, other)
        assert expected["input_ids"] == ours.ids
        assert expected.get("token_type_ids", ours.type_ids) == ours.type_ids
    return theirs


def clean_corpus_of(
    folder: Path, blocks: Sequence[Sequence[Sequence[str]]], sources: Sequence[int] | None = None
) -> CleanCorpus:
    """Write a clean corpus by hand: blocks of documents of sentences."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, documents in enumerate(blocks):
        path = folder / f"{number:05d}.txt"
        text = "".join("".join(f"{sentence}\n" for sentence in document) + "\n" for document in documents)
        path.write_bytes(text.encode())
        paths.append(path)
    sentences = [sentence for documents in blocks for document in documents for sentence in document]
    return CleanCorpus(
        folder=folder,
        fingerprint=fingerprint([list(map(list, documents)) for documents in blocks]),
        num_documents=sum(len(documents) for documents in blocks),
        num_sentences=len(sentences),
        num_characters=sum(map(len, sentences)),
        num_bytes=sum(len(sentence.encode()) for sentence in sentences),
        source_weights=(None,) * (max(sources or [0]) + 1),
        source_names=tuple(f"source {number}" for number in range(max(sources or [0]) + 1)),
        blocks=tuple(paths),
        block_sources=tuple(sources or [0] * len(blocks)),
        checksums=tuple(map(checksum, paths)),
        card={"card": "by hand", "kept": len(sentences)},
    )
