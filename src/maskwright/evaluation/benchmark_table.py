"""The benchmarks, as rows of data.

Every number has its source in the row. "BERT" is Devlin et al. 2019, section 4 and appendix A.3: three passes in
batches of 32, the best rate of {5, 4, 3, 2}e-5 on the development set. Where a row has one rate of that grid without
another source, it is 3e-5, in its middle; the length of 128 is that of google-research/bert's run_classifier.py and
README. No source exists for what a row calls "as BERT".
"""

from types import MappingProxyType
from typing import Any

from maskwright.evaluation.benchmark import Benchmark, Files, Split
from maskwright.evaluation.readers import ReadOptions

_BINARY = ("0", "1")
# The order of google-research/bert run_classifier.py, MnliProcessor and XnliProcessor.
_NLI = ("contradiction", "entailment", "neutral")
_ENTAILMENT = ("entailment", "not_entailment")
_ENTITIES = ("f1", "precision", "recall", "accuracy")
_STS_RANGE = MappingProxyType({"bounds": (0.0, 5.0)})
_BERT: dict[str, Any] = {"epochs": 3.0, "learning_rate": 3e-5, "batch_size": 32, "max_length": 128}

SplitFiles = dict[Split, tuple[Files, ...]]
_TSV: SplitFiles = {"train": ("train.tsv",), "dev": ("dev.tsv",), "test": ("test.tsv",)}
_CLUE: SplitFiles = {
    "train": ("train.json", "train.txt", "train.tsv", "train.jsonl"),
    "dev": ("dev.json", "dev.txt", "dev.tsv", "dev.jsonl"),
    "test": ("test.json", "test1.0.json", "test.txt", "test.tsv", "test.jsonl"),
}
# Its authors' own files are called LCQMC_train.json (README of the corpus); some pass them on as LCQMC_train.txt.
_LCQMC: SplitFiles = {part: (*names, f"LCQMC_{part}.json", f"LCQMC_{part}.txt") for part, names in _CLUE.items()}


def _glue(**columns: Any) -> ReadOptions:
    # Quotes in GLUE's files are characters like any other: hundreds of them are never closed.
    return ReadOptions(format="tsv", quoting="none", **columns)


_GLUE = (
    Benchmark(
        name="cola",
        title="CoLA",
        kind="classification",
        language="en",
        folders=("CoLA", "cola"),
        files=_TSV,
        # Train and dev have no header; the test file has one and no labels.
        options=_glue(text=("sentence", "4"), label=("label", "2")),
        labels=_BINARY,
        metrics=("matthews", "accuracy"),  # Wang et al. 2019 (GLUE), table 1
        **_BERT,  # BERT, 4.1
    ),
    Benchmark(
        name="sst-2",
        title="SST-2",
        kind="classification",
        language="en",
        folders=("SST-2", "sst2"),
        files=_TSV,
        options=_glue(text="sentence", label="label"),
        labels=_BINARY,
        metrics=("accuracy",),
        **_BERT,  # BERT, 4.1
    ),
    Benchmark(
        name="mrpc",
        title="MRPC",
        kind="classification",
        language="en",
        folders=("MRPC", "mrpc"),
        files=_TSV,
        options=_glue(text="#1 String", text2="#2 String", label="Quality"),
        labels=_BINARY,
        metrics=("f1", "accuracy"),  # BERT, table 1 reports F1; GLUE both
        **_BERT,  # BERT, 4.1 (2e-5 in the README's example)
    ),
    Benchmark(
        name="sts-b",
        title="STS-B",
        kind="regression",
        language="en",
        folders=("STS-B", "stsb"),
        files=_TSV,
        options=_glue(text="sentence1", text2="sentence2", label="score"),
        metrics=("spearman", "pearson"),  # BERT, table 1 reports Spearman's; GLUE both
        task_fields=_STS_RANGE,
        **_BERT,  # BERT, 4.1
    ),
    Benchmark(
        name="qqp",
        title="QQP",
        kind="classification",
        language="en",
        folders=("QQP", "qqp"),
        files=_TSV,
        options=_glue(text="question1", text2="question2", label="is_duplicate"),
        labels=_BINARY,
        metrics=("f1", "accuracy"),  # BERT, table 1 reports F1; GLUE both
        **_BERT,  # BERT, 4.1
    ),
    *(
        Benchmark(
            name=name,
            title=title,
            kind="classification",
            language="en",
            folders=("MNLI", "mnli", "multinli"),
            files={"train": ("train.tsv",), "dev": (f"dev_{part}.tsv",), "test": (f"test_{part}.tsv",)},
            options=_glue(text="sentence1", text2="sentence2", label="gold_label", dropped_labels=("-",)),
            labels=_NLI,
            metrics=("accuracy",),
            **_BERT,  # BERT, 4.1
        )
        for name, title, part in (("mnli", "MNLI", "matched"), ("mnli-mm", "MNLI mismatched", "mismatched"))
    ),
    Benchmark(
        name="qnli",
        title="QNLI",
        kind="classification",
        language="en",
        folders=("QNLI", "qnli"),
        files=_TSV,
        options=_glue(text="question", text2="sentence", label="label"),
        labels=_ENTAILMENT,
        metrics=("accuracy",),
        **_BERT,  # BERT, 4.1
    ),
    Benchmark(
        name="rte",
        title="RTE",
        kind="classification",
        language="en",
        folders=("RTE", "rte"),
        files=_TSV,
        options=_glue(text="sentence1", text2="sentence2", label="label"),
        labels=_ENTAILMENT,
        metrics=("accuracy",),
        **_BERT,  # BERT, 4.1
    ),
    Benchmark(
        name="wnli",
        title="WNLI",
        kind="classification",
        language="en",
        folders=("WNLI", "wnli"),
        files=_TSV,
        options=_glue(text="sentence1", text2="sentence2", label="label"),
        labels=_BINARY,
        metrics=("accuracy",),
        **_BERT,  # as BERT: its paper leaves WNLI out
    ),
)

