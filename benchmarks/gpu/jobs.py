"""The jobs, in the order of the queue."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

GLUE = (
    *("sst-2=glue/SST-2", "mrpc=glue/MRPC", "sts-b=glue/STS-B", "cola=glue/CoLA", "rte=glue/RTE"),
    "wnut-17=wnut17_ner",
)
CHINESE = ("chnsenticorp=chnsenticorp", "afqmc=afqmc", "weibo-ner=weibo_ner")
VOCABULARY = "tokenizer.vocab_size=16384"
BATCH = "training.batch_sequences=128"
"""Larger steps than the fitted ones, at which several runs of bert/small together had 0.5 M tokens/s; one with larger
steps had 1.4 M (LOG.md). The fitted learning rate follows."""
EQUAL = {"flops": 8.6e15}
"""Of 100 M tokens of bert/small at length 128."""
MLM_ONLY = ("objectives=[{kind: mlm}]", "format={kind: doc_sentences}", "encoder.pooler=false")
BODY = (
    *("encoder.norm_placement=pre", "encoder.first_attention_norm=false", "encoder.positions=rotary"),
    *("encoder.feed_forward=gated", "encoder.intermediate_size=1344", "encoder.dense_bias=false"),
    "encoder.norm_bias=false",
)
"""ModernBERT's body at the width of bert/small; three matrices of 1,344 have about the parameters of two of 2,048."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run.

    Attributes:
        name: Of the result; the cases of all jobs have different names.
        kind: "train", "prepare" (its tokenizer and text only), "probe" (a run of another case), "resume", "tests" or
            "speed".
        recipe, set, seed: Of the run that is trained.
        budget: Of the run, one of the budgets of `pretrain`.
        probes: What is measured of it: "masked", "intrinsic", "blimp", or a task and its folder, `sst-2=glue/SST-2`.
        run: Name of the case whose run is probed, or replaces TEACHER in `set`.
    """

    name: str
    kind: str = "train"
    recipe: str = ""
    set: tuple[str, ...] = ()
    budget: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0
    probes: tuple[str, ...] = ("masked",)
    run: str = ""


def _probed(run: str, probes: tuple[str, ...] = ("blimp", *GLUE), prefix: str = "") -> Iterator[Case]:
    """Measure a run, each probe in a case of its own."""
    for each in probes:
        name = f"{prefix or run} {each.partition('=')[0]}"
        yield Case(name=name, kind="probe", run=run, probes=(each,))


def checks() -> Iterator[Case]:
    """Run the GPU tests, every system for 60 steps with its kernels checked, and a killed run beside a whole one."""
    yield Case(name="tests", kind="tests")
    synonyms = "replacement.table.source=DATA/synonyms_en_oewn/oewn_synonyms.tsv"
    overrides = {"macbert": (synonyms,), "distilbert": ("teacher.model=TEACHER",)}
    systems = ("bert", "roberta", "albert", "electra", "spanbert", "bert-wwm", "ernie", "macbert", "distilbert")
    for system in (*systems, "modernbert", "maskwright"):
        yield Case(
            name=f"checks {system}",
            recipe=f"{system}/tiny",
            budget={"steps": 60},
            set=overrides.get(system, ()),
            probes=(),
            run="checks bert" if system == "distilbert" else "",
        )
    yield Case(name="checks resume", kind="resume", recipe="bert/small", budget={"steps": 1500})


def speed() -> Iterator[Case]:
    """Measure training speed beside transformers, compiled."""
    for case in ("modernbert-mini", "modernbert-base", "natural", "blocks-512", "electra", "albert", "blocks-128"):
        yield Case(name=f"speed {case}", kind="speed")


def factors() -> Iterator[Case]:
    """Change one thing at a time in bert/small on masked words alone, 10 M tokens."""
    muon = "training.optimizer.kind=muon"
    single: Mapping[str, tuple[str, ...]] = {
        "masked words alone": (),
        "30 % masked": ("masking.rate=0.3",),
        "40 % masked": ("masking.rate=0.4",),
        "Muon": (muon,),
        "pre-norm": BODY[:1],
        "rotary positions": BODY[2:3],
        "gated": BODY[3:5],
        "no biases": BODY[5:],
        "body": BODY,
        "body, 30 % masked": (*BODY, "masking.rate=0.3"),
        "body, 40 % masked": (*BODY, "masking.rate=0.4"),
        "body, 30 % masked, Muon": (*BODY, "masking.rate=0.3", muon),
    }
    yield Case(name="factors bert", recipe="bert/small", budget={"tokens": 1e7}, set=(VOCABULARY,))
    for name, overrides in single.items():
        values = (VOCABULARY, *MLM_ONLY, "family=maskwright", *overrides)
        yield Case(name=f"factors {name}", recipe="bert/small", budget={"tokens": 1e7}, set=values)


_TOGETHER: Mapping[str, str] = {"maskwright": "maskwright/small", "bert": "bert/small"}


def together() -> Iterator[Case]:
    """Train the recommended recipe and BERT for 140 M tokens, 11 passes over 10 M words."""
    for name, recipe in _TOGETHER.items():
        yield Case(name=f"together {name}", recipe=recipe, budget={"tokens": 1.4e8}, set=(VOCABULARY,))


def tuned() -> Iterator[Case]:
    """Measure minimal pairs of the runs of `together`, and fine-tune them."""
    for name in _TOGETHER:
        yield from _probed(f"together {name}", prefix=f"tuned {name}")


def _equal(job: str, systems: tuple[str, ...]) -> Iterator[Case]:
    for system in systems:
        name = f"{job} {system}"
        yield Case(name=name, recipe=f"{system}/small", budget=EQUAL, set=(VOCABULARY, BATCH))
        yield from _probed(name)


def systems() -> Iterator[Case]:
    """Compare BERT, ELECTRA and RoBERTa at small after the FLOPs of 100 M tokens of BERT (ELECTRA, table 1)."""
    yield from _equal("systems", ("bert", "electra", "roberta"))


def systems_rest() -> Iterator[Case]:
    """Train and measure ALBERT and SpanBERT as in `systems` (SpanBERT, table 2)."""
    yield from _equal("systems_rest", ("albert", "spanbert"))


PAIRS: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "NSP": ("objectives=[{kind: mlm}, {kind: nsp}]", "format=segment_pair"),
    "SOP": ("objectives=[{kind: mlm}, {kind: sop}]", "format={kind: segment_pair, second: next_or_swapped}"),
}


def pairs() -> Iterator[Case]:
    """Ask what NSP and SOP learn of each other's task and bring elsewhere, 50 M tokens each (ALBERT, table 5)."""
    for name, overrides in PAIRS.items():
        if overrides:
            overrides = (*overrides, "family=maskwright", "encoder.type_vocab_size=2", "encoder.pooler=true")
        values = (VOCABULARY, *overrides)
        yield Case(name=f"pairs {name}", recipe="maskwright/small", budget={"tokens": 5e7}, set=values)
        yield from _probed(f"pairs {name}", ("intrinsic", "blimp", *GLUE))


