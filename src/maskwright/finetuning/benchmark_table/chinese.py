"""Chinese: CLUE's sets and those of the papers of ERNIE, BERT-wwm and MacBERT."""

from types import MappingProxyType

from maskwright.finetuning.benchmark import Benchmark
from maskwright.finetuning.benchmark_table.common import (
    BERT,
    BINARY,
    ENTITIES,
    NLI,
    STS_RANGE,
    TSV_FILES,
    SplitFiles,
    unquoted_tsv,
)
from maskwright.finetuning.readers import ReadOptions

_CLUE_FILES: SplitFiles = {
    "train": ("train.json", "train.txt", "train.tsv", "train.jsonl"),
    "dev": ("dev.json", "dev.txt", "dev.tsv", "dev.jsonl"),
    "test": ("test.json", "test1.0.json", "test.txt", "test.tsv", "test.jsonl"),
}
# Its authors' own files are called LCQMC_train.json (README of the corpus); some pass them on as LCQMC_train.txt.
_LCQMC_FILES: SplitFiles = {
    part: (*names, f"LCQMC_{part}.json", f"LCQMC_{part}.txt") for part, names in _CLUE_FILES.items()
}

_ANSWERS: tuple[tuple[str, str, str, tuple[str, ...], SplitFiles], ...] = (
    (
        "cmrc2018",
        "CMRC 2018",
        "cmrc",
        ("cmrc2018", "CMRC2018", "cmrc2018_public", "squad-style-data"),
        {
            "train": ("cmrc2018_train.json", "train.json"),
            "dev": ("cmrc2018_dev.json", "dev.json"),
            "test": ("cmrc2018_test.json", "test.json"),
        },
    ),
    (
        "drcd",
        "DRCD",
        "drcd",
        ("drcd", "DRCD"),
        {
            "train": ("DRCD_training.json", "train.json"),
            "dev": ("DRCD_dev.json", "dev.json"),
            "test": ("DRCD_test.json", "test.json"),
        },
    ),
)

