"""The published fine-tuning settings of systems: rows of data, each with its source.

A row holds what its source says and nothing else; what it leaves open is taken from the benchmark's row
(`benchmarks.py`: BERT's, where BERT was measured on it), and then from BERT. Numbers of steps are converted to epochs,
so that they mean the same for a part of the data: steps x batch / training examples.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

from maskwright.core.types import HeadKind

_ANY_WIDTH = (0, 1 << 30)
SMALL, LARGE = (0, 512), (1024, 1 << 30)
"""Widths of the models that are called so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One row.

    Attributes:
        system: Whose settings they are.
        benchmarks: For which benchmarks; empty for all.
        heads: For tasks with which heads; empty for all.
        widths: For models of which hidden size, least and most.
        settings: Fields of `Hyperparameters`.
        task_fields: Fields of the task.
        source: Paper and table, or repository and file.
    """

    ALL_WIDTHS: ClassVar[tuple[int, int]] = _ANY_WIDTH

    system: str
    benchmarks: tuple[str, ...] = ()
    heads: tuple[HeadKind, ...] = ()
    widths: tuple[int, int] = _ANY_WIDTH
    settings: Mapping[str, Any] = field(default_factory=dict)
    task_fields: Mapping[str, Any] = field(default_factory=dict)
    source: str


TRAINING_EXAMPLES: Mapping[str, int] = MappingProxyType(
    {
        "cola": 8_551,
        "sst-2": 67_349,
        "mrpc": 3_668,
        "sts-b": 5_749,
        "qqp": 363_846,
        "mnli": 392_702,
        "qnli": 104_743,
        "rte": 2_490,
        "wnli": 635,
        "squad-1.1": 87_599,
        "squad-2.0": 130_319,
        "race": 87_866,
    }
)
"""Examples in the published training files, to tell steps as passes."""


def passes(benchmark: str, steps: int, batch: int) -> float:
    """Return the passes over a benchmark's published training file that so many steps are."""
    return round(steps * batch / TRAINING_EXAMPLES[benchmark], 2)


# BERT: Devlin et al. 2019, with google-research/bert where the paper is silent.
_BERT_PAPER = "Devlin et al. 2019"
_BERT = (
    Published(
        system="bert",
        # The paper takes the best of {5, 4, 3, 2}e-5 on the development set; this is the middle of its grid.
        settings={"epochs": 3.0, "batch_size": 32, "learning_rate": 3e-5, "max_length": 128, "warmup_share": 0.1},
        source=f"{_BERT_PAPER}, 4.1 and A.3; google-research/bert run_classifier.py",
    ),
    Published(
        system="bert",
        heads=("span",),
        # Length: run_squad.py. The paper does not say one.
        settings={"epochs": 3.0, "batch_size": 32, "learning_rate": 5e-5, "max_length": 384},
        source=f"{_BERT_PAPER}, 4.2; google-research/bert run_squad.py",
    ),
    Published(
        system="bert",
        heads=("choice",),
        settings={"epochs": 3.0, "batch_size": 16, "learning_rate": 2e-5},
        source=f"{_BERT_PAPER}, 4.4 (SWAG)",
    ),
)

# RoBERTa: fairseq's files for GLUE, Liu et al. 2019, table 10 beyond.
_ROBERTA_GLUE = "facebookresearch/fairseq examples/roberta/config/finetuning"
_ROBERTA = (
    Published(
        system="roberta",
        settings={
            "epochs": 10.0,
            "batch_size": 16,
            "learning_rate": 1e-5,
            "warmup_share": 0.06,
            "schedule": "linear",
            "weight_decay": 0.1,
            "decayed": "all",
            "betas": (0.9, 0.98),
            "bias_correction": True,
            # pooler_dropout stays at its default of 0 in all of these files.
            "head_dropout": 0.0,
            "clip_norm": 0.0,
            "max_length": 512,
        },
        source=f"{_ROBERTA_GLUE}; Liu et al. 2019, table 10",
    ),
    *(
        Published(
            system="roberta",
            benchmarks=(benchmark,),
            settings={"learning_rate": rate, "batch_size": batch, "warmup_share": round(warmup / steps, 3)},
            source=f"{_ROBERTA_GLUE}/{file}.yaml",
        )
        for benchmark, file, rate, batch, steps, warmup in (
            ("cola", "cola", 1e-5, 16, 5336, 320),
            ("mnli", "mnli", 1e-5, 32, 123873, 7432),
            ("mrpc", "mrpc", 1e-5, 16, 2296, 137),
            ("qnli", "qnli", 1e-5, 32, 33112, 1986),
            # A quarter of the steps warms up here, not 6 %: so the file has it.
            ("qqp", "qqp", 1e-5, 32, 113272, 28318),
            ("rte", "rte", 2e-5, 16, 2036, 122),
            ("sst-2", "sst_2", 1e-5, 32, 20935, 1256),
            ("sts-b", "sts_b", 2e-5, 16, 3598, 214),
        )
    ),
    Published(
        system="roberta",
        heads=("span",),
        settings={"epochs": 2.0, "batch_size": 48, "learning_rate": 1.5e-5, "weight_decay": 0.01, "max_length": 512},
        source="Liu et al. 2019, table 10 (SQuAD)",
    ),
    Published(
        system="roberta",
        heads=("choice",),
        settings={"epochs": 4.0, "batch_size": 16, "learning_rate": 1e-5, "weight_decay": 0.1, "max_length": 512},
        source="Liu et al. 2019, table 10 (RACE)",
    ),
)