def _albert(job: str, shapes: Mapping[str, tuple[str, int]]) -> Iterator[Case]:
    for name, (shared, width) in shapes.items():
        shape = ("encoder.num_layers=6", f"encoder.sharing={shared}", f"encoder.embedding_size={width}")
        case = Case(
            name=f"{job} {name}", recipe="albert/small", budget={"tokens": 6e7}, set=(VOCABULARY, BATCH, *shape)
        )
        yield case
        yield from _probed(case.name, ("blimp", *GLUE[:2]))


def sharing() -> Iterator[Case]:
    """Share nothing, attention, feed-forward or all in ALBERT of 6 layers, 60 M tokens each (ALBERT, table 4)."""
    yield from _albert("sharing", {name: (name, 128) for name in ("none", "attention", "ffn", "all")})


def embeddings() -> Iterator[Case]:
    """Embed in 64 or 512 dimensions, layers shared or not; `sharing` has 128 (ALBERT, table 3)."""
    shapes = {f"{size}, sharing {name}": (name, size) for size in (64, 512) for name in ("none", "all")}
    yield from _albert("embeddings", shapes)


def chinese() -> Iterator[Case]:
    """Compare BERT, BERT-wwm, ERNIE and MacBERT at small on Chinese text, 60 M tokens each (Cui et al.)."""
    synonyms = "replacement.table.source=DATA/synonyms_zh_cilin/cilin_synonyms.tsv"
    for system in ("bert", "bert-wwm", "ernie", "macbert"):
        values = (VOCABULARY, BATCH, *([synonyms] if system == "macbert" else []))
        name = f"chinese {system}"
        yield Case(name=name, recipe=f"{system}/small", budget={"tokens": 6e7}, set=values)
        yield from _probed(name, CHINESE)


def base() -> Iterator[Case]:
    """Train the recommended recipe at base for 5.5 minutes, which leaves three for its text and probes."""
    yield Case(name="base", recipe="maskwright/base", budget={"minutes": 5.5})
    yield from _probed("base")


def distil() -> Iterator[Case]:
    """Ask which share of BERT's scores its student of half the layers has, beside one without a teacher."""
    runs = (
        Case(name="distil teacher", recipe="bert/small", budget={"tokens": 1e8}, set=(VOCABULARY, BATCH)),
        Case(
            name="distil student",
            recipe="distilbert/small",
            budget={"tokens": 6e7},
            set=("teacher.model=TEACHER",),
            run="distil teacher",
        ),
        Case(
            name="distil alone",
            recipe="bert/small",
            budget={"tokens": 6e7},
            set=(VOCABULARY, "encoder.num_layers=2"),
        ),
    )
    for case in runs:
        yield case
        yield from _probed(case.name)


def electra() -> Iterator[Case]:
    """Ask whether ELECTRA's generator needs short sequences first beyond 20 M tokens."""
    phases = {
        "128": "[{share: 1.0, max_length: 128}]",
        "32 first": "[{share: 0.8, max_length: 32}, {share: 0.2, max_length: 128}]",
    }
    for name, value in phases.items():
        for recipe in ("electra/tiny", "electra/small"):
            values = (f"training.phases={value}",)
            yield Case(name=f"electra {recipe} {name}", recipe=recipe, budget={"tokens": 3e7}, set=values)


def muon() -> Iterator[Case]:
    """Train the recommended recipe with each optimizer."""
    for name, optimizer in {"AdamW": "adamw", "Muon": "muon"}.items():
        values = (VOCABULARY, f"training.optimizer.kind={optimizer}")
        yield Case(name=f"muon {name}", recipe="maskwright/small", budget={"tokens": 3e7}, set=values)


@dataclass(frozen=True, slots=True)
class Job:
    """A question and the cases that answer it."""

    question: str
    cases: tuple[Case, ...]


JOBS: Mapping[str, Job] = {
    each.__name__: Job((each.__doc__ or "").strip(), tuple(each()))
    for each in (
        *(checks, speed, factors, together, tuned, systems, systems_rest, pairs, sharing, embeddings, chinese, base),
        *(distil, electra, muon),
    )
}
