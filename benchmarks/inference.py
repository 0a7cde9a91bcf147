"""Filling masks and making vectors with a base model: the calls as users write them, tokenizing included.

Weights are random: this row measures speed and numeric error, not quality. Every side gets the same texts; their
answers are compared with transformers' in fp32.
"""

import contextlib
import itertools
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks import peers
from benchmarks.goals import FLAG, HF, OWN, goal
from benchmarks.own import OwnStep
from benchmarks.report import Check, Report, Table
from benchmarks.settings import Settings
from benchmarks.shapes import BASE, Shape, fitted
from benchmarks.timing import Side, Spread, interleave, ratios, speeds
from benchmarks.tokenizer import word, word_tokenizer
from benchmarks.workloads import made_text, mlm_recipe, natural_lengths, zipf_ids
from maskwright.core.types import ProductPrecision
from maskwright.inference.precision import choose_precision

FP32_ERROR = 1e-5
HF_BF16, HF_INT8 = "transformers, bf16", "transformers, int8"
PRECISIONS: tuple[ProductPrecision, ...] = ("fp32", "bf16", "int8")
_ROUNDS, _CALLS = 9, {1: 10, 32: 1}

Answer = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Way:
    """One way to get answers.

    Attributes:
        name: As tables call it.
        fill: Probabilities of the best 5 tokens at each text's mask. Shape (B, 5).
        embed: A vector a text. Shape (B, H).
        around: The context to call in.
        exact: Whether it computes in fp32 throughout.
    """

    name: str
    fill: Callable[[Sequence[str]], Answer]
    embed: Callable[[Sequence[str]], Answer]
    around: Callable[[], AbstractContextManager[Any]]
    exact: bool


def run(settings: Settings) -> Report:
    """Measure one text of 16 and of 128 tokens, and 32 texts of natural length."""
    shape = fitted(BASE, settings)
    folder = settings.scratch / "served"
    _save(shape, folder, settings)
    ways = _ways(folder)
    rows, measurements, checks = [], list[dict[str, Any]](), list[Check]()
    for case, batch, lengths in _cases(settings):
        texts = _texts(lengths, shape.vocabulary, settings.seed)
        for task, given in texts.items():
            lines, raw = _measure(case, task, batch, given, ways, settings)
            rows += lines
            measurements += raw
            checks += _checks(case, task, given, ways)
    columns = ("texts x tokens", "task", "side", "ms a call", "faster than transformers by")
    return Report(
        tables=(
            Table(title=f"{shape.told()}, random weights", columns=columns, rows=tuple(rows), words=(0, 1, 2)),
            _summary(measurements),
        ),
        measurements=tuple(measurements),
        checks=tuple(checks),
        notes=(
            "transformers computes the head at every position, as its users do; we compute it at the mask.",
            "transformers in int8 is torch's dynamic quantisation of its linear layers. maskwright in int8 has 8-bit "
            "weights, one scale an output, and 8-bit inputs, one scale a token.",
        ),
    )


def _cases(settings: Settings) -> list[tuple[str, int, Sequence[int]]]:
    natural = natural_lengths(4 if settings.quick else 32, settings.seed).tolist()
    return [("1 x 16", 1, [16]), ("1 x 128", 1, [128]), (f"{len(natural)} natural", len(natural), natural)]


def _save(shape: Shape, folder: Path, settings: Settings) -> None:
    text = made_text(natural_lengths(64, settings.seed), shape.vocabulary, settings.seed)
    OwnStep(mlm_recipe(shape, dropout=0.0, batch=8), text, seed=settings.seed).save(folder)
    word_tokenizer(shape.vocabulary).save(folder, max_length=128)