# ALBERT: Lan et al. 2020, table 14, its steps told as passes.
_ALBERT = (
    Published(
        system="albert",
        settings={"max_length": 512, "hidden_dropout": 0.0, "attention_dropout": 0.0, "head_dropout": 0.1},
        source="Lan et al. 2020, table 14",
    ),
    *(
        Published(
            system="albert",
            benchmarks=(benchmark,),
            settings={
                "learning_rate": rate,
                "batch_size": batch,
                "hidden_dropout": dropout,
                "attention_dropout": dropout,
                "head_dropout": 0.1,
                "epochs": passes(benchmark, steps, batch),
                "warmup_share": round(warmup / steps, 3),
                "max_length": length,
            },
            source="Lan et al. 2020, table 14",
        )
        for benchmark, rate, batch, dropout, steps, warmup, length in (
            ("cola", 1e-5, 16, 0.0, 5336, 320, 512),
            ("sts-b", 2e-5, 16, 0.0, 3598, 214, 512),
            ("sst-2", 1e-5, 32, 0.0, 20935, 1256, 512),
            ("mnli", 3e-5, 128, 0.0, 10000, 1000, 512),
            ("qnli", 1e-5, 32, 0.0, 33112, 1986, 512),
            ("qqp", 5e-5, 128, 0.1, 14000, 1000, 512),
            ("rte", 3e-5, 32, 0.1, 800, 200, 512),
            ("mrpc", 2e-5, 32, 0.0, 800, 200, 512),
            ("wnli", 2e-5, 16, 0.1, 2000, 250, 512),
            ("squad-1.1", 5e-5, 48, 0.0, 3649, 365, 384),
            ("squad-2.0", 3e-5, 48, 0.0, 8144, 814, 512),
            # The models' second version must have 1e-5 and no dropout here, or it diverges (albert: README.md:46).
            ("race", 2e-5, 32, 0.1, 12000, 1000, 512),
        )
    ),
)

# ELECTRA: configure_finetuning.py of its code, and Clark et al. 2020, appendix B for small models.
_GLUE = ("cola", "sst-2", "mrpc", "sts-b", "qqp", "mnli", "mnli-mm", "qnli", "rte", "wnli")

_ELECTRA_CODE = "google-research/electra configure_finetuning.py"
_ELECTRA = (
    Published(
        system="electra",
        settings={"learning_rate": 1e-4, "layer_decay": 0.8, "schedule": "linear_product"},
        source=f"{_ELECTRA_CODE}:41-162",
    ),
    # Its code knows GLUE, chunking and SQuAD; the passes, batch and length of another task are that task's own.
    Published(
        system="electra",
        benchmarks=_GLUE,
        settings={"epochs": 3.0, "batch_size": 32, "max_length": 128},
        source=f"{_ELECTRA_CODE}:41-162",
    ),
    Published(
        system="electra",
        widths=SMALL,
        settings={"learning_rate": 3e-4, "weight_decay": 0.0},
        source="Clark et al. 2020, appendix B",
    ),
    Published(
        system="electra",
        widths=LARGE,
        settings={"learning_rate": 5e-5, "layer_decay": 0.9},
        source=_ELECTRA_CODE,
    ),
    Published(
        system="electra", benchmarks=("rte", "sts-b"), settings={"epochs": 10.0}, source=f"{_ELECTRA_CODE}:41-162"
    ),
    # Targets of 0 to 5 are learnt as 0 to 1.
    Published(system="electra", benchmarks=("sts-b",), task_fields={"scale": 5.0}, source=f"{_ELECTRA_CODE}: STS-B"),
    Published(
        system="electra",
        benchmarks=("mrpc", "sts-b"),
        settings={"double_unordered": True},
        source=f"{_ELECTRA_CODE}: double_unordered",
    ),
    Published(
        system="electra",
        heads=("span",),
        settings={"epochs": 2.0, "batch_size": 32, "max_length": 512},
        source=f"{_ELECTRA_CODE}:41-162",
    ),
    Published(system="electra", heads=("token",), settings={"max_length": 256}, source=f"{_ELECTRA_CODE}:41-162"),
)

