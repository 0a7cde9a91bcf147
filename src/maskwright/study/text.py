"""The text of a study: documents that all runs train on, documents that no run sees, and the examples probes take.

The held-out documents are chosen by a hash of their text, so they are the same for every recipe, tokenizer and seed.
The learning curves of runs are measured on a part of them too. Of a long document only the beginning is held out.
"""

import contextlib
import json
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from maskwright.core.errors import DataError
from maskwright.core.randomness import generator
from maskwright.core.storage.files import parse_json, read_json, write_json
from maskwright.data.cache import open_or_build
from maskwright.data.cleaning.block import Counts, on_bad_line
from maskwright.data.cleaning.store import clean_corpus
from maskwright.data.cleaning.text import Cleaning
from maskwright.data.held_out import document_key, held_out
from maskwright.data.sources.arguments import Source, resolve_sources
from maskwright.data.sources.readers import documents_of, raw_blocks
from maskwright.reporting.reporter import Progress, no_progress

SHARE, MAX_CHARACTERS = 0.05, 400_000
"""Held out at most."""
_PARTS = 16
"""At least so many documents of each source are held out, if it has so many."""
PASSAGE_BYTES, HALF_BYTES = 300, 150
"""Bytes of UTF-8 in a passage and in each half of a pair: about 60 and 30 English tokens, or 100 and 50 hanzi."""
_BOUNDARY = re.compile(r"\n|(?<=[.!?])\s|(?<=[。！？])")


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyText:
    """The text of a study on disk.

    Attributes:
        train: CORPUS arguments for `pretrain`.
        documents: Held-out documents as sentences, with the space before each where there was one.
        sources: The source of each.
        held_out: The held-out documents as a CORPUS argument.
    """

    train: tuple[str, ...]
    documents: tuple[tuple[str, ...], ...]
    sources: tuple[str, ...]
    held_out: str

    def passages(self, most: int, size: int = PASSAGE_BYTES) -> list[tuple[int, str]]:
        """Return at most `most` passages of whole sentences, spread over the documents, as (document, text), in order.

        A passage has at most `size` bytes of UTF-8; a single longer sentence is left out.
        """
        candidates = [(number, text) for number, each in enumerate(self.documents) for text in _grouped(each, size)]
        return [candidates[index] for index in _spread(len(candidates), most)]

    def pairs(self, most: int) -> list[tuple[int, str, str]]:
        """Return pairs of neighboring passages, as (document, first, second), in order."""
        candidates = [
            (number, *halves)
            for number, each in enumerate(self.documents)
            for halves in zip(*[iter(_grouped(each, HALF_BYTES))] * 2, strict=False)
        ]
        return [candidates[index] for index in _spread(len(candidates), most)]


def prepare_text(
    folder: Path,
    corpus: Sequence[str],
    cleaning: Cleaning,
    *,
    cache: Path | None = None,
    workers: int | None = None,
    progress: Progress = no_progress,
) -> StudyText:
    """Split a corpus, or open the split that is in the folder already; one that is damaged is made again.

    Paragraphs that the training text holds too are removed from the held-out text. Raises DataError if the corpus
    cannot be read, or is too small to hold anything out.
    """

    def make(temporary: Path) -> None:
        _split(temporary, resolve_sources(corpus, cache=cache, progress=progress), cleaning)
        _clean(temporary, cleaning, cache, workers, progress)

    return open_or_build(folder, open_text, make)


def open_text(folder: Path) -> StudyText:
    """Read the text in a folder, without comparing checksums."""
    described = read_json(folder / "text.json")
    documents = [parse_json(line) for line in (folder / "held_out.jsonl").read_text(encoding="utf-8").splitlines()]
    return StudyText(
        train=tuple(f"{folder / 'train' / name}{weight}" for name, weight in described["train"].items()),
        documents=tuple(tuple(each["sentences"]) for each in documents),
        sources=tuple(each["source"] for each in documents),
        held_out=f"{folder / 'held_out.jsonl'}#text",
    )


def _documents(sources: tuple[Source, ...], cleaning: Cleaning) -> Iterator[tuple[int, str]]:
    reading = [on_bad_line(Counts(), cleaning) for _ in sources]
    for block in raw_blocks(sources, cleaning.text_documents, reading):
        for piece in block.pieces:
            for document in documents_of(piece, reading[block.source]):
                if document.strip():
                    yield block.source, document