_ENGLISH = (
    Benchmark(
        name="squad-1.1",
        title="SQuAD 1.1",
        kind="question_answering",
        language="en",
        folders=("squad", "SQuAD", "squad1"),
        files={"train": ("train-v1.1.json",), "dev": ("dev-v1.1.json",)},
        options=ReadOptions(format="squad"),
        task_fields=MappingProxyType({"metric": "squad"}),
        epochs=3.0,  # BERT, 4.2
        learning_rate=5e-5,  # BERT, 4.2
        batch_size=32,  # BERT, 4.2
        max_length=384,  # google-research/bert run_squad.py
    ),
    Benchmark(
        name="squad-2.0",
        title="SQuAD 2.0",
        kind="question_answering",
        language="en",
        folders=("squad", "SQuAD", "squad2"),
        files={"train": ("train-v2.0.json",), "dev": ("dev-v2.0.json",)},
        options=ReadOptions(format="squad"),
        task_fields=MappingProxyType({"metric": "squad_v2"}),
        epochs=2.0,  # BERT, 4.3
        learning_rate=5e-5,  # BERT, 4.3
        batch_size=48,  # BERT, 4.3
        max_length=384,  # google-research/bert run_squad.py
    ),
    Benchmark(
        name="race",
        title="RACE",
        kind="multiple_choice",
        language="en",
        folders=("RACE", "race"),
        files={
            "train": ("train", "train.jsonl"),
            "dev": ("dev", "dev.jsonl"),
            "test": ("test", "test.jsonl"),
        },
        options=ReadOptions(format="race"),
        metrics=("accuracy",),
        # BERT has no RACE; these are RoBERTa's (Liu et al. 2019, table 10), as the nearest system with a source.
        epochs=4.0,
        learning_rate=1e-5,
        batch_size=16,
        max_length=512,
    ),
    Benchmark(
        name="dream",
        title="DREAM",
        kind="multiple_choice",
        language="en",
        folders=("dream", "DREAM", "dream_mc", "data"),
        files={
            "train": ("train.json", "race_style/train.jsonl", "train.jsonl"),
            "dev": ("dev.json", "race_style/dev.jsonl", "dev.jsonl"),
            "test": ("test.json", "race_style/test.jsonl", "test.jsonl"),
        },
        metrics=("accuracy",),
        # nlpdata/dream README, "BERT baseline": its authors' fine-tuning of BERT.
        epochs=8.0,
        learning_rate=2e-5,
        batch_size=24,
        max_length=512,
    ),
    Benchmark(
        name="swag",
        title="SWAG",
        kind="multiple_choice",
        language="en",
        folders=("swag", "SWAG", "swagaf", "data"),
        files={"train": ("train.csv",), "dev": ("val.csv", "dev.csv"), "test": ("test.csv",)},
        options=ReadOptions(
            text="sent1",
            text2="sent2",
            choices=("ending0", "ending1", "ending2", "ending3"),
            label="label",
            first_option=0,
        ),
        metrics=("accuracy",),
        epochs=3.0,  # BERT, 4.4
        learning_rate=2e-5,  # BERT, 4.4
        batch_size=16,  # BERT, 4.4
        max_length=128,  # as BERT: the paper does not say
    ),
    Benchmark(
        name="conll-2003",
        title="CoNLL-2003 NER",
        kind="tagging",
        language="en",
        folders=("conll2003", "conll-2003", "CoNLL-2003", "CoNLL2003"),
        files={
            "train": ("eng.train", "train.txt", "train.conll"),
            "dev": ("eng.testa", "valid.txt", "dev.txt", "testa.txt", "dev.conll"),
            "test": ("eng.testb", "test.txt", "testb.txt", "test.conll"),
        },
        options=ReadOptions(format="conll", text="1", label="-1"),
        metrics=_ENTITIES,
        **_BERT,  # BERT, 5.3 and A.3: the grid; batch and rate are not said for each task
    ),
    Benchmark(
        name="wnut17",
        title="WNUT-17 emerging entities",
        kind="tagging",
        language="en",
        folders=("wnut17", "wnut17_ner", "emerging_entities_17"),
        files={
            "train": ("wnut17train.conll", "train.conll", "train.txt"),
            "dev": ("emerging.dev.conll", "dev.conll", "dev.txt"),
            "test": ("emerging.test.annotated", "test.conll", "test.txt"),
        },
        options=ReadOptions(format="conll", text="1", label="2"),
        metrics=_ENTITIES,
        **_BERT,  # as BERT
    ),
)