# SpanBERT: Joshi et al. 2020, appendix B, and its README.
_SPANBERT = (
    Published(
        system="spanbert",
        settings={"learning_rate": 2e-5, "warmup_share": 0.1},
        source="Joshi et al. 2020, appendix B; facebookresearch/SpanBERT README",
    ),
    # GLUE and TACRED, at a length of 128: that is for these, and stands in GLUE's rows.
    Published(
        system="spanbert",
        heads=("sequence",),
        settings={"epochs": 10.0, "batch_size": 32},
        source="Joshi et al. 2020, appendix B; facebookresearch/SpanBERT README",
    ),
    Published(
        system="spanbert", benchmarks=("cola",), settings={"epochs": 4.0}, source="Joshi et al. 2020, appendix B"
    ),
    Published(
        system="spanbert",
        heads=("span",),
        settings={"epochs": 4.0, "batch_size": 32, "learning_rate": 2e-5, "max_length": 512},
        source="Joshi et al. 2020, appendix B; facebookresearch/SpanBERT README",
    ),
)

# MacBERT and BERT-wwm: Cui et al. 2021, table IV.
_MACBERT_TABLE = (
    # benchmark, length, passes, rate
    ("cmrc2018", 512, 2.0, 3e-5),
    ("drcd", 512, 2.0, 3e-5),
    ("chnsenticorp", 256, 3.0, 2e-5),
    ("tnews", 128, 3.0, 2e-5),
    ("xnli", 128, 2.0, 3e-5),
    ("lcqmc", 128, 3.0, 2e-5),
    ("ocnli", 128, 3.0, 2e-5),
)
# The table is for all of the paper's Chinese models; the rates of BERT-wwm's own README are the same where it has them.
_MACBERT = tuple(
    Published(
        system=system,
        benchmarks=(benchmark,),
        settings={"max_length": length, "epochs": epochs, "learning_rate": rate},
        source="Cui et al. 2021, table IV" + ("; ymcui/Chinese-BERT-wwm README" if system == "bert-wwm" else ""),
    )
    for system in ("macbert", "bert-wwm")
    for benchmark, length, epochs, rate in _MACBERT_TABLE
)

# ERNIE 1.0: the scripts of its code.
_ERNIE_SCRIPTS = "PaddlePaddle/ERNIE (2f2fe7a) ERNIE/script"
_ERNIE = (
    # Its scripts have no warm-up; epsilon is Paddle's default.
    Published(
        system="ernie", settings={"warmup_share": 0.0, "learning_rate": 5e-5, "eps": 1e-8}, source=_ERNIE_SCRIPTS
    ),
    # MSRA-NER, the one tagging task of the scripts.
    Published(
        system="ernie",
        heads=("token",),
        settings={"batch_size": 16, "learning_rate": 5e-5, "epochs": 3.0, "weight_decay": 0.01, "max_length": 256},
        source=_ERNIE_SCRIPTS,
    ),
    *(
        Published(
            system="ernie",
            benchmarks=(benchmark,),
            settings={
                "batch_size": batch,
                "learning_rate": rate,
                "epochs": epochs,
                "weight_decay": decay,
                "max_length": length,
            },
            source=_ERNIE_SCRIPTS,
        )
        for benchmark, batch, rate, epochs, decay, length in (
            # The script counts 8192 tokens a batch, of which 512 are the longest pair: 16 at least.
            ("xnli", 16, 1e-4, 3.0, 0.01, 512),
            ("lcqmc", 32, 2e-5, 3.0, 0.0, 128),
            ("chnsenticorp", 24, 5e-5, 10.0, 0.01, 256),
        )
    ),
    Published(
        system="ernie",
        benchmarks=("cmrc2018", "drcd"),
        settings={"learning_rate": 8e-5},
        source="ymcui/Chinese-BERT-wwm README (best rates for ERNIE)",
    ),
)

# DistilBERT: what its published config.json has.
_DISTILBERT = (
    # The values of its published config.json; no other settings of its fine-tuning are published.
    Published(
        system="distilbert",
        heads=("sequence", "choice"),
        settings={"head_dropout": 0.2},
        source="huggingface/transformers-research-projects distillation (seq_classif_dropout)",
    ),
    Published(
        system="distilbert",
        heads=("span",),
        settings={"head_dropout": 0.1},
        source="huggingface/transformers-research-projects distillation (qa_dropout)",
    ),
)

PUBLISHED: tuple[Published, ...] = (
    *_BERT,
    *_ROBERTA,
    *_ALBERT,
    *_ELECTRA,
    *_SPANBERT,
    *_MACBERT,
    *_ERNIE,
    *_DISTILBERT,
)
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
