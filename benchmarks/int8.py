"""ALBERT in int8 against BERT in int8, one short text: what sharing a block's weights is worth when they fit the cache.

Both are our encoder, 12 layers of 768, embeddings of the same width, no head: all that differs is whether twelve layers
have one block or twelve. int8 is torch's dynamic quantisation of the linear layers; maskwright has no int8 of its own.
"""

import copy
import warnings
from collections.abc import Callable
from dataclasses import replace

import torch

from benchmarks.goals import goal
from benchmarks.machine import own_machine
from benchmarks.report import Report, Table
from benchmarks.settings import Settings
from benchmarks.shapes import BASE, Shape, fitted
from benchmarks.timing import Side, Spread, interleave, ratios, speeds
from benchmarks.workloads import zipf_ids
from maskwright.core.tensors import FlatBatch
from maskwright.encoder.encoder import Encoder
from maskwright.encoder.initialisation import initialise
from maskwright.training.device import matmul_library

LENGTHS = (8, 16, 32, 128)
PRECISIONS = ("fp32", "bf16", "int8")
_ROUNDS, _CALLS = 15, 20
_MODELS = ("BERT", "ALBERT")


def run(settings: Settings) -> Report:
    """Time both bodies at four lengths in three precisions."""
    shape = fitted(BASE, settings)
    encoders = {
        (model, precision): _encoder(shape, model, precision, settings.seed)
        for model in _MODELS
        for precision in PRECISIONS
    }
    rows, measurements = [], []
    for length in LENGTHS:
        batch = _batch(length, shape.vocabulary, settings.seed)
        sides = [
            Side(f"{model} {precision}", _calls(encoder, batch, settings), lambda: matmul_library(own_machine().matmul))
            for (model, precision), encoder in encoders.items()
        ]
        seconds = interleave(sides, settings.rounds_or(_ROUNDS), warm_up=2)
        for place, precision in enumerate(PRECISIONS):
            bert, albert = (seconds[f"{model} {precision}"] for model in _MODELS)
            rows.append(
                (
                    str(length) if place == 0 else "",
                    precision,
                    *(
                        Spread.of([1e3 * each / _repeats(settings) for each in values]).told()
                        for values in (bert, albert)
                    ),
                    ratios(speeds(albert, 1), speeds(bert, 1)).told(),
                    goal("int8", str(length), "BERT") if precision == "int8" else "",
                )
            )
            measurements.append({"length": length, "precision": precision, "BERT": bert, "ALBERT": albert})
    columns = ("tokens", "precision", "BERT, ms", "ALBERT, ms", "ALBERT is faster by", "goal")
    return Report(
        tables=(Table(title="one text, encoder alone", columns=columns, rows=tuple(rows), words=(0, 1)),),
        measurements=tuple(measurements),
        notes=("int8: torch's dynamic quantisation of our linear layers; maskwright has no int8 engine of its own.",),
    )


def _repeats(settings: Settings) -> int:
    return 2 if settings.quick else _CALLS


def _encoder(shape: Shape, model: str, precision: str, seed: int) -> Encoder:
    shape = replace(shape, sharing="all" if model == "ALBERT" else "none")
    encoder = Encoder(shape.config(), shape.vocabulary)
    initialise(encoder, shape.config(), seed)
    encoder.eval()
    if precision == "bf16":
        return encoder.to(torch.bfloat16)
    if precision == "int8":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch announces its successor each time
            quantised: Encoder = torch.ao.quantization.quantize_dynamic(  # type: ignore[no-untyped-call]
                copy.deepcopy(encoder), {torch.nn.Linear}, dtype=torch.qint8
            )
        return quantised
    return encoder


def _batch(length: int, vocab_size: int, seed: int) -> FlatBatch:
    ids = torch.from_numpy(zipf_ids(length, vocab_size, seed)).long()
    nothing = torch.zeros(length, dtype=torch.int64)
    return FlatBatch(
        ids=ids,
        position_ids=torch.arange(length),
        segment_ids=nothing,
        sequence_ids=nothing,
        first_tokens=torch.zeros(1, dtype=torch.int64),
        row_length=length,
        num_tokens=length,
    )


def _calls(encoder: Encoder, batch: FlatBatch, settings: Settings) -> Callable[[], None]:
    def work() -> None:
        with torch.inference_mode():
            for _ in range(_repeats(settings)):
                encoder(batch)

    return work
