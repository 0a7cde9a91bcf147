"""ALBERT in int8 against BERT in int8, one short text: what sharing a block's weights is worth when they fit the cache.

Both are our encoder as `maskwright embed` uses it, 12 layers of 768, embeddings of the same width, no head: all that
differs is whether twelve layers have one block or twelve.
"""

from collections.abc import Callable
from dataclasses import replace

import torch

from benchmarks.goals import goal
from benchmarks.report import Report, Table
from benchmarks.settings import Settings
from benchmarks.shapes import BASE, Shape, fitted
from benchmarks.timing import Side, Spread, interleave, ratios, speeds
from benchmarks.workloads import zipf_ids
from maskwright.core.tensors import FlatBatch
from maskwright.core.types import ProductPrecision
from maskwright.inference.precision import choose_precision
from maskwright.model.encoder import Encoder
from maskwright.model.initialization import initialize
from maskwright.model.states import States, states_of

LENGTHS = (8, 16, 32, 128)
PRECISIONS: tuple[ProductPrecision, ...] = ("fp32", "bf16", "int8")
_ROUNDS, _CALLS = 15, 20
_MODELS = ("BERT", "ALBERT")


def run(settings: Settings) -> Report:
    """Time both bodies at four lengths in three precisions."""
    shape = fitted(BASE, settings)
    # What the processor has no instructions for falls back to fp32: it is not measured again under another name.
    cpu = torch.device("cpu")
    precisions = [precision for precision in PRECISIONS if choose_precision(precision, cpu) == precision]
    encoders = {model: _encoder(shape, model, settings.seed) for model in _MODELS}
    ways = {(model, precision): states_of(encoders[model], precision) for model in _MODELS for precision in precisions}
    rows, measurements = [], []
    for length in LENGTHS:
        batch = _batch(length, shape.vocabulary, settings.seed)
        sides = [
            Side(f"{model} {precision}", _calls(states, batch, settings)) for (model, precision), states in ways.items()
        ]
        seconds = interleave(sides, settings.rounds_or(_ROUNDS), warm_up=2)
        for place, precision in enumerate(precisions):
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
        notes=("int8: 8-bit weights, one scale an output; 8-bit inputs, one scale a token.",),
    )


def _repeats(settings: Settings) -> int:
    return 2 if settings.quick else _CALLS


def _encoder(shape: Shape, model: str, seed: int) -> Encoder:
    shape = replace(shape, sharing="all" if model == "ALBERT" else "none")
    encoder = Encoder(shape.config(), shape.vocabulary)
    initialize(encoder, shape.config(), seed)
    return encoder.eval()


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


def _calls(states: States, batch: FlatBatch, settings: Settings) -> Callable[[], None]:
    def work() -> None:
        for _ in range(_repeats(settings)):
            states(batch)

    return work