# Cui et al. 2021 (MacBERT), table IV: length, passes and rate for all of its models, BERT among them. Its batch sizes
# are not at hand; 32 is BERT's, and CLUE's own for CMRC (CLUEbenchmark/CLUE run_mrc_cmrc2018.sh).
ROWS = (
    *(
        Benchmark(
            name=name,
            title=title,
            kind="question_answering",
            language="zh",
            folders=folders,
            files=files,
            options=ReadOptions(format="squad"),
            task_fields=MappingProxyType({"metric": metric}),
            epochs=2.0,
            learning_rate=3e-5,
            batch_size=32,
            max_length=512,
        )
        for name, title, metric, folders, files in _ANSWERS
    ),
    Benchmark(
        name="chnsenticorp",
        title="ChnSentiCorp",
        kind="classification",
        language="zh",
        folders=("chnsenticorp", "ChnSentiCorp"),
        files=TSV_FILES,
        options=unquoted_tsv(text="text_a", label="label"),
        labels=BINARY,
        metrics=("accuracy",),
        epochs=3.0,  # Cui et al. 2021, table IV
        learning_rate=2e-5,  # Cui et al. 2021, table IV
        batch_size=32,  # as BERT
        max_length=256,  # Cui et al. 2021, table IV
    ),
    Benchmark(
        name="afqmc",
        title="AFQMC",
        kind="classification",
        language="zh",
        folders=("afqmc", "AFQMC", "afqmc_public"),
        files=_CLUE_FILES,
        options=ReadOptions(text=("sentence1", "1"), text2=("sentence2", "2"), label=("label", "3")),
        labels=BINARY,
        metrics=("accuracy",),
        # CLUEbenchmark/CLUE run_classifier_afqmc.sh, for BERT.
        epochs=3.0,
        learning_rate=2e-5,
        batch_size=16,
        max_length=128,
    ),
    Benchmark(
        name="lcqmc",
        title="LCQMC",
        kind="classification",
        language="zh",
        folders=("lcqmc", "LCQMC"),
        files=_LCQMC_FILES,
        options=ReadOptions(
            text=("text_a", "sentence1", "1"), text2=("text_b", "sentence2", "2"), label=("label", "gold_label", "3")
        ),
        labels=BINARY,
        metrics=("accuracy",),
        epochs=3.0,  # Cui et al. 2021, table IV
        learning_rate=2e-5,  # Cui et al. 2021, table IV
        batch_size=32,  # ERNIE 1.0's script for it; BERT's
        max_length=128,  # Cui et al. 2021, table IV
    ),
    Benchmark(
        name="ocnli",
        title="OCNLI",
        kind="classification",
        language="zh",
        folders=("ocnli", "OCNLI", "ocnli_public"),
        files={
            "train": ("train.50k.json", "train.json", "train.30k.json"),
            "dev": ("dev.json",),
            "test": ("test.json",),
        },
        # "-": the annotators did not agree; to be left out (CLUEbenchmark/OCNLI README).
        options=ReadOptions(text="sentence1", text2="sentence2", label="label", dropped_labels=("-",)),
        labels=NLI,
        metrics=("accuracy",),
        # CLUEbenchmark/OCNLI README, for BERT; Cui et al. 2021, table IV has the same length, passes and rate.
        epochs=3.0,
        learning_rate=2e-5,
        batch_size=32,
        max_length=128,
    ),
    Benchmark(
        name="xnli",
        title="XNLI (Chinese)",
        kind="classification",
        language="zh",
        folders=("xnli", "XNLI"),
        files={
            "train": ("multinli/multinli.train.zh.tsv", "multinli.train.zh.tsv", "train.tsv", "train.jsonl"),
            "dev": ("xnli.dev.tsv", "xnli.dev.jsonl", "dev.tsv", "dev.jsonl"),
            "test": ("xnli.test.tsv", "xnli.test.jsonl", "test.tsv", "test.jsonl"),
        },
        # The development and test files hold fifteen languages; the translated training file has names of its own for
        # its columns and one of its labels (google-research/bert run_classifier.py, XnliProcessor).
        options=ReadOptions(
            quoting="none",
            text=("sentence1", "premise"),
            text2=("sentence2", "hypo", "hypothesis"),
            label=("gold_label", "label"),
            label_names=(("contradictory", "contradiction"),),
            only=(("language", "zh"),),
        ),
        labels=NLI,
        metrics=("accuracy",),
        epochs=2.0,  # Cui et al. 2021, table IV
        learning_rate=3e-5,  # Cui et al. 2021, table IV
        batch_size=32,  # as BERT
        max_length=128,  # Cui et al. 2021, table IV
    ),
    Benchmark(
        name="tnews",
        title="TNEWS",
        kind="classification",
        language="zh",
        folders=("tnews", "TNEWS", "tnews_public"),
        files=_CLUE_FILES,
        options=ReadOptions(text="sentence", label="label"),
        # Codes of Toutiao's channels; 105 and 111 are not among them (CLUE, tnews labels.json).
        labels=tuple(str(code) for code in range(100, 117) if code not in (105, 111)),
        metrics=("accuracy",),
        # CLUEbenchmark/CLUE run_classifier_tnews.sh, for BERT; Cui et al. 2021, table IV has the same but the batch.
        epochs=3.0,
        learning_rate=2e-5,
        batch_size=16,
        max_length=128,
    ),
    Benchmark(
        name="c3",
        title="C3",
        kind="multiple_choice",
        language="zh",
        folders=("c3", "C3", "c3_public", "data"),
        # Two files for each split: mixed genre and dialogue.
        files={
            "train": (("c3-m-train.json", "c3-d-train.json"), ("m-train.json", "d-train.json")),
            "dev": (("c3-m-dev.json", "c3-d-dev.json"), ("m-dev.json", "d-dev.json")),
            "test": (("c3-m-test.json", "c3-d-test.json"), "test1.0.json", "test.json"),
        },
        metrics=("accuracy",),
        # nlpdata/c3 README: its authors' fine-tuning of BERT.
        epochs=8.0,
        learning_rate=2e-5,
        batch_size=24,
        max_length=512,
    ),
    Benchmark(
        name="sts-b-zh",
        title="STS-B (Chinese)",
        kind="regression",
        language="zh",
        folders=("chinese_stsb", "STS-B"),
        files={
            "train": ("sts-b-train.txt", "train.txt"),
            "dev": ("sts-b-dev.txt", "dev.txt"),
            "test": ("sts-b-test.txt", "test.txt"),
        },
        options=ReadOptions(text=("sentence1", "1"), text2=("sentence2", "2"), label=("score", "3")),
        metrics=("spearman", "pearson"),
        task_fields=STS_RANGE,
        **BERT,  # as BERT
    ),
    Benchmark(
        name="weibo-ner",
        title="Weibo NER",
        kind="tagging",
        language="zh",
        folders=("weibo_ner", "weibo", "Weibo"),
        files={
            "train": ("weiboNER_2nd_conll.train", "weiboNER.conll.train", "train.txt"),
            "dev": ("weiboNER_2nd_conll.dev", "weiboNER.conll.dev", "dev.txt"),
            "test": ("weiboNER_2nd_conll.test", "weiboNER.conll.test", "test.txt"),
        },
        options=ReadOptions(format="conll", text="1", label="2", word_ending="segmentation_digit"),
        metrics=ENTITIES,
        task_fields=MappingProxyType({"joined": "nothing"}),
        # No source for Weibo; these are ERNIE 1.0's for MSRA-NER (PaddlePaddle/ERNIE 2f2fe7a, script).
        epochs=3.0,
        learning_rate=5e-5,
        batch_size=16,
        max_length=256,
    ),
)
