"""From a text file to token shards (clean, split, tokenize, find words) against the tokenizers library alone.

The library reads documents that lie in memory and gives ids, on all cores; we read a file, clean it, take out what is
there twice, cut sentences, find where words begin and write memory-mapped shards, on as many cores.
"""

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.goals import goal
from benchmarks.prose import documents, prose
from benchmarks.report import Report, Table
from benchmarks.settings import Settings
from benchmarks.timing import Side, Spread, interleave, ratios, speeds
from maskwright.data.cleaning.store import clean_corpus
from maskwright.data.pool import shared_pools
from maskwright.data.shards.tokenize import tokenize_corpus
from maskwright.data.tokenizers.spec import ByteBPE, TokenizerSpec, Unigram, WordPiece
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.tokenizers.vocabulary import train_tokenizer

KINDS: Mapping[str, TokenizerSpec] = {
    "wordpiece": WordPiece(vocab_size=30522, lowercase=True),
    "byte_bpe": ByteBPE(vocab_size=50265),
    "unigram": Unigram(vocab_size=30000),
}
_LEARNT_FROM = {"unigram": 3_000_000}
_ROUNDS, _TEXTS_AT_ONCE = 5, 1000
OWN, LIBRARY = "maskwright, file to shards", "tokenizers alone"


def run(settings: Settings) -> Report:
    """Measure MB/s of every kind of tokenizer on prose."""
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    path = prose(settings)
    size, texts = path.stat().st_size, documents(path)
    name = settings.corpus.name if settings.corpus else "docstrings"
    kinds = ("wordpiece",) if settings.quick else tuple(KINDS)
    rows, measurements, cache = [], list[dict[str, Any]](), settings.scratch / "shards"
    for kind in kinds:
        tokenizer = _tokenizer(kind, path, settings)
        stages: list[tuple[float, float]] = []

        def build(tokenizer: Tokenizer = tokenizer, stages: list[tuple[float, float]] = stages) -> None:
            stages.append(_build(path, tokenizer, cache))

        def encode(tokenizer: Tokenizer = tokenizer) -> None:
            _encode(tokenizer, texts)

        seconds = interleave([Side(LIBRARY, encode), Side(OWN, build)], settings.rounds_or(_ROUNDS))
        shutil.rmtree(cache, ignore_errors=True)
        rate = {side: speeds(each, size / 1e6) for side, each in seconds.items()}
        share = ratios(rate[OWN], rate[LIBRARY])
        timed = stages[-len(seconds[OWN]) :]
        cleaning, tokenizing = (Spread.of([size / 1e6 / each[part] for each in timed]) for part in (0, 1))
        rows.append(
            (
                kind,
                Spread.of(rate[LIBRARY]).told(),
                Spread.of(rate[OWN]).told(),
                f"{share.median:.0%} ({share.low:.0%}-{share.high:.0%})",
                goal("corpus", kind, "tokenizers"),
                cleaning.told(),
                tokenizing.told(),
            )
        )
        measurements += [
            {"kind": kind, "side": side, "seconds": each, "bytes": size, "stages": timed if side == OWN else None}
            for side, each in seconds.items()
        ]
    return Report(
        tables=(
            Table(
                title=f"MB/s over {size / 1e6:.1f} MB of text ({name})",
                columns=(
                    "tokenizer",
                    LIBRARY,
                    OWN,
                    "of the library's",
                    "goal",
                    "cleaning alone",
                    "tokenizing alone",
                ),
                rows=tuple(rows),
            ),
        ),
        measurements=tuple(measurements),
        notes=("The library's side has its documents in memory and keeps nothing; ours begins and ends on disk.",),
    )


def _tokenizer(kind: str, path: Path, settings: Settings) -> Tokenizer:
    cache = settings.scratch / "cache"
    spec = KINDS[kind].replace(vocab_size=2000) if settings.quick else KINDS[kind]
    clean = clean_corpus([path], cache=cache)
    sample = _LEARNT_FROM.get(kind, 20_000_000)
    return train_tokenizer(spec, clean, seed=settings.seed, max_sample_bytes=sample, cache=cache)


def _build(path: Path, tokenizer: Tokenizer, cache: Path) -> tuple[float, float]:
    """Make shards in an empty folder; return the seconds of cleaning and of tokenizing."""
    shutil.rmtree(cache, ignore_errors=True)
    begun = time.perf_counter()
    with shared_pools():
        clean = clean_corpus([path], cache=cache)
        between = time.perf_counter()
        tokenize_corpus(clean, tokenizer, cache=cache)
    return between - begun, time.perf_counter() - between


def _encode(tokenizer: Tokenizer, texts: list[str]) -> None:
    for first in range(0, len(texts), _TEXTS_AT_ONCE):
        # The library's fastest call: it leaves out the places of tokens in the text.
        tokenizer.backend.encode_batch_fast(texts[first : first + _TEXTS_AT_ONCE], add_special_tokens=False)
