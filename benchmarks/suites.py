"""The suites. Each takes the settings and yields tables as they are measured."""

import dataclasses
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import texts
from benchmarks.faults import faults
from benchmarks.labeled import compare_scores
from benchmarks.latency import contenders, measure_latency
from benchmarks.ours import GPU_LEVERS, INFERENCE_LEVERS, LEVERS
from benchmarks.quality import quality
from benchmarks.runner import Contender, Outcome, Settings, Spread, busy_processes, lock, measure
from benchmarks.serving import measure_serving
from benchmarks.table import Table, compare, number, spread

OWN, HF, ONEDNN, GROUPED = "maskwright", "transformers", "transformers + oneDNN", "transformers + oneDNN, grouped"
_SPEED = "tokens/s"
_TRAINING = (("non-padding", "fill", 1.0), ("MFU, %", "mfu", 100.0), ("peak memory, MB", "peak", 1e-6))
_PRETRAIN = "benchmarks.ours:Pretrain"


@dataclass(frozen=True, slots=True)
class Size:
    """A published model, the steps of a run, and the sequences in a step."""

    recipe: str
    steps: int
    batch: int
    vocabulary: int = 30522


SIZES: Mapping[str, Size] = {
    "tiny": Size("bert/tiny", 80, 32),
    "small": Size("bert/small", 24, 32),
    "base": Size("bert/base", 8, 16),
    "albert": Size("albert/base", 8, 16, 30000),
    "electra": Size("electra/small", 16, 32),
    "modernbert-base": Size("modernbert/base", 8, 4),
    "modernbert-mini": Size("modernbert/mini", 8, 16),
    "maskwright-mini": Size("maskwright/mini", 8, 16),
}
_TOY = ("encoder.num_layers=2", "encoder.hidden_size=32", "encoder.num_heads=2", "encoder.intermediate_size=64")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A model and its text on disk, ready for contenders.

    Attributes:
        folder: Where everything lies; `start` in it is a model that peers load.
        ours, theirs: Options of `ours.Pretrain` and `peers.TransformersStep`.
    """

    folder: Path
    ours: Mapping[str, Any]
    theirs: Mapping[str, Any]

    def own(self, name: str = OWN, *, env: Mapping[str, str] | None = None, **options: Any) -> Contender:
        """Return maskwright as a contender; it writes its runs into a folder of its own."""
        out = str(self.folder / "runs" / "".join(filter(str.isalnum, name)))
        return Contender(name=name, make=_PRETRAIN, options={**self.ours, "out": out, **options}, env=env or {})

    def peer(self, name: str, **options: Any) -> Contender:
        """Return transformers as a contender."""
        return Contender(name=name, make="benchmarks.peers:TransformersStep", options={**self.theirs, **options})


def _contender(name: str, make: str, options: Mapping[str, Any], **more: Any) -> Contender:
    return Contender(name=name, make=f"benchmarks.{make}", options={**options, **more})


def prepare(
    settings: Settings,
    size: Size,
    *,
    dropout: float = 0.0,
    blocks: bool = False,
    length: int = 128,
    overrides: Sequence[str] = (),
    **arguments: Any,
) -> Task:
    """Write text and tokenizer, and train a step: that fills the cache and gives the model that peers begin with."""
    electra = size.recipe.startswith("electra")
    if settings.quick:
        size = dataclasses.replace(size, steps=2, batch=4, vocabulary=300)
        toy = ["encoder.embedding_size=16"] * size.recipe.startswith(("albert", "electra"))
        toy += ["generator.size=0.5"] * electra
        overrides = (*_TOY, *toy, *overrides)
    folder = settings.scratch / f"task-{len(list(settings.scratch.glob('task-*')))}"
    count = 80 if settings.quick else max(4096, 2 * size.steps * size.batch)
    lengths = np.full(count, length) if blocks else texts.natural_lengths(count, length)
    tokenizer = texts.write_tokenizer(folder / "tokenizer", size.vocabulary)
    corpus = texts.write_corpus(folder / "corpus.txt", lengths, size.vocabulary)
    recipe = [
        f"training.batch_sequences={size.batch}",
        f"training.phases=[{{share: 1.0, max_length: {length}}}]",
        f"encoder.max_positions={max(512, length)}",
        f"encoder.hidden_dropout={dropout}",
        f"encoder.attention_dropout={dropout}",
        "format={kind: doc_sentences}",
        *overrides,
    ]
    if not electra:
        recipe += ["objectives=[{kind: mlm}]", "encoder.pooler=false"]
    if size.recipe.startswith(("albert", "modernbert", "maskwright")):
        recipe.append("tokenizer.kind=wordpiece")  # The text's words; another kind's tokens would not be these.
    ours = {
        "corpus": str(corpus),
        "tokenizer": str(tokenizer),
        "cache": str(folder / "cache"),
        "recipe": size.recipe,
        "set": recipe,
        "steps": size.steps,
        **arguments,
    }
    theirs = {
        "model": str(folder / "start"),
        "corpus": str(corpus),
        "batch": size.batch,
        "steps": max(2, size.steps // 4),
        "length": length,
        "dropout": dropout,
        "electra": electra,
    }
    task = Task(folder=folder, ours=ours, theirs=theirs)
    with lock(settings):
        alone = dataclasses.replace(settings, lock=None, contenders=())
        (start,) = measure([task.own("start", steps=1)], alone, rounds=1, warm_up=0)
    if start.problem:
        raise RuntimeError(f"cannot train {size.recipe}: {start.problem}")
    shutil.copytree(folder / "runs" / "start", folder / "start")
    return task


def _sizes(settings: Settings, default: Sequence[str]) -> Iterator[tuple[str, Size]]:
    for name in settings.sizes or (default[:1] if settings.quick else default):
        yield name, SIZES[name]


def _with_revision(settings: Settings, contenders: Sequence[Contender]) -> list[Contender]:
    """Add the first contender once more, as another revision of the source has it."""
    if settings.against is None:
        return list(contenders)
    name, source = settings.against
    first = contenders[0]
    options = {**first.options}
    if "out" in options:
        options |= {"out": f"{options['out']}-against", "cache": f"{options['cache']}-against"}
    return [*contenders, dataclasses.replace(first, name=f"{first.name} at {name}", options=options, source=source)]


def train(settings: Settings) -> Iterator[Table]:
    """Measure training: real tokens per second of whole steps, the wait for data included."""
    cases: Mapping[str, tuple[Sequence[str], dict[str, Any]]] = {
        "natural": (("tiny", "small", "base", "albert"), {}),
        "dropout": (("tiny", "small", "base"), {"dropout": 0.1}),
        "blocks": (("tiny", "small", "base"), {"dropout": 0.1, "blocks": True}),
        "bf16": (("tiny", "base"), {"precision": "bf16"}),
        "electra": (("electra",), {"dropout": 0.1}),
    }
    for case, (sizes, options) in cases.items():
        if not settings.wants(case):
            continue
        for size, model in _sizes(settings, sizes):
            bf16 = case == "bf16"
            task = prepare(settings, model, **options)
            contenders = [task.own(), task.peer(HF, bf16=bf16)]
            if not bf16:
                contenders.append(task.peer(ONEDNN, onednn=True))
            if case == "natural":
                contenders.append(task.peer(GROUPED, onednn=True, grouped=True))
            outcomes = measure(_with_revision(settings, contenders), settings, rounds=7)
            yield compare(f"train, {case}, {size} ({model.recipe})", outcomes, _SPEED, extra=_TRAINING)


def levers(settings: Settings) -> Iterator[Table]:
    """Measure what each lever gives: the usual run against the same run with one lever taken away.

    A kernel stays if it makes a whole step or call 1.10 times as fast (docs/architecture.md).
    """
    for size, model in _sizes(settings, ("tiny", "base")):
        task = prepare(settings, model, dropout=0.1)
        contenders = [task.own(), *(task.own(name, levers=lever) for name, lever in LEVERS.items())]
        contenders.append(task.own("bf16 matmuls", precision="bf16"))
        yield compare(f"levers, training, {size}", measure(contenders, settings, rounds=7), _SPEED)
        model_folder, inputs = str(task.folder / "start"), texts.texts(_LENGTHS["1 x 128"], model.vocabulary)
        options = {"model": model_folder, "task": "embed", "texts": inputs, "calls": 1 if settings.quick else 10}
        contenders = [_contender(OWN, "ours:Inference", options)]
        contenders += [
            _contender(name, "ours:Inference", options, levers=each) for name, each in INFERENCE_LEVERS.items()
        ]
        outcomes = measure(contenders, settings, rounds=9)
        yield compare(f"levers, embed 1 x 128, {size}", outcomes, "calls/s")


_LENGTHS = {
    "1 x 16": np.array([16]),
    "1 x 128": np.array([128]),
    "32 texts": texts.natural_lengths(32),
    "1 x 512": np.array([512]),
    "1 x 2048": np.array([2048]),
    "1 x 8192": np.array([8192]),
}


def inference(settings: Settings) -> Iterator[Table]:
    """Measure fill-mask and embed: calls as users write them, tokenizing included; random weights."""
    engines = {HF: "torch", "ONNX Runtime": "onnxruntime", "OpenVINO": "openvino"}
    for size, model in _sizes(settings, ("base",)):
        longest = 8192 if model.recipe.startswith("modernbert") else 512
        task = prepare(
            settings,
            model,
            overrides=[f"encoder.max_positions={longest}", f"training.phases=[{{share: 1.0, max_length: {longest}}}]"],
        )
        vocabulary = 300 if settings.quick else model.vocabulary
        for case, lengths in _LENGTHS.items():
            for work in ("fill-mask", "embed"):
                if not any(map(settings.wants, (case, work, f"{work} {case}"))) or max(lengths) > longest:
                    continue
                inputs = texts.texts(lengths, vocabulary)
                if work == "fill-mask":
                    inputs = [" ".join(["[MASK]", *text.split(" ")[1:]]) for text in inputs]
                calls = 1 if settings.quick or sum(lengths) > 1000 else 10
                options = {"model": str(task.folder / "start"), "task": work, "texts": inputs, "calls": calls}
                contenders = [
                    _contender(f"{OWN}, {precision}", "ours:Inference", options, precision=precision)
                    for precision in ("fp32", "bf16", "int8")
                ]
                peer = partial(_contender, make="peers:Inference", options=options)
                contenders.append(peer(ONEDNN, scratch=str(task.folder / "exported"), onednn=True))
                for name, engine in engines.items():
                    if not find_spec(engine):
                        continue
                    for precision in ("fp32", "bf16", "int8") if engine == "torch" else ("fp32", "int8"):
                        if (engine, precision) == ("openvino", "int8") and not find_spec("nncf"):
                            continue
                        scratch = str(task.folder / f"{engine}-{precision}")
                        contenders.append(
                            peer(f"{name}, {precision}", scratch=scratch, engine=engine, precision=precision)
                        )
                outcomes = measure(_with_revision(settings, contenders), settings, rounds=9, warm_up=2)
                yield compare(
                    f"inference, {work}, {case} tokens, {size}", outcomes, "calls/s", extra=[("ms/call", "ms", 1.0)]
                )


_FINETUNE = ("epochs=1", "batch_size=32", "learning_rate=5e-5", "max_length=128")


def finetune(settings: Settings) -> Iterator[Table]:
    """Measure whole fine-tuning calls: time on made text; with --model and --data also scores on real data."""
    if settings.model is not None:
        yield from compare_scores(settings.model, settings)
        return
    for size, model in _sizes(settings, ("tiny", "small", "base")):
        task = prepare(settings, model, dropout=0.1)
        vocabulary = 300 if settings.quick else model.vocabulary
        count = 48 if settings.quick else {"tiny": 4096, "small": 1024}.get(size, 256)
        files = {
            "train": str(texts.write_labeled(task.folder / "train.csv", count, vocabulary)),
            "dev": str(texts.write_labeled(task.folder / "dev.csv", count // 4, vocabulary, seed=1)),
        }
        options = {"model": str(task.folder / "start"), **files}
        kinds: Mapping[str, tuple[str, Mapping[str, Any]]] = {
            OWN: ("ours:Finetune", {"set": _FINETUNE}),
            "Trainer": ("peers:TrainerFinetune", {}),
            "Trainer, grouped": ("peers:TrainerFinetune", {"grouped": True}),
            "Trainer + oneDNN, grouped": ("peers:TrainerFinetune", {"grouped": True, "onednn": True}),
        }
        contenders = [
            _contender(name, make, options, out=str(task.folder / f"out-{place}"), **more)
            for place, (name, (make, more)) in enumerate(kinds.items())
        ]
        outcomes = measure(contenders, settings, rounds=5)
        yield compare(f"finetune, sentences of SST-2's lengths, {size}", outcomes, "training examples/s")


def corpus(settings: Settings) -> Iterator[Table]:
    """Measure corpus preparation; the peers' documents are neither cleaned nor deduplicated."""
    file = texts.write_prose(settings.scratch / "prose.txt", 0.2 if settings.quick else 20.0)
    for kind, vocabulary in {"wordpiece": 30522, "byte_bpe": 50265, "unigram": 30000}.items():
        if not settings.wants(kind) or (settings.quick and kind != "wordpiece"):
            continue
        options = {"file": str(file), "kind": kind, "vocabulary": 500 if settings.quick else vocabulary}
        makes = {"maskwright, file to shards": "ours:BuildCorpus", "tokenizers, encoding alone": "ours:EncodeAlone"}
        contenders = [
            _contender(name, make, options, cache=str(settings.scratch / f"{kind}-{place}"))
            for place, (name, make) in enumerate(makes.items())
        ]
        if find_spec("datasets"):
            tokenizer = texts.write_tokenizer(settings.scratch / "tokenizer", vocabulary)
            more = {"file": str(file), "tokenizer": str(tokenizer), "out": str(settings.scratch / "datasets")}
            contenders.append(_contender("datasets, file to disk", "peers:DatasetsTokenize", more))
        extra = (("cleaning, s", "cleaning", 1.0), ("tokenizing, s", "tokenizing", 1.0))
        yield compare(f"corpus, {kind}", measure(contenders, settings, rounds=5), "MB/s", extra=extra)


