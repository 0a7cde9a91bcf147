"""The published fine-tuning settings of systems: one table, each row with its source.

A row holds only what its source says; the rest is BERT's, of the benchmark or of all tasks. Steps are converted to
epochs, so that they mean the same for a part of the data: steps x batch / training examples.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

from maskwright.core.types import HeadKind

SMALL, LARGE = (0, 512), (1024, 1 << 30)
"""Widths of the models that are called so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One row.

    Attributes:
        system: Whose settings they are.
        benchmarks: For which benchmarks; empty for all.
        heads: For tasks with which heads; empty for all.
        widths: Smallest and largest hidden size of the models.
        settings: Fields of `Hyperparameters`.
        task_fields: Fields of the task.
        source: Paper and table, or repository and file.
    """

    ALL_WIDTHS: ClassVar[tuple[int, int]] = (0, 1 << 30)

    system: str
    benchmarks: tuple[str, ...] = ()
    heads: tuple[HeadKind, ...] = ()
    widths: tuple[int, int] = (0, 1 << 30)
    settings: Mapping[str, Any] = field(default_factory=dict)
    task_fields: Mapping[str, Any] = field(default_factory=dict)
    source: str


# Examples in the published training files.
_TRAINING_EXAMPLES = {
    "cola": 8_551, "sst-2": 67_349, "mrpc": 3_668, "sts-b": 5_749, "qqp": 363_846, "mnli": 392_702, "qnli": 104_743,
    "rte": 2_490, "wnli": 635, "squad-1.1": 87_599, "squad-2.0": 130_319, "race": 87_866,
}  # fmt: skip


def _epochs(benchmark: str, steps: int, batch: int) -> float:
    """Convert steps to epochs over a benchmark's published training file."""
    return round(steps * batch / _TRAINING_EXAMPLES[benchmark], 2)


def _rows(source: str, system: str, *rows: tuple[str, Mapping[str, Any]]) -> tuple[Published, ...]:
    """Return rows of one source: (where, settings); where is "", "heads: span choice", or names of benchmarks."""
    made = []
    for where, settings in rows:
        kind, colon, names = where.partition(": ")
        place: dict[str, Any] = {kind: tuple(names.split())} if colon else {"benchmarks": tuple(where.split())}
        made.append(Published(system=system, settings=settings, source=source, **place))
    return tuple(made)


_BERT = "Devlin et al. 2019, {}; google-research/bert {}"
_FAIRSEQ = "facebookresearch/fairseq examples/roberta/config/finetuning"
_CUI = "Cui et al. 2021, table IV"
_ELECTRA = "google-research/electra configure_finetuning.py"

