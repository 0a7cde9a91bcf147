"""GLUE (Wang et al. 2019), files as its own download has them."""

from maskwright.finetuning.benchmark import Benchmark
from maskwright.finetuning.benchmark_table.common import BERT, BINARY, NLI, STS_RANGE, TSV_FILES, unquoted_tsv

_ENTAILMENT = ("entailment", "not_entailment")

ROWS = (
    Benchmark(
        name="cola",
        title="CoLA",
        kind="classification",
        language="en",
        folders=("CoLA", "cola"),
        files=TSV_FILES,
        # Train and dev have no header; the test file has one and no labels.
        options=unquoted_tsv(text=("sentence", "4"), label=("label", "2")),
        labels=BINARY,
        metrics=("matthews", "accuracy"),  # Wang et al. 2019 (GLUE), table 1
        **BERT,  # BERT, 4.1
    ),
    Benchmark(
        name="sst-2",
        title="SST-2",
        kind="classification",
        language="en",
        folders=("SST-2", "sst2"),
        files=TSV_FILES,
        options=unquoted_tsv(text="sentence", label="label"),
        labels=BINARY,
        metrics=("accuracy",),
        **BERT,  # BERT, 4.1
    ),
    Benchmark(
        name="mrpc",
        title="MRPC",
        kind="classification",
        language="en",
        folders=("MRPC", "mrpc"),
        files=TSV_FILES,
        options=unquoted_tsv(text="#1 String", text2="#2 String", label="Quality"),
        labels=BINARY,
        metrics=("f1", "accuracy"),  # BERT, table 1 reports F1; GLUE both
        **BERT,  # BERT, 4.1 (2e-5 in the README's example)
    ),
    Benchmark(
        name="sts-b",
        title="STS-B",
        kind="regression",
        language="en",
        folders=("STS-B", "stsb"),
        files=TSV_FILES,
        options=unquoted_tsv(text="sentence1", text2="sentence2", label="score"),
        metrics=("spearman", "pearson"),  # BERT, table 1 reports Spearman's; GLUE both
        task_fields=STS_RANGE,
        **BERT,  # BERT, 4.1
    ),
    Benchmark(
        name="qqp",
        title="QQP",
        kind="classification",
        language="en",
        folders=("QQP", "qqp"),
        files=TSV_FILES,
        options=unquoted_tsv(text="question1", text2="question2", label="is_duplicate"),
        labels=BINARY,
        metrics=("f1", "accuracy"),  # BERT, table 1 reports F1; GLUE both
        **BERT,  # BERT, 4.1
    ),
    *(
        Benchmark(
            name=name,
            title=title,
            kind="classification",
            language="en",
            folders=("MNLI", "mnli", "multinli"),
            files={"train": ("train.tsv",), "dev": (f"dev_{part}.tsv",), "test": (f"test_{part}.tsv",)},
            options=unquoted_tsv(text="sentence1", text2="sentence2", label="gold_label", dropped_labels=("-",)),
            labels=NLI,
            metrics=("accuracy",),
            **BERT,  # BERT, 4.1
        )
        for name, title, part in (("mnli", "MNLI", "matched"), ("mnli-mm", "MNLI mismatched", "mismatched"))
    ),
    Benchmark(
        name="qnli",
        title="QNLI",
        kind="classification",
        language="en",
        folders=("QNLI", "qnli"),
        files=TSV_FILES,
        options=unquoted_tsv(text="question", text2="sentence", label="label"),
        labels=_ENTAILMENT,
        metrics=("accuracy",),
        **BERT,  # BERT, 4.1
    ),
    Benchmark(
        name="rte",
        title="RTE",
        kind="classification",
        language="en",
        folders=("RTE", "rte"),
        files=TSV_FILES,
        options=unquoted_tsv(text="sentence1", text2="sentence2", label="label"),
        labels=_ENTAILMENT,
        metrics=("accuracy",),
        **BERT,  # BERT, 4.1
    ),
    Benchmark(
        name="wnli",
        title="WNLI",
        kind="classification",
        language="en",
        folders=("WNLI", "wnli"),
        files=TSV_FILES,
        options=unquoted_tsv(text="sentence1", text2="sentence2", label="label"),
        labels=BINARY,
        metrics=("accuracy",),
        **BERT,  # as BERT: its paper leaves WNLI out
    ),
)
