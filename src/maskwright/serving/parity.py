"""The check of an exported model: its results on real texts beside those of the source model."""

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from maskwright.core.errors import ConversionError
from maskwright.core.storage.files import read_object, records_of
from maskwright.core.text.amounts import pluralize
from maskwright.core.types import IntArray
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.finetuning.features import Features
from maskwright.finetuning.labeled import read_for_model
from maskwright.finetuning.model.fine_tuned import FineTunedModel
from maskwright.finetuning.predict import sample_input, to_example
from maskwright.finetuning.readers.options import ReadOptions
from maskwright.inference.texts import read_texts
from maskwright.serving.onnx_graph import Arrays, Run

MAX_TEXTS = 500
"""Texts of a file that are compared."""
_BATCH = 8
_MASK_EVERY = 7  # about the share of masks in training
_VECTORS = ("encoder", "embedding")
_PER_TOKEN = ("encoder", "mlm", "rtd", "token", "span")

_MEASURES: Mapping[str, str] = {
    "encoder": "lowest cosine similarity",
    "embedding": "lowest cosine similarity",
    "mlm": "same top token",
    "rtd": "same decision",
    "classification": "same class",
    "regression": "correlation",
    "reranking": "correlation",
    "multi_label": "same classes",
    "tagging": "same tag",
    "question_answering": "same answer",
    "multiple_choice": "same option",
}
_SENTENCES = (
    "The committee met on Tuesday to discuss the new budget, but no decision was reached before the summer.",
    "She opened the window and listened to the rain that fell on the roof of the old house.",
    "Water boils at a lower temperature in the mountains, because the pressure of the air is lower there.",
    "I ordered two of these and both of them broke within a week; I would not buy them again.",
    "The river flows north through three countries and reaches the sea near a small fishing town.",
    "A function that returns the sum of its arguments is easier to test than one that prints it.",
    "今天天气很好，我们一起去公园散步，然后在湖边的小店里喝茶。",
    "Der Zug nach München fährt heute zwanzig Minuten später ab als gestern.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """Differences between an exported model and its source.

    Attributes:
        precision: Of the exported model.
        texts: Texts, or labeled examples, that were compared.
        difference: The largest difference of a score (of a hidden state, of an embedding).
        peak: The largest score of the source.
        agreement: The share of equal results, or another number up to 1: see `measure`.
        measure: What `agreement` is.
        milliseconds, source_milliseconds: Time per text: of ONNX and OpenVINO in turns, in batches of 8; of
            sentence-transformers one after the other, each in its own batches.
    """

    precision: str
    texts: int
    difference: float
    peak: float
    agreement: float
    measure: str
    milliseconds: float
    source_milliseconds: float

    def check(self, limits: Mapping[str, tuple[float, float]]) -> None:
        """Raise ConversionError if the result is not within the limits of its precision (see `export.LIMITS`)."""
        share, least = limits[self.precision]
        most = share * max(1.0, self.peak)
        least = min(least, 1 - 1.001 / self.texts)  # Of few texts one may differ.
        # Written so that NaN fails.
        if not (self.difference <= most and self.agreement >= least):
            hint = "Check on texts of the model's domain, `--texts FILE`"
            raise ConversionError(
                f"the exported model ({self.precision}) differs from its source: largest difference "
                f"{self.difference:.2g}, {self.measure} {self.agreement:.2%}, on {pluralize(self.texts, 'text')}; "
                "it was not kept",
                allowed=f"a difference of up to {most:.2g} and at least {least:.1%}",
                hint=hint if self.precision == "fp32" else f"{hint}, or export with `--precision fp32`",
            )


def texts_for(folder: Path, file: Path | None) -> list[str]:
    """Return the texts of a file, else examples of the run's corpus and some sentences."""
    if file is not None:
        return [text for text in read_texts(file) if text.strip()][:MAX_TEXTS]
    card = folder / "data_card.json"
    with records_of(folder, card.name):
        sources = read_object(card)["sources"] if card.exists() else ()
        return [*(str(text) for source in sources for text in source["examples"]), *_SENTENCES]


def examples_for(model: FineTunedModel, file: Path | None) -> tuple[Any, ...]:
    """Return the examples of a file, read as `maskwright predict` does, else examples made of some sentences."""
    kind, trained = model.task.kind, model.read_as
    if file is not None:
        return read_for_model(file, kind, ReadOptions(labels="ignored"), trained).examples[:MAX_TEXTS]
    rotated = [(_SENTENCES[number:] + _SENTENCES[:number])[:3] for number in range(len(_SENTENCES))]
    return tuple(
        to_example(sample_input(model, texts), str(number), f"sentence {number}", kind, trained)
        for number, texts in enumerate(rotated, start=1)
    )


def compare_heads(
    head: str, original: Run, exported: Mapping[str, Run], texts: Sequence[str], tokenizer: Tokenizer, max_length: int
) -> list[Parity]:
    """Compare hidden states ("encoder"), the top tokens at masks ("mlm") or the tokens called replaced ("rtd")."""
    features = _features(texts, tokenizer, max_length, head)

    def keep(scores: NDArray[np.float32], positions: IntArray) -> NDArray[Any]:
        if head in _VECTORS:
            return scores[None] if head == "embedding" else scores.mean(axis=0, keepdims=True)
        return scores[positions].argmax(axis=-1) if head == "mlm" else scores > 0

    def agree(left: list[NDArray[Any]], right: list[NDArray[Any]]) -> float:
        first, second = np.concatenate(left), np.concatenate(right)
        if head not in _VECTORS:
            return float((first == second).mean())
        return _lowest_cosine(first, second)

    return _compare(head, original, exported, features, tokenizer, keep, agree, _MEASURES[head])


def compare_embeddings(
    original: Callable[[list[str]], NDArray[np.float32]],
    exported: Callable[[list[str]], NDArray[np.float32]],
    texts: list[str],
) -> Parity:
    """Compare the embeddings of texts, computed once each, one model after the other."""
    (left, source_seconds), (right, seconds) = (_timed(run, texts, texts[:1]) for run in (original, exported))
    return Parity(
        precision="fp32",
        texts=len(texts),
        difference=float(np.abs(left - right).max()),
        peak=float(np.abs(left).max()),
        agreement=_lowest_cosine(left, right),
        measure=_MEASURES["encoder"],
        source_milliseconds=1000 * source_seconds / len(texts),
        milliseconds=1000 * seconds / len(texts),
    )


def _timed(run: Callable[[Any], NDArray[np.float32]], inputs: Any, first: Any) -> tuple[NDArray[np.float32], float]:
    """Return a result and the seconds it took, after a first call that also allocates memory, if any."""
    if first is not None:
        run(first)
    begun = time.perf_counter()
    return run(inputs), time.perf_counter() - begun


def _lowest_cosine(left: NDArray[np.float32], right: NDArray[np.float32]) -> float:
    return float(torch.cosine_similarity(torch.from_numpy(left), torch.from_numpy(right)).min())


def compare_tasks(
    model: FineTunedModel, original: Run, exported: Mapping[str, Run], examples: Sequence[Any]
) -> list[Parity]:
    """Compare the predictions of a fine-tuned model with those of its exports by precision."""
    task, features = model.task, model.task.features(examples, model.layout, training=False)

    def keep(scores: NDArray[np.float32], positions: IntArray) -> NDArray[Any]:
        if task.head == "choice":
            return scores[:, None]  # One score per option, where tasks expect one row.
        if task.head == "token":
            return scores[positions]
        return scores[None] if task.head == "sequence" else scores  # One row per unit.

    def agree(left: list[NDArray[Any]], right: list[NDArray[Any]]) -> float:
        first, second = (
            [each.value for each in task.predictions(np.concatenate(scores), features, examples)]
            for scores in (left, right)
        )
        if (
            task.kind in ("regression", "reranking") and min(np.std(first), np.std(second)) > 0
        ):  # A constant has no correlation.
            return float(np.corrcoef(first, second)[0, 1])
        if task.kind == "tagging":
            first, second = ([tag for tags in values for tag in tags] for values in (first, second))
        return float(np.mean([a == b for a, b in zip(first, second, strict=True)]))

    return _compare(task.head, original, exported, features, model.tokenizer, keep, agree, _MEASURES[task.kind])


def _features(texts: Sequence[str], tokenizer: Tokenizer, max_length: int, head: str) -> Features:
    """Lay out single texts; every seventh token is masked for "mlm", another token of the texts for "rtd"."""
    special = tokenizer.special_tokens
    encoded = [ids[: max_length - 2] for ids in tokenizer.encode_batch(texts)]
    ids = np.concatenate([[special.cls, *ids, special.sep] for ids in encoded])
    cu_seqlens = np.append(0, np.cumsum([len(ids) + 2 for ids in encoded]))
    positions = np.concatenate(
        [
            np.arange(start + min(4, (end - start) // 2), end - 1, _MASK_EVERY)
            for start, end in itertools.pairwise(cu_seqlens)
        ]
    )
    if head not in _VECTORS:
        ids[positions] = special.mask if head == "mlm" else np.roll(ids[positions], 1)
    number = np.arange(len(texts))
    return Features(
        ids=ids,
        segment_ids=np.zeros_like(ids),
        cu_seqlens=cu_seqlens,
        units=number,
        examples=number,
        positions=positions,
    )


def _compare(
    head: str,
    original: Run,
    exported: Mapping[str, Run],
    features: Features,
    tokenizer: Tokenizer,
    keep: Callable[[NDArray[np.float32], IntArray], NDArray[Any]],
    agree: Callable[[list[NDArray[Any]], list[NDArray[Any]]], float],
    measure: str,
) -> list[Parity]:
    """Compute all models on all units in turns; `keep` takes from a unit's scores what `agree` needs."""
    positions = np.empty(0, np.int64) if features.positions is None else features.positions
    runs = (original, *exported.values())
    kept: list[list[Any]] = [[] for _ in runs]
    seconds, differences = np.zeros(len(runs)), np.zeros(len(runs))
    peak = 0.0
    for number, (inputs, sequences) in enumerate(_batches(features, tokenizer.special_tokens.pad, head == "choice")):
        timed = [_timed(run, inputs, None if number else inputs) for run in runs]
        outputs = [output for output, _ in timed]
        seconds += [duration for _, duration in timed]
        for row, sequence in enumerate(sequences):
            start, end = features.cu_seqlens[sequence : sequence + 2]
            of_unit = [scores[row, : end - start] if head in _PER_TOKEN else scores[row] for scores in outputs]
            # Not Python's max, which may drop a NaN.
            differences = np.maximum(differences, [np.abs(scores - of_unit[0]).max() for scores in of_unit])
            peak = max(peak, float(np.abs(of_unit[0]).max()))
            in_text = positions[(positions >= start) & (positions < end)] - start
            for values, scores in zip(kept, of_unit, strict=True):
                values.append(keep(scores, in_text))
    milliseconds = 1000 * seconds / features.num_units
    return [
        Parity(
            precision=precision,
            texts=int(features.examples[-1]) + 1,
            difference=float(differences[index]),
            peak=peak,
            agreement=agree(kept[0], kept[index]),
            measure=measure,
            milliseconds=float(milliseconds[index]),
            source_milliseconds=float(milliseconds[0]),
        )
        for index, precision in enumerate(exported, start=1)
    ]


def _batches(features: Features, pad: int, choice: bool) -> Iterator[tuple[Arrays, list[int]]]:
    """Yield padded batches with the first sequence of each of their rows; for choice, a row is a unit's options."""
    bounds = np.searchsorted(features.units, np.arange(features.num_units + 1))
    # Questions may have different numbers of options.
    size = 1 if choice else _BATCH
    for first in range(0, features.num_units, size):
        units = range(first, min(first + size, features.num_units))
        sequences = range(int(bounds[units.start]), int(bounds[units.stop]))
        lengths = np.diff(features.cu_seqlens)[sequences.start : sequences.stop]
        real = np.arange(lengths.max()) < lengths[:, None]
        tokens = slice(features.cu_seqlens[sequences.start], features.cu_seqlens[sequences.stop])
        inputs = {
            "input_ids": np.full(real.shape, pad, dtype=np.int64),
            "attention_mask": real.astype(np.int64),
            "token_type_ids": np.zeros(real.shape, dtype=np.int64),
        }
        inputs["input_ids"][real] = features.ids[tokens]
        inputs["token_type_ids"][real] = features.segment_ids[tokens]
        if choice:
            inputs = {name: array[None] for name, array in inputs.items()}
        yield inputs, [int(bounds[unit]) for unit in units]