def memory(settings: Settings) -> Iterator[Table]:
    """Measure the peak memory of a training process, libraries included."""
    for size, model in _sizes(settings, ("tiny", "small", "base", "albert")):
        task = prepare(settings, dataclasses.replace(model, steps=3), dropout=0.1)
        outcomes = measure([task.own(), task.peer(HF), task.peer(ONEDNN, onednn=True)], settings, rounds=3)
        peaks = {each.name: each.median("peak") for each in outcomes}
        first = peaks[OWN]
        rows = [
            (name, number(peak / 1e6), number(first / peak)) if peak and first else (name, "", "")
            for name, peak in peaks.items()
        ]
        yield Table(f"memory, {size}", ("contender", "peak memory, MB", f"{OWN} / this"), rows)


def scaling(settings: Settings) -> Iterator[Table]:
    """Measure how training speed changes with one quantity at a time, and corpus preparation with its size."""
    model = SIZES["tiny"]
    axes: Mapping[str, tuple[Sequence[int], Callable[[int], tuple[Size, dict[str, Any]]]]] = {
        "sequence length, 4,096 tokens a step": (
            (128, 512, 2048),
            lambda value: (dataclasses.replace(model, batch=max(1, 4096 // value)), {"length": value}),
        ),
        "vocabulary": ((8192, 30522, 50265), lambda value: (dataclasses.replace(model, vocabulary=value), {})),
        "sequences per step": ((4, 16, 128), lambda value: (dataclasses.replace(model, batch=value), {})),
        "layers": ((1, 4, 16), lambda value: (model, {"overrides": [f"encoder.num_layers={value}"]})),
    }
    for axis, (values, point) in axes.items():
        if not settings.wants(axis.split(",")[0].split()[-1]):
            continue
        rows = []
        for value in values[:1] if settings.quick else values:
            size, options = point(value)
            task = prepare(settings, dataclasses.replace(size, steps=8), dropout=0.1, blocks=True, **options)
            own, peer = measure([task.own(), task.peer(ONEDNN, onednn=True)], settings, rounds=5)
            rows.append((f"{value:,}", _speed(own), _speed(peer), spread(own.ratio(peer))))
        yield Table(f"scaling, {axis}", ("value", f"{OWN}, tokens/s", f"{ONEDNN}, tokens/s", "ratio"), rows, words=0)
    if settings.wants("processes"):
        for model_name, model in _sizes(settings, ("tiny", "base")):
            task = prepare(settings, model, dropout=0.1)
            contenders = [
                dataclasses.replace(task.own(name, ranks=ranks), make="benchmarks.ours:Processes")
                for name, ranks in (("2 processes of 1 thread", 2), ("1 process of 1 thread", 1))
            ]
            yield compare(f"scaling, processes, {model_name}", measure(contenders, settings, rounds=5), _SPEED)
    if settings.wants("corpus"):
        lines = list[tuple[str, ...]]()
        for place, megabytes in enumerate((0.1, 0.2) if settings.quick else (16.0, 64.0, 256.0)):
            file = texts.write_prose(settings.scratch / f"prose-{place}.txt", megabytes)
            cache = str(settings.scratch / f"prose-cache-{place}")
            options = {"file": str(file), "kind": "wordpiece", "vocabulary": 500, "cache": cache}
            (built,) = measure([_contender(OWN, "ours:BuildCorpus", options)], settings, rounds=1, warm_up=0)
            peak = built.median("peak")
            lines.append((number(megabytes), _speed(built), "" if peak is None else number(peak / 1e6)))
        yield Table("scaling, corpus", ("MB of text", "MB/s", "peak memory of the main process, MB"), lines, words=0)


def _speed(outcome: Outcome) -> str:
    return spread(Spread.of(outcome.speeds)) if outcome.rounds else f"not measured: {outcome.problem}"


def gpu(settings: Settings) -> Iterator[Table]:
    """Measure training on a GPU in bf16, dropout 0.1 but for ModernBERT, against transformers with torch.compile."""
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError("the suite gpu needs a CUDA GPU, and PyTorch finds none")
    cases: Mapping[str, tuple[str, int, int, dict[str, Any]]] = {
        "blocks-128": ("base", 256, 120, {"blocks": True, "length": 128}),
        "blocks-512": ("base", 64, 120, {"blocks": True, "length": 512}),
        "natural": ("base", 256, 200, {}),
        "albert": ("albert", 256, 120, {"blocks": True}),
        "electra": ("electra", 256, 120, {"blocks": True}),
        "modernbert-base": ("modernbert-base", 16, 120, {"blocks": True, "length": 1024}),
        "modernbert-mini": ("modernbert-mini", 64, 120, {"blocks": True, "length": 1024}),
    }
    for case, (size, batch, steps, options) in cases.items():
        if not settings.wants(case):
            continue
        model = dataclasses.replace(SIZES[size], batch=batch, steps=steps)
        # ModernBERT drops nothing but an output, which transformers' classes cannot say alone.
        dropout = 0.0 if case.startswith("modernbert") else 0.1
        task = prepare(settings, model, dropout=dropout, device="cuda", precision="bf16", **options)
        contenders = [task.own()]
        if settings.wants("peers"):
            contenders.append(task.own("maskwright, PyTorch only", kernels="reference"))
            contenders.append(task.peer("transformers, bf16", device="cuda", bf16=True))
        if settings.wants("levers") and case in ("blocks-128", "natural"):
            contenders += [task.own(name, levers=lever) for name, lever in GPU_LEVERS.items()]
        # Sampling by the generator breaks the graph of a joint ELECTRA.
        compiled = case != "electra"
        name = f"transformers, bf16{', compiled' * compiled}"
        if all(each.name != name for each in contenders):
            contenders.append(task.peer(name, device="cuda", bf16=True, compiled=compiled))
        outcomes = measure(_with_revision(settings, contenders), settings, rounds=3)
        yield compare(f"gpu, {case}, {size}", outcomes, _SPEED, extra=_TRAINING[:2])


WAIT_POLICIES: Mapping[str, Mapping[str, str]] = {
    # GOMP_* is read by GNU's OpenMP, KMP_* by LLVM's and Intel's; OMP_* by all.
    OWN: {},
    "OMP_WAIT_POLICY=passive": {"OMP_WAIT_POLICY": "passive"},
    "OMP_WAIT_POLICY=active": {"OMP_WAIT_POLICY": "active"},
    "GOMP_SPINCOUNT=0": {"GOMP_SPINCOUNT": "0"},
    "GOMP_SPINCOUNT=1000": {"GOMP_SPINCOUNT": "1000"},
    "GOMP_SPINCOUNT=10000": {"GOMP_SPINCOUNT": "10000"},
    "GOMP_SPINCOUNT=100000": {"GOMP_SPINCOUNT": "100000"},
    "KMP_BLOCKTIME=0": {"KMP_BLOCKTIME": "0"},
    "KMP_BLOCKTIME=1": {"KMP_BLOCKTIME": "1"},
    "OMP_DYNAMIC=true": {"OMP_DYNAMIC": "true"},
    "OMP_NUM_THREADS=1": {"OMP_NUM_THREADS": "1"},
}


def beside(settings: Settings) -> Iterator[Table]:
    """Measure training beside 0, 1 and 2 other busy processes, with each setting of OpenMP's waiting threads.

    Wanted: at least 45 % of the quiet speed beside one process, for at most 2 % of the default's quiet speed.
    """
    for size, model in _sizes(settings, ("tiny", "base")):
        task = prepare(settings, model)
        policies = {name: env for name, env in WAIT_POLICIES.items() if settings.wants(name)}
        if OWN not in policies:
            policies = {OWN: {}, **policies}
        if settings.quick:
            policies = {name: policies[name] for name in list(policies)[:2]}
        contenders = [task.own(name, env=env) for name, env in policies.items()]
        quiet, one, two = (
            measure(contenders, settings, rounds=5, beside=partial(busy_processes, busy)) for busy in (0, 1, 2)
        )
        rows = [
            (
                mine.name,
                *(_speed(mine), _share(mine, quiet[0])),
                *(_speed(beside_one), _share(beside_one, mine)),
                *(_speed(beside_two), _share(beside_two, mine)),
            )
            for mine, beside_one, beside_two in zip(quiet, one, two, strict=True)
        ]
        columns = (
            *("setting", "quiet, tokens/s", "of the default, %"),
            *("beside 1, tokens/s", "of quiet, %", "beside 2, tokens/s", "of quiet, %"),
        )
        yield Table(f"beside other busy processes, {size}", columns, rows)


def serve(settings: Settings) -> Iterator[Table]:
    """Latency and throughput of `maskwright serve` under load, and of transformers behind FastAPI."""
    for name, size in _sizes(settings, ("base",)):
        task = prepare(settings, size)
        vocabulary = 300 if settings.quick else size.vocabulary
        for table in measure_serving(task.folder / "start", vocabulary, settings):
            yield dataclasses.replace(table, title=f"{name}: {table.title}")


def latency(settings: Settings) -> Iterator[Table]:
    """Measure each call of embed: quiet, beside a busy process, beside a training (--model: a hub folder)."""
    training, model = None, settings.model
    if model is None or settings.wants("training"):
        task = prepare(settings, SIZES["tiny"])
        training = task.own("training", steps=1_000_000, env={"OMP_NUM_THREADS": "2"})
        model = model or task.folder / "start"
    yield from measure_latency(_with_revision(settings, contenders(model, settings)), training, settings)


def _share(part: Outcome, whole: Outcome) -> str:
    if not part.rounds or not whole.rounds:
        return ""
    return number(100 * Spread.of(part.speeds).median / Spread.of(whole.speeds).median)


SUITES: Mapping[str, Callable[[Settings], Iterator[Table]]] = {
    "train": train,
    "levers": levers,
    "inference": inference,
    "finetune": finetune,
    "corpus": corpus,
    "memory": memory,
    "scaling": scaling,
    "gpu": gpu,
    "beside": beside,
    "serve": serve,
    "latency": latency,
    "quality": quality,
    "faults": faults,
}