def _texts(lengths: Sequence[int], vocab_size: int, seed: int) -> dict[str, list[str]]:
    """Make texts, by task, that are `lengths` tokens long with their two special ones; to be filled, one is a mask."""
    ids = zipf_ids(int(sum(lengths)), vocab_size, seed).tolist()
    masked, plain = [], []
    for length in lengths:
        words = [word(ids.pop()) for _ in range(length - 2)]
        plain.append(" ".join(words))
        words[len(words) // 2] = "[MASK]"
        masked.append(" ".join(words))
    return {"fill-mask": masked, "embed": plain}


# --- the ways


def _ways(folder: Path) -> list[Way]:
    cpu, hf_model = torch.device("cpu"), peers.load(folder).eval()
    half, small = peers.load(folder, dtype=torch.bfloat16).eval(), _quantised(peers.load(folder).eval())
    return [
        _transformers(HF, folder, hf_model, contextlib.nullcontext, exact=True),
        _transformers(FLAG, folder, hf_model, peers.onednn_flag, exact=True),
        _transformers(HF_BF16, folder, half, contextlib.nullcontext, exact=False),
        _transformers(HF_INT8, folder, small, contextlib.nullcontext, exact=False),
        # What the processor has no instructions for falls back to fp32: it is not measured again under another name.
        *(_own(folder, precision) for precision in PRECISIONS if choose_precision(precision, cpu) == precision),
    ]


def _quantised(model: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces its successor each time
        return torch.ao.quantization.quantize_dynamic(  # type: ignore[no-untyped-call]
            model, {torch.nn.Linear}, dtype=torch.qint8
        )


def _transformers(
    name: str, folder: Path, model: Any, around: Callable[[], AbstractContextManager[Any]], *, exact: bool
) -> Way:
    """The calls of transformers' own documentation: tokenize, forward, softmax at the mask; mean of the tokens."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    body = getattr(model, model.base_model_prefix)

    def fill(texts: Sequence[str]) -> Answer:
        inputs = tokenizer(list(texts), return_tensors="pt", padding=True)
        with torch.inference_mode():
            logits = model(**inputs).logits
        at_masks = logits[inputs["input_ids"] == tokenizer.mask_token_id]
        best: Answer = at_masks.float().softmax(-1).topk(5).values.numpy()
        return best

    def embed(texts: Sequence[str]) -> Answer:
        inputs = tokenizer(list(texts), return_tensors="pt", padding=True)
        with torch.inference_mode():
            hidden = body(**inputs).last_hidden_state.float()
        mask = inputs["attention_mask"][..., None]
        mean: Answer = ((hidden * mask).sum(1) / mask.sum(1)).numpy()
        return mean

    return Way(name, fill, embed, around, exact)


def _own(folder: Path, precision: ProductPrecision) -> Way:
    import maskwright

    model = maskwright.load(folder, device="cpu", precision=precision)
    name = OWN if precision == "fp32" else f"{OWN}, {precision}"

    def fill(texts: Sequence[str]) -> Answer:
        return np.array([[best.score for best in filled[0]] for filled in model.fill_mask(list(texts))], np.float32)

    def embed(texts: Sequence[str]) -> Answer:
        return model.embed(list(texts))

    return Way(name, fill, embed, contextlib.nullcontext, precision == "fp32")


# --- what is measured


def _measure(
    case: str, task: str, batch: int, texts: Sequence[str], ways: Sequence[Way], settings: Settings
) -> tuple[list[tuple[str, ...]], list[dict[str, Any]]]:
    calls = 1 if settings.quick else _CALLS.get(batch, 1)

    def repeated(work: Callable[[Sequence[str]], Answer]) -> Callable[[], None]:
        def several() -> None:
            for _ in range(calls):
                work(texts)

        return several

    sides = [Side(way.name, repeated(_asked(way, task)), way.around) for way in ways]
    seconds = interleave(sides, settings.rounds_or(_ROUNDS), warm_up=2)
    per_call = {name: [each / calls for each in values] for name, values in seconds.items()}
    rows: list[tuple[str, ...]] = [
        (
            case if place == 0 and task == "fill-mask" else "",
            task if place == 0 else "",
            name,
            Spread.of([1e3 * each for each in values]).told(),
            "" if name == HF else ratios(speeds(values, 1), speeds(per_call[HF], 1)).told(),
        )
        for place, (name, values) in enumerate(per_call.items())
    ]
    raw: list[dict[str, Any]] = [
        {"case": case, "task": task, "side": way.name, "exact": way.exact, "seconds": per_call[way.name]}
        for way in ways
    ]
    return rows, raw


def _summary(measurements: Sequence[dict[str, Any]]) -> Table:
    """Our best exact way, and our best of all, against transformers in fp32."""
    rows = []
    for (case, task), group in itertools.groupby(measurements, key=lambda each: (each["case"], each["task"])):
        sides = list(group)
        (hf,) = (speeds(each["seconds"], 1) for each in sides if each["side"] == HF)
        own = [each for each in sides if each["side"].startswith("maskwright")]
        for kind, offered in (("fp32", [each for each in own if each["exact"]]), ("best", own)):
            best = min(offered, key=lambda each: Spread.of(each["seconds"]).median)
            ratio = ratios(speeds(best["seconds"], 1), hf).told()
            wanted = "32 natural" if case.endswith("natural") else case
            rows.append((case, task, kind, best["side"], ratio, goal(f"inference, {kind}", wanted, HF)))
    columns = ("texts x tokens", "task", "precision", "way", "faster than transformers by", "goal")
    return Table(title="in short", columns=columns, rows=tuple(rows), words=(0, 1, 2, 3))


def _checks(case: str, task: str, texts: Sequence[str], ways: Sequence[Way]) -> list[Check]:
    (reference,) = (way for way in ways if way.name == HF)
    expected = _asked(reference, task)(texts)
    checks = []
    for way in ways:
        if way is reference:
            continue
        with way.around():
            found = _asked(way, task)(texts)
        # As a share of the largest: with random weights all probabilities are tiny.
        apart = float(np.abs(found - expected).max() / np.abs(expected).max())
        checks.append(
            Check(
                f"{case}, {task}: {way.name} apart from transformers",
                f"{apart:.1e}" + (f", cosine {_least_cosine(found, expected):.5f}" if task == "embed" else ""),
                f"{FP32_ERROR:.0e}" if way.exact else "reported only",
                not way.exact or apart <= FP32_ERROR,
            )
        )
    return checks


def _least_cosine(vectors: Answer, others: Answer) -> float:
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(others, axis=1)
    return float(((vectors * others).sum(1) / lengths).min())


def _asked(way: Way, task: str) -> Callable[[Sequence[str]], Answer]:
    return way.fill if task == "fill-mask" else way.embed