def _split(folder: Path, sources: tuple[Source, ...], cleaning: Cleaning) -> None:
    numbers = array("Q")  # Source, key and characters of each document; a large corpus has millions.
    for source, text in _documents(sources, cleaning):
        numbers.extend((source, document_key(text), len(text)))
    source_of, keys, sizes = np.array(numbers, dtype=np.uint64).reshape(-1, 3).T
    share = min(SHARE, MAX_CHARACTERS / max(int(sizes.sum()), 1))
    # Of each source: the keys of the held-out documents, and the most characters of a document.
    held_keys, part = list[set[int]](), list[int]()
    for number in range(len(sources)):
        source_keys, source_sizes = keys[source_of == number], sizes[source_of == number].astype(np.int64)
        limit = int(share * source_sizes.sum())
        part.append(max(PASSAGE_BYTES, limit // _PARTS))
        chosen = held_out(source_keys, np.minimum(source_sizes, part[-1]), max(limit, part[-1]))
        held_keys.append(set(source_keys[chosen].tolist()))
    names = {
        f"{number:02d}-{re.sub(r'[^0-9A-Za-z_-]+', '-', Path(each.name).name.partition('.')[0])}.jsonl": each
        for number, each in enumerate(sources)
    }
    with contextlib.ExitStack() as stack:
        train, held = (_opened(folder / kind, names, stack) for kind in ("train", "held_out"))
        for source, text in _documents(sources, cleaning):
            cut = 0
            if document_key(text) in held_keys[source]:
                cut = len(text) if len(text) <= part[source] else _boundary(text, part[source])
            if cut:
                held[source].write(json.dumps({"text": text[:cut]}) + "\n")
            if text[cut:].strip():
                train[source].write(json.dumps({"text": text[cut:]}) + "\n")
    described = {
        "train": {name: "" if each.weight is None else f":{each.weight:g}" for name, each in names.items()},
        "sources": {name: each.name for name, each in names.items()},
    }
    write_json(folder / "text.json", described)


def _opened(folder: Path, names: Iterable[str], stack: contextlib.ExitStack) -> list[IO[str]]:
    folder.mkdir()
    return [stack.enter_context(open(folder / name, "w", encoding="utf-8")) for name in names]


def _boundary(text: str, size: int) -> int:
    """Return the end of the last paragraph or sentence within `size` characters, or 0."""
    return max((match.end() for match in _BOUNDARY.finditer(text, 0, size)), default=0)


def _clean(folder: Path, cleaning: Cleaning, cache: Path | None, workers: int | None, progress: Progress) -> None:
    described = read_json(folder / "text.json")
    train = [folder / "train" / name for name in described["train"]]
    held = [path for path in sorted((folder / "held_out").iterdir()) if path.stat().st_size]
    if not held or not all(path.stat().st_size for path in train):
        raise DataError(
            "the corpus is too small to hold text out of training",
            hint="Give more text: at least 16 documents, and several of each source.",
        )
    # The training text first: of text that comes twice the first is kept.
    cleaned = clean_corpus(
        [*train, *held],
        cleaning=cleaning.replace(min_document_bytes=1),
        cache=cache,
        workers=workers,
        progress=progress,
    )
    with open(folder / "held_out.jsonl", "w", encoding="utf-8") as file:
        for block, source in enumerate(cleaned.block_sources):
            if source >= len(train):
                name = described["sources"][held[source - len(train)].name]
                for sentences in cleaned.sentences(block):
                    # A sentence without a space before it begins a paragraph, or is Chinese.
                    text = "".join(each if each[:1].isspace() else f"\n\n{each}" for each in sentences).strip()
                    document = {"source": name, "sentences": sentences, "text": text}
                    file.write(json.dumps(document, ensure_ascii=False) + "\n")


def _grouped(sentences: Sequence[str], size: int) -> list[str]:
    """Join neighboring sentences to passages of at most `size` bytes; sentences that are longer end a passage."""
    passages, text = [], ""
    for sentence in (*sentences, ""):
        if sentence and len((text + sentence).encode()) <= size:
            text += sentence
            continue
        if len(text.encode()) >= size // 8:  # Shorter ones are headings and the like.
            passages.append(text.strip())
        text = sentence if len(sentence.encode()) <= size else ""
    return passages


def _spread(count: int, most: int) -> list[int]:
    """Choose at most `most` of `count` indices, the same ones each time, ascending."""
    if count <= most:
        return list(range(count))
    return sorted(generator(0, "study passages").choice(count, most, replace=False).tolist())