_CHINESE_ANSWERS: tuple[tuple[str, str, str, tuple[str, ...], SplitFiles], ...] = (
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
_CHINESE = (
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
        for name, title, metric, folders, files in _CHINESE_ANSWERS
    ),
    Benchmark(
        name="chnsenticorp",
        title="ChnSentiCorp",
        kind="classification",
        language="zh",
        folders=("chnsenticorp", "ChnSentiCorp"),
        files=_TSV,
        options=_glue(text="text_a", label="label"),
        labels=_BINARY,
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
        files=_CLUE,
        options=ReadOptions(text=("sentence1", "1"), text2=("sentence2", "2"), label=("label", "3")),
        labels=_BINARY,
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
        files=_LCQMC,
        options=ReadOptions(
            text=("text_a", "sentence1", "1"), text2=("text_b", "sentence2", "2"), label=("label", "gold_label", "3")
        ),
        labels=_BINARY,
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
        labels=_NLI,
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
        labels=_NLI,
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
        files=_CLUE,
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
        task_fields=_STS_RANGE,
        **_BERT,  # as BERT
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
        metrics=_ENTITIES,
        task_fields=MappingProxyType({"joined": "nothing"}),
        # No source for Weibo; these are ERNIE 1.0's for MSRA-NER (PaddlePaddle/ERNIE 2f2fe7a, script).
        epochs=3.0,
        learning_rate=5e-5,
        batch_size=16,
        max_length=256,
    ),
)

ROWS: tuple[Benchmark, ...] = (*_GLUE, *_ENGLISH, *_CHINESE)

ALIASES = MappingProxyType(
    {
        "squad": "squad-1.1",
        "squad-v1": "squad-1.1",
        "squad-v1.1": "squad-1.1",
        "squad-2": "squad-2.0",
        "squad-v2": "squad-2.0",
        "squad-v2.0": "squad-2.0",
        "mnli-m": "mnli",
        "mnli-matched": "mnli",
        "mnli-mismatched": "mnli-mm",
        "conll": "conll-2003",
        "cmrc": "cmrc2018",
        "weibo": "weibo-ner",
        "chinese-sts-b": "sts-b-zh",
    }
)
"""Other names of benchmarks."""