# fmt: off
PUBLISHED: tuple[Published, ...] = (
    # The paper takes the best of {5, 4, 3, 2}e-5 on the development set; this is the middle of its grid.
    *_rows(
        _BERT.format("4.1 and A.3", "run_classifier.py"), "bert",
        ("", {"epochs": 3.0, "batch_size": 32, "learning_rate": 3e-5, "max_length": 128, "warmup_share": 0.1}),
    ),
    # The paper does not say a length.
    *_rows(
        _BERT.format("4.2", "run_squad.py"), "bert",
        ("heads: span", {"epochs": 3.0, "batch_size": 32, "learning_rate": 5e-5, "max_length": 384}),
    ),
    *_rows(
        "Devlin et al. 2019, 4.4 (SWAG)", "bert",
        ("heads: choice", {"epochs": 3.0, "batch_size": 16, "learning_rate": 2e-5}),
    ),
    # On benchmarks that BERT's paper has not, the settings of others, which apply to all systems without their own.
    *(
        row
        for name, epochs, rate, batch, length, source in (
            ("squad-2.0", 2.0, 5e-5, 48, 384, _BERT.format("4.3", "run_squad.py")),
            ("race", 4.0, 1e-5, 16, 512, "Liu et al. 2019, table 10: RoBERTa's, the nearest with a source"),
            ("dream c3", 8.0, 2e-5, 24, 512, "nlpdata/dream and nlpdata/c3 README: their authors' fine-tuning of BERT"),
            ("cmrc2018 drcd", 2.0, 3e-5, 32, 512, f"{_CUI}; batch: CLUE's run_mrc_cmrc2018.sh"),
            ("chnsenticorp", 3.0, 2e-5, 32, 256, f"{_CUI}; batch: BERT's"),
            ("afqmc", 3.0, 2e-5, 16, 128, "CLUEbenchmark/CLUE run_classifier_afqmc.sh, for BERT"),
            ("lcqmc", 3.0, 2e-5, 32, 128, f"{_CUI}; batch: BERT's"),
            ("ocnli", 3.0, 2e-5, 32, 128, f"{_CUI} and CLUEbenchmark/OCNLI README; batch: BERT's"),
            ("xnli", 2.0, 3e-5, 32, 128, f"{_CUI}; batch: BERT's"),
            ("tnews", 3.0, 2e-5, 16, 128, f"CLUEbenchmark/CLUE run_classifier_tnews.sh; {_CUI}, but for the batch"),
            ("weibo-ner", 3.0, 5e-5, 16, 256, "no source: ERNIE 1.0's for MSRA-NER (its scripts)"),
        )
        for row in _rows(
            source, "bert",
            (name, {"epochs": epochs, "learning_rate": rate, "batch_size": batch, "max_length": length}),
        )
    ),
    *_rows(
        f"{_FAIRSEQ}; Liu et al. 2019, table 10", "roberta",
        ("", {
            "epochs": 10.0, "batch_size": 16, "learning_rate": 1e-5, "warmup_share": 0.06, "schedule": "linear",
            "weight_decay": 0.1, "decayed": "all", "betas": (0.9, 0.98), "bias_correction": True, "clip_norm": 0.0,
            "head_dropout": 0.0,  # pooler_dropout stays at its default of 0 in all of these files
            "max_length": 512,
        }),
    ),
    *(
        row
        for file, name, rate, batch, steps, warmup in (
            ("cola",  "cola",  1e-5, 16, 5336, 320),
            ("mnli",  "mnli",  1e-5, 32, 123873, 7432),
            ("mrpc",  "mrpc",  1e-5, 16, 2296, 137),
            ("qnli",  "qnli",  1e-5, 32, 33112, 1986),
            ("qqp",   "qqp",   1e-5, 32, 113272, 28318),  # a quarter of the steps, not 6 %: so the file has it
            ("rte",   "rte",   2e-5, 16, 2036, 122),
            ("sst_2", "sst-2", 1e-5, 32, 20935, 1256),
            ("sts_b", "sts-b", 2e-5, 16, 3598, 214),
        )
        for row in _rows(
            f"{_FAIRSEQ}/{file}.yaml", "roberta",
            (name, {"learning_rate": rate, "batch_size": batch, "warmup_share": round(warmup / steps, 3)}),
        )
    ),
    *_rows(
        "Liu et al. 2019, table 10 (SQuAD, RACE)", "roberta",
        ("heads: span", {"epochs": 2.0, "batch_size": 48, "learning_rate": 1.5e-5, "weight_decay": 0.01,
                         "max_length": 512}),
        ("heads: choice", {"epochs": 4.0, "batch_size": 16, "learning_rate": 1e-5, "weight_decay": 0.1,
                           "max_length": 512}),
    ),
    *_rows(
        "Lan et al. 2020, table 14", "albert",
        ("", {"max_length": 512, "hidden_dropout": 0.0, "attention_dropout": 0.0, "head_dropout": 0.1}),
        *(
            (name, {
                "learning_rate": rate, "batch_size": batch, "hidden_dropout": dropout, "attention_dropout": dropout,
                "head_dropout": 0.1, "epochs": _epochs(name, steps, batch), "warmup_share": round(warmup / steps, 3),
                "max_length": length,
            })
            for name, rate, batch, dropout, steps, warmup, length in (
                ("cola",      1e-5, 16,  0.0, 5336,  320,  512),
                ("sts-b",     2e-5, 16,  0.0, 3598,  214,  512),
                ("sst-2",     1e-5, 32,  0.0, 20935, 1256, 512),
                ("mnli",      3e-5, 128, 0.0, 10000, 1000, 512),
                ("qnli",      1e-5, 32,  0.0, 33112, 1986, 512),
                ("qqp",       5e-5, 128, 0.1, 14000, 1000, 512),
                ("rte",       3e-5, 32,  0.1, 800,   200,  512),
                ("mrpc",      2e-5, 32,  0.0, 800,   200,  512),
                ("wnli",      2e-5, 16,  0.1, 2000,  250,  512),
                ("squad-1.1", 5e-5, 48,  0.0, 3649,  365,  384),
                ("squad-2.0", 3e-5, 48,  0.0, 8144,  814,  512),
                # The models' second version must have 1e-5 and no dropout here, or it diverges (albert: README.md:46).
                ("race",      2e-5, 32,  0.1, 12000, 1000, 512),
            )
        ),
    ),
    *_rows(
        f"{_ELECTRA}:41-162", "electra",
        ("", {"learning_rate": 1e-4, "layer_decay": 0.8, "schedule": "linear_product"}),
        # Its code knows GLUE, chunking and SQuAD; other tasks keep their own epochs, batch and length.
        ("cola sst-2 mrpc sts-b qqp mnli mnli-mm qnli rte wnli", {"epochs": 3.0, "batch_size": 32, "max_length": 128}),
        ("rte sts-b", {"epochs": 10.0}),
        ("mrpc sts-b", {"double_unordered": True}),
        ("heads: span", {"epochs": 2.0, "batch_size": 32, "max_length": 512}),
        ("heads: token", {"max_length": 256}),
    ),
    Published(
        system="electra", widths=SMALL, settings={"learning_rate": 3e-4, "weight_decay": 0.0},
        source="Clark et al. 2020, appendix B",
    ),
    Published(system="electra", widths=LARGE, settings={"learning_rate": 5e-5, "layer_decay": 0.9}, source=_ELECTRA),
    # Targets of 0 to 5 are trained as 0 to 1.
    Published(system="electra", benchmarks=("sts-b",), task_fields={"scale": 5.0}, source=f"{_ELECTRA}: STS-B"),
    *_rows(
        "Joshi et al. 2020, appendix B; facebookresearch/SpanBERT README", "spanbert",
        ("", {"learning_rate": 2e-5, "warmup_share": 0.1}),
        ("heads: sequence", {"epochs": 10.0, "batch_size": 32}),  # GLUE and TACRED
        ("cola", {"epochs": 4.0}),
        ("heads: span", {"epochs": 4.0, "batch_size": 32, "learning_rate": 2e-5, "max_length": 512}),
    ),
    # For all of the paper's Chinese models; the rates in the README of BERT-wwm are the same where it has them.
    *(
        row
        for system, more in (("macbert", ""), ("bert-wwm", "; ymcui/Chinese-BERT-wwm README"))
        for row in _rows(
            f"{_CUI}{more}", system,
            ("cmrc2018 drcd", {"max_length": 512, "epochs": 2.0, "learning_rate": 3e-5}),
            ("chnsenticorp", {"max_length": 256, "epochs": 3.0, "learning_rate": 2e-5}),
            ("tnews lcqmc ocnli", {"max_length": 128, "epochs": 3.0, "learning_rate": 2e-5}),
            ("xnli", {"max_length": 128, "epochs": 2.0, "learning_rate": 3e-5}),
        )
    ),
    *_rows(
        "PaddlePaddle/ERNIE (2f2fe7a) ERNIE/script", "ernie",
        ("", {"warmup_share": 0.0, "learning_rate": 5e-5, "eps": 1e-8}),  # no warmup; Paddle's epsilon
        *(
            (where, {"batch_size": batch, "learning_rate": rate, "epochs": epochs, "weight_decay": decay,
                     "max_length": length})
            for where, batch, rate, epochs, decay, length in (
                ("heads: token", 16, 5e-5, 3.0,  0.01, 256),  # MSRA-NER, the one tagging task of the scripts
                ("xnli",         16, 1e-4, 3.0,  0.01, 512),  # 8192 tokens a batch: at least 16 pairs of 512
                ("lcqmc",        32, 2e-5, 3.0,  0.0,  128),
                ("chnsenticorp", 24, 5e-5, 10.0, 0.01, 256),
            )
        ),
    ),
    *_rows("ymcui/Chinese-BERT-wwm README (best rates for ERNIE)", "ernie", ("cmrc2018 drcd", {"learning_rate": 8e-5})),
    # Its published config.json; no other settings of its fine-tuning are published.
    *_rows(
        "huggingface/transformers-research-projects distillation (seq_classif_dropout, qa_dropout)", "distilbert",
        ("heads: sequence choice", {"head_dropout": 0.2}),
        ("heads: span", {"head_dropout": 0.1}),
    ),
)
# fmt: on
"""All rows."""

RATES_AT_WIDTH_768: Mapping[str, float] = MappingProxyType({"bert": 5e-5, "electra": 1e-4})
"""From where the rate of narrower models rises in proportion to 1 / width; BERT's for systems that have none.

BERT: the top of its grid (Devlin et al. 2019, A.3); at width 128 this is 3e-4, the top of the grid of the small models
(google-research/bert README; Turc et al. 2019). ELECTRA: its base rate; at width 256 this is 3e-4, its small model's.
"""

SYSTEMS: Mapping[str, str] = MappingProxyType(
    {
        "bert": "bert",
        "pmi": "bert",
        "roberta": "roberta",
        "albert": "albert",
        "electra": "electra",
        "spanbert": "spanbert",
        "bert-wwm": "bert-wwm",
        # The Chinese RoBERTa-wwm is a BERT with another training, and fine-tuned as one.
        "roberta-wwm": "bert-wwm",
        "macbert": "macbert",
        "ernie": "ernie",
        "distilbert": "distilbert",
        "distilroberta": "distilbert",
    }
)
"""System of a recipe's name (before the slash), and whose rows count for it."""
