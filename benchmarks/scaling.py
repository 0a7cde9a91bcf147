"""How cost grows: with the length of sequences, the vocabulary, the batch, the layers, and the size of the corpus.

The model is tiny (4 x 256), every sequence is full, fp32, dropout 0.1, transformers beside us where it is of interest.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from json import dumps, loads
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.goals import FLAG, OWN
from benchmarks.own import OwnStep
from benchmarks.prose import write_made_text
from benchmarks.report import Check, Curve, Report, Table
from benchmarks.settings import Settings
from benchmarks.shapes import TINY, Shape, fitted
from benchmarks.timing import Side, Spread, interleave, number, speeds
from benchmarks.workloads import Source, examples_of, mlm_recipe, text_for
from maskwright.core.amounts import size_in_bytes
from maskwright.data.cleaning.store import clean_corpus
from maskwright.data.tokenizers.spec import WordPiece
from maskwright.data.tokenizers.vocabulary import train_tokenizer

LENGTHS = (128, 256, 512, 1024, 2048)
VOCABULARIES = (8192, 16384, 30522, 50265)
BATCHES = (2, 4, 16, 64, 128)
LAYERS = (1, 2, 4, 8, 16)
MEGABYTES = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
_TOKENS, _ROUNDS = 4096, 5
_FLAT, _LINEAR = 1.25, 1.35
"""How much more memory, and how much more time a byte, the largest corpus may take than one of a quarter its size. With
130 MiB at 64 MB of text, what grows by 0.17 MiB or more with each MB is seen at 256."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One thing that grows.

    Attributes:
        name: Of the plot.
        title: Above it.
        x: What grows.
        values: How far.
        point: Makes the model, the sequences in a step and their length for a value.
    """

    name: str
    title: str
    x: str
    values: Sequence[int]
    point: Callable[[Shape, int], tuple[Shape, int, int]]


AXES = (
    Axis(
        "scaling-length",
        "Sequence length, 4,096 tokens a step",
        "tokens in a sequence",
        LENGTHS,
        lambda shape, value: (shape, max(1, _TOKENS // value), value),
    ),
    Axis(
        "scaling-vocabulary",
        "Vocabulary",
        "entries",
        VOCABULARIES,
        lambda shape, value: (replace(shape, vocabulary=value), 16, 128),
    ),
    Axis(
        "scaling-batch",
        "Batch, sequences of 128",
        "sequences in a step",
        BATCHES,
        lambda shape, value: (shape, value, 128),
    ),
    Axis(
        "scaling-layers",
        "Layers of 256",
        "layers",
        LAYERS,
        lambda shape, value: (replace(shape, layers=value), 16, 128),
    ),
)


def run(settings: Settings) -> Report:
    """Measure along every axis, then corpora of growing size."""
    curves, rows, measurements = [], [], []
    for axis in AXES:
        values = axis.values[:2] if settings.quick else axis.values
        found = {value: _point(*axis.point(fitted(TINY, settings), value), settings) for value in values}
        curves.append(
            Curve(
                name=axis.name,
                title=axis.title,
                x=axis.x,
                y="tokens a second",
                logarithmic="x",
                series={
                    side: tuple((float(value), Spread.of(found[value][side]).median) for value in values)
                    for side in (OWN, FLAG)
                },
            )
        )
        for place, value in enumerate(values):
            cells = (Spread.of(found[value][side]).told() for side in (OWN, FLAG))
            rows.append((axis.title if place == 0 else "", f"{value:,}", *cells))
            measurements.append({"axis": axis.name, "value": value, "speeds": found[value]})
    sizes = (0.3, 0.6) if settings.quick else MEGABYTES
    write_made_text(settings.scratch / "longest.txt", sizes[-1], settings.seed)
    corpora = [_corpus(size, settings) for size in sizes]
    return Report(
        tables=(
            Table(title="training, tokens/s", columns=("what grows", "to", OWN, FLAG), rows=tuple(rows)),
            _corpus_table(corpora),
        ),
        measurements=(*measurements, *corpora),
        checks=() if settings.quick else tuple(_corpus_checks(corpora)),
        curves=(*curves, *_corpus_curves(corpora)),
        notes=("Corpora are made text, so that any size can be had; each is prepared in a process of its own.",),
    )


def _point(shape: Shape, batch: int, length: int, settings: Settings) -> dict[str, list[float]]:
    """Time a step of both sides; return tokens a second of each round."""
    if settings.quick:
        shape, batch, length = replace(shape, vocabulary=min(shape.vocabulary, 600)), min(batch, 2), min(length, 256)
    text = text_for(shape, settings, blocks=True, length=length, count=max(64, 4 * batch))
    source = Source(mlm_recipe(shape, dropout=0.1, batch=batch, length=length), text)
    steps = source.steps(1, seed=settings.seed)
    own, folder = OwnStep(source.recipe, text, seed=settings.seed), settings.scratch / "point"
    own.save(folder)
    peer = peers.HuggingFaceStep(peers.load(folder, dropout=0.1))
    shutil.rmtree(folder)
    padded = [peers.padded(texts) for texts in examples_of(steps)]
    sides = [
        Side(OWN, lambda: own.take(steps), own.around),
        Side(FLAG, lambda: peer.take(padded), peers.onednn_flag),
    ]
    seconds = interleave(sides, settings.rounds_or(_ROUNDS))
    return {name: speeds(each, steps[0].num_tokens) for name, each in seconds.items()}


# --- corpora


def _corpus(megabytes: float, settings: Settings) -> dict[str, Any]:
    """Prepare a corpus of a size in a process of its own; the tokenizer is learnt before, from the smallest."""
    file, cache = settings.scratch / "made.txt", settings.scratch / "growing"
    tokenizer = settings.scratch / "growing-tokenizer"
    _write_beginning(settings.scratch / "longest.txt", file, megabytes)
    if not tokenizer.exists():
        clean = clean_corpus([file], cache=cache)
        spec = WordPiece(vocab_size=1000 if settings.quick else 16384, lowercase=True)
        train_tokenizer(spec, clean, seed=settings.seed, cache=cache).save(tokenizer)
    shutil.rmtree(cache, ignore_errors=True)
    task = {"file": str(file), "cache": str(cache), "tokenizer": str(tokenizer)}
    command = [sys.executable, "-m", "benchmarks.children", "build", dumps(task)]
    done = subprocess.run(command, cwd=Path(__file__).parent.parent, check=True, stdout=subprocess.PIPE, text=True)
    shutil.rmtree(cache, ignore_errors=True)
    return {"megabytes": file.stat().st_size / 1e6, **loads(done.stdout.splitlines()[-1])}


def _write_beginning(longest: Path, file: Path, megabytes: float) -> None:
    """Write the first documents of a file of made text, so many megabytes: making text takes longest of all."""
    with open(longest, "rb") as source, open(file, "wb") as target:
        for line in source:
            target.write(line)
            if line == b"\n" and target.tell() > 1e6 * megabytes:
                return


def _corpus_table(corpora: Sequence[dict[str, Any]]) -> Table:
    return Table(
        title="corpus to shards, all cores",
        columns=("MB of text", "cleaning, s", "tokenizing, s", "MB/s", "peak memory", "peak of a worker"),
        rows=tuple(
            (
                number(each["megabytes"]),
                number(each["cleaning"]),
                number(each["tokenizing"]),
                number(each["megabytes"] / (each["cleaning"] + each["tokenizing"])),
                size_in_bytes(each["peak"]),
                size_in_bytes(each["worker"]),
            )
            for each in corpora
        ),
        words=(),
    )


def _corpus_curves(corpora: Sequence[dict[str, Any]]) -> list[Curve]:
    def points(of: Callable[[dict[str, Any]], float]) -> tuple[tuple[float, float], ...]:
        return tuple((each["megabytes"], of(each)) for each in corpora)

    return [
        Curve(
            name="scaling-corpus-time",
            title="Time to prepare a corpus",
            x="MB of text",
            y="seconds",
            series={
                "cleaning": points(lambda each: each["cleaning"]),
                "tokenizing": points(lambda each: each["tokenizing"]),
            },
        ),
        Curve(
            name="scaling-corpus-memory",
            title="Memory to prepare a corpus",
            x="MB of text",
            y="peak, MiB",
            series={
                "main process": points(lambda each: each["peak"] / (1 << 20)),
                "largest worker": points(lambda each: each["worker"] / (1 << 20)),
            },
        ),
    ]


def _corpus_checks(corpora: Sequence[dict[str, Any]]) -> list[Check]:
    """Compare the largest corpus with one of a quarter its size, and no smaller ones.

    Memory is flat if it stops growing, and time linear if a byte costs the same in the end. Small corpora tell neither:
    blocks on their way between the processes are of fixed number and size, and until a corpus fills them, some tens of
    MB, memory grows; and starting up is most of the time.

    Args:
        corpora: In the order of their sizes, the last at least four times as large as the first.
    """
    largest = corpora[-1]
    quarter = [each for each in corpora if round(each["megabytes"]) <= round(largest["megabytes"] / 4)][-1]
    of = f"{largest['megabytes']:.0f} MB against {quarter['megabytes']:.0f} MB"
    checks = []
    for name, part in (("memory", "peak"), ("memory of a worker", "worker")):
        if quarter[part]:  # Peaks of workers are seen on Linux alone.
            grown = largest[part] / quarter[part]
            checks.append(Check(f"{of}: {name}", f"x {grown:.2f}", f"x {_FLAT} (flat)", grown <= _FLAT))
    slowed = _seconds_per_megabyte(largest) / _seconds_per_megabyte(quarter)
    return [*checks, Check(f"{of}: time a byte", f"x {slowed:.2f}", f"x {_LINEAR} (linear)", slowed <= _LINEAR)]


def _seconds_per_megabyte(corpus: dict[str, Any]) -> float:
    seconds: float = corpus["cleaning"] + corpus["tokenizing"]
    return seconds / float(corpus["megabytes"])
