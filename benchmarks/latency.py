"""Latency of embeddings: each call of each contender, quiet, beside a busy process and beside a training.

A contender is stopped while another is measured, so each of its turns begins like a request to an idle service. Its
first calls of a turn, which also read the weights into the caches again, are not counted.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import texts
from benchmarks.runner import ROOT, Contender, Outcome, Settings, background, busy_processes, measure
from benchmarks.table import Table, number

SHORT = ("A man with a hard hat is dancing in the street.",)
_UNCOUNTED = 2
"""Calls at the start of a turn."""
_TURN_SECONDS = 5.0
"""Of a turn, for each kind of text."""
_LIMIT = 120.0
"""Seconds of a run after which it has failed."""

Embed = Callable[[Sequence[str]], Any]


def contenders(model: Path, settings: Settings) -> list[Contender]:
    """Return all contenders whose libraries are installed."""
    # A mask token in a text is plain text to maskwright only.
    words = (ROOT / "docs" / "systems.md").read_text(encoding="utf-8").replace("[MASK]", "word").split()
    ends = np.cumsum(texts.natural_lengths(4 if settings.quick else 64, 48) // 2)
    many = [" ".join(words[start:end]) for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    options = {"model": str(model), "scratch": str(settings.scratch), "texts": {"1": SHORT, str(len(many)): many}}
    options["calls"] = {"1": 3, str(len(many)): 1} if settings.quick else {"1": 150, str(len(many)): 25}
    engines = {
        "maskwright fp32": ("torch", "maskwright", "fp32"),
        "maskwright int8": ("torch", "maskwright", "int8"),
        "sentence-transformers fp32": ("sentence_transformers", "sentence_transformers", "fp32"),
        "ONNX Runtime int8": ("onnxruntime", "onnx", "int8"),
        "OpenVINO int8": ("nncf", "openvino", "int8"),
    }
    return [
        Contender(
            name=name,
            make="benchmarks.latency:Embedding",
            options={**options, "engine": engine, "precision": precision},
        )
        for name, (library, engine, precision) in engines.items()
        if find_spec(library)
    ]


def measure_latency(compared: Sequence[Contender], training: Contender | None, settings: Settings) -> Iterator[Table]:
    """Yield a table for each situation. `training`, needed by the one of this name, has one run without end."""
    for case in filter(settings.wants, ("quiet", "busy", "training")):
        with ExitStack() as stack:
            beside: Callable[[], Any] = nullcontext
            if case == "busy":
                beside = partial(busy_processes, 1)
            elif training and case == "training":
                beside = stack.enter_context(background(training))
            outcomes = measure(compared, settings, rounds=4, warm_up=0, beside=beside, limit=_LIMIT)
        columns = ("texts", "contender", "median, ms", "99th percentile", "worst", "calls", "lowest cosine")
        yield Table(f"latency of embeddings, {case}", columns, list(_rows(outcomes)), words=2)


def _rows(outcomes: Sequence[Outcome]) -> Iterator[Sequence[str]]:
    rounds = next((each.rounds for each in outcomes if each.rounds), [])
    for kind in rounds[0]["ms"] if rounds else ():
        for each in outcomes:
            if not each.rounds:
                yield kind, each.name, f"not measured: {each.problem}", "", "", "", ""
                continue
            times = [ms for turn in each.rounds for ms in turn["ms"][kind]]
            vectors, reference = (np.array(turn["vectors"][kind]) for turn in (each.rounds[0], rounds[0]))
            norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(reference, axis=1)
            cosine = float(((vectors * reference).sum(axis=1) / norms).min())
            figures = (number(float(np.percentile(times, share))) for share in (50, 99, 100))
            yield kind, each.name, *figures, str(len(times)), f"{cosine:.4f}"


class Embedding:
    """Vectors of texts, tokenizing included.

    Args:
        engine: A key of `_ENGINES`.
        model: A folder.
        scratch: For exported models.
        texts: By the name of a kind of call.
        calls: Of a run, by the same names.
    """

    def __init__(
        self,
        engine: str,
        model: str,
        scratch: str,
        precision: str,
        texts: Mapping[str, Sequence[str]],
        calls: Mapping[str, int],
    ) -> None:
        self._embed = _ENGINES[engine](model, Path(scratch) / engine, precision)
        self._texts, self._calls = texts, calls
        for each in texts.values():
            self._embed(each)

    def run(self) -> dict[str, Any]:
        """Time each call, in ms."""
        begun = time.perf_counter()
        times = {name: self._times(each, self._calls[name]) for name, each in self._texts.items()}
        seconds = time.perf_counter() - begun
        vectors = {name: np.asarray(self._embed(each)).tolist() for name, each in self._texts.items()}
        return {"work": sum(map(len, times.values())), "seconds": seconds, "ms": times, "vectors": vectors}

    def _times(self, each: Sequence[str], calls: int) -> list[float]:
        times, end = list[float](), time.perf_counter() + _TURN_SECONDS
        while len(times) < _UNCOUNTED + calls and (len(times) <= _UNCOUNTED or time.perf_counter() < end):
            begun = time.perf_counter()
            self._embed(each)
            times.append(1e3 * (time.perf_counter() - begun))
        return times[_UNCOUNTED:]


def _maskwright(model: str, scratch: Path, precision: str) -> Embed:
    import maskwright

    return maskwright.load(model, device="cpu", precision=precision).embed  # type: ignore[arg-type]


def _sentence_transformers(model: str, scratch: Path, precision: str) -> Embed:
    from sentence_transformers import SentenceTransformer

    encode: Embed = partial(SentenceTransformer(model, device="cpu").encode, show_progress_bar=False)
    return encode


def _onnx(model: str, scratch: Path, precision: str) -> Embed:
    import onnxruntime
    import torch

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(_exported(model, scratch, "onnx", precision, "onnx/*.onnx"), options)
    names = [each.name for each in session.get_inputs()]
    return _pooled(model, lambda inputs: session.run(None, {name: inputs[name] for name in names})[-1])


def _openvino(model: str, scratch: Path, precision: str) -> Embed:
    import openvino
    import torch

    path = _exported(model, scratch, "openvino", precision, "openvino/*.xml")
    hints = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": torch.get_num_threads()}
    compiled = openvino.compile_model(path, "CPU", hints)
    names = [each.any_name for each in compiled.inputs]
    last = len(compiled.outputs) - 1
    return _pooled(model, lambda inputs: compiled({name: inputs[name] for name in names})[last])


def _exported(model: str, scratch: Path, target: str, precision: str, pattern: str) -> Path:
    """Return the file of an export, which is made by the first contender that needs it."""
    import maskwright

    encoder = not (Path(model) / "modules.json").is_file()
    if not scratch.exists():
        maskwright.export(model, to=target, precision=precision, encoder=encoder, out=scratch)  # type: ignore[arg-type]
    return next(iter(scratch.glob(pattern)))


def _pooled(model: str, compute: Callable[[Mapping[str, Any]], Any]) -> Embed:
    """Tokenize and pad texts, and return the vectors of a graph or, if it has none, the mean of its hidden states."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(Path(model) / "tokenizer.json"))
    tokenizer.enable_padding()

    def embed(sentences: Sequence[str]) -> Any:
        encoded = tokenizer.encode_batch(list(sentences))
        columns = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
        inputs = {name: np.array([getattr(each, key) for each in encoded]) for name, key in columns.items()}
        output = compute(inputs)
        if output.ndim == 2:
            return output
        mask = inputs["attention_mask"][..., None]
        return (output * mask).sum(axis=1) / mask.sum(axis=1)

    return embed


_ENGINES: Mapping[str, Callable[[str, Path, str], Embed]] = {
    "maskwright": _maskwright,
    "sentence_transformers": _sentence_transformers,
    "onnx": _onnx,
    "openvino": _openvino,
}
