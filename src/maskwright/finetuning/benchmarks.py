"""The benchmarks: one row each, with files, columns, labels, metrics and published settings.

Every number has its source in the row. "BERT" is Devlin et al. 2019, section 4 and appendix A.3: three epochs in
batches of 32, the best rate of {5, 4, 3, 2}e-5 on the development set. The defaults are the middle of that grid, 3e-5,
and the length of 128 of google-research/bert's run_classifier.py and README. A row that names no settings and no
source uses these defaults without one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from maskwright.core.errors import DataError, RecipeError, nearest, unknown_name
from maskwright.data.sources.files import COMPRESSIONS
from maskwright.finetuning.readers import Kind, ReadOptions

Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test")
Files = str | tuple[str, ...]
"""One file (or folder) of a split, or several that make it up together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One benchmark.

    Attributes:
        name: As `--task` takes it.
        title: As papers write it.
        kind: The kind of task, as `Task.kind` names it.
        language: "en" or "zh".
        folders: Usual names of its folder inside a folder of several benchmarks.
        files: Usual places of each split inside the benchmark's folder; the first that exists is used.
        options: How its files are read. Labels are as the files write them.
        metrics: What is reported, the main one first; empty where a script decides it, which `task_fields` name.
        labels: The classes in the order of the head's logits; empty: from the training file, or there are none.
        task_fields: Further fields of the task.
        max_length: Tokens of a sequence at most, special tokens included.
    """

    name: str
    title: str
    kind: Kind = "classification"
    language: Literal["en", "zh"] = "en"
    folders: tuple[str, ...]
    files: Mapping[Split, tuple[Files, ...]]
    options: ReadOptions = field(default_factory=ReadOptions)
    metrics: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    task_fields: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    epochs: float = 3.0
    learning_rate: float = 3e-5
    batch_size: int = 32
    max_length: int = 128

    def find(self, folder: str | Path) -> dict[Split, tuple[Path, ...]]:
        """Return the files of the splits that exist in the benchmark's folder, or in one that holds that folder.

        Raises:
            DataError: If the folder is missing, or holds none of the files.
        """
        folder = Path(folder).expanduser()
        if not folder.is_dir():
            raise DataError(
                f"the folder {folder} for {self.title} {'is a file' if folder.exists() else 'does not exist'}",
                todo="Name the folder with its files, or name the files themselves (train, dev, test).",
            )
        for place in (folder, *(folder / name for name in self.folders)):
            found = {split: files for split in SPLITS if (files := self._of_split(split, place))}
            if found:
                return found
        usual = [name for split in SPLITS for names in self.files.get(split, ()) for name in _as_tuple(names)]
        there = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
        shown = ", ".join(there[:8]) + (", ..." if len(there) > 8 else "")
        guess = next((near for name in usual if (near := nearest(name, there))), None)
        raise DataError(
            f"{folder} holds no files of {self.title}, only {shown}" if there else f"{folder} is empty",
            allowed=", ".join(dict.fromkeys(usual)),
            todo="Rename them, or name the files themselves (train, dev, test)"
            + (f"; the nearest is {guess!r}." if guess else "."),
        )

    def _of_split(self, split: Split, folder: Path) -> tuple[Path, ...]:
        for names in self.files.get(split, ()):
            paths = [_existing(folder / name) for name in _as_tuple(names)]
            if all(paths):
                return tuple(path for path in paths if path is not None)
        return ()


def _as_tuple(names: Files) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


def _existing(path: Path) -> Path | None:
    candidates = (path, *(path.with_name(path.name + ending) for ending in COMPRESSIONS))
    return next((candidate for candidate in candidates if candidate.exists()), None)


_SplitFiles = dict[Split, tuple[Files, ...]]
_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
# The order of google-research/bert run_classifier.py, MnliProcessor and XnliProcessor.
_NLI = ("contradiction", "entailment", "neutral")
_ENTITIES = ("f1", "precision", "recall", "accuracy")
_STS_RANGE = MappingProxyType({"bounds": (0.0, 5.0)})
_TSV: _SplitFiles = {"train": ("train.tsv",), "dev": ("dev.tsv",), "test": ("test.tsv",)}
_CLUE: _SplitFiles = {
    "train": ("train.json", "train.txt", "train.tsv", "train.jsonl"),
    "dev": ("dev.json", "dev.txt", "dev.tsv", "dev.jsonl"),
    "test": ("test.json", "test1.0.json", "test.txt", "test.tsv", "test.jsonl"),
}
# Its authors' own files are called LCQMC_train.json (README of the corpus); some pass them on as LCQMC_train.txt.
_LCQMC: _SplitFiles = {part: (*names, f"LCQMC_{part}.json", f"LCQMC_{part}.txt") for part, names in _CLUE.items()}


def _unquoted_tsv(**columns: Any) -> ReadOptions:
    """Return options by which quotes are ordinary characters: in GLUE's files, hundreds are never closed."""
    return ReadOptions(format="tsv", quoting="none", **columns)


def _glue(name: str, title: str, labels: tuple[str, ...], metrics: tuple[str, ...], **columns: Any) -> Benchmark:
    """Return a row of GLUE (Wang et al. 2019), files as its own download has them; settings of BERT, 4.1."""
    folders = (title, name.replace("-", ""))
    options = _unquoted_tsv(**columns)
    return Benchmark(
        name=name, title=title, folders=folders, files=_TSV, options=options, labels=labels, metrics=metrics
    )


# Metrics of GLUE: Wang et al. 2019, table 1; the first one is the one of BERT, table 1.
_GLUE = (
    # Train and dev have no header; the test file has one and no labels.
    _glue("cola", "CoLA", _BINARY, ("matthews", "accuracy"), text=("sentence", "4"), label=("label", "2")),
    _glue("sst-2", "SST-2", _BINARY, ("accuracy",), text="sentence", label="label"),
    _glue("mrpc", "MRPC", _BINARY, ("f1", "accuracy"), text="#1 String", text2="#2 String", label="Quality"),
    Benchmark(
        name="sts-b",
        title="STS-B",
        kind="regression",
        folders=("STS-B", "stsb"),
        files=_TSV,
        options=_unquoted_tsv(text="sentence1", text2="sentence2", label="score"),
        metrics=("spearman", "pearson"),
        task_fields=_STS_RANGE,
    ),
    _glue("qqp", "QQP", _BINARY, ("f1", "accuracy"), text="question1", text2="question2", label="is_duplicate"),
    *(
        Benchmark(
            name=name,
            title=title,
            folders=("MNLI", "mnli", "multinli"),
            files={"train": ("train.tsv",), "dev": (f"dev_{part}.tsv",), "test": (f"test_{part}.tsv",)},
            options=_unquoted_tsv(text="sentence1", text2="sentence2", label="gold_label", dropped_labels=("-",)),
            labels=_NLI,
            metrics=("accuracy",),
        )
        for name, title, part in (("mnli", "MNLI", "matched"), ("mnli-mm", "MNLI mismatched", "mismatched"))
    ),
    _glue("qnli", "QNLI", _ENTAILMENT, ("accuracy",), text="question", text2="sentence", label="label"),
    _glue("rte", "RTE", _ENTAILMENT, ("accuracy",), text="sentence1", text2="sentence2", label="label"),
    _glue("wnli", "WNLI", _BINARY, ("accuracy",), text="sentence1", text2="sentence2", label="label"),
)

_ENGLISH = (
    Benchmark(
        name="squad-1.1",
        title="SQuAD 1.1",
        kind="question_answering",
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
        folders=("conll2003", "conll-2003", "CoNLL-2003", "CoNLL2003"),
        files={
            "train": ("eng.train", "train.txt", "train.conll"),
            "dev": ("eng.testa", "valid.txt", "dev.txt", "testa.txt", "dev.conll"),
            "test": ("eng.testb", "test.txt", "testb.txt", "test.conll"),
        },
        options=ReadOptions(format="conll", text="1", label="-1"),
        metrics=_ENTITIES,
    ),
    Benchmark(
        name="wnut17",
        title="WNUT-17 emerging entities",
        kind="tagging",
        folders=("wnut17", "wnut17_ner", "emerging_entities_17"),
        files={
            "train": ("wnut17train.conll", "train.conll", "train.txt"),
            "dev": ("emerging.dev.conll", "dev.conll", "dev.txt"),
            "test": ("emerging.test.annotated", "test.conll", "test.txt"),
        },
        options=ReadOptions(format="conll", text="1", label="2"),
        metrics=_ENTITIES,
    ),
)

_ANSWERS: tuple[tuple[str, str, str, tuple[str, ...], _SplitFiles], ...] = (
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
        for name, title, metric, folders, files in _ANSWERS
    ),
    Benchmark(
        name="chnsenticorp",
        title="ChnSentiCorp",
        language="zh",
        folders=("chnsenticorp", "ChnSentiCorp"),
        files=_TSV,
        options=_unquoted_tsv(text="text_a", label="label"),
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

BENCHMARKS: Mapping[str, Benchmark] = MappingProxyType({row.name: row for row in (*_GLUE, *_ENGLISH, *_CHINESE)})
"""All benchmarks by name."""
ALIASES: Mapping[str, str] = MappingProxyType(
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


def benchmark(name: str) -> Benchmark:
    """Return a benchmark by name; capitals, spaces, dots and underscores do not matter ("SST2", "squad_v1.1").

    Raises:
        RecipeError: If there is none; the nearest name is suggested.

    Example:
        >>> benchmark("sst-2").metrics
        ('accuracy',)
    """
    plain = {_plain(known): known for known in (*ALIASES, *BENCHMARKS)}
    if (known := plain.get(_plain(name))) is not None:
        return BENCHMARKS[ALIASES.get(known, known)]
    problem, allowed, todo = unknown_name("benchmark", name, BENCHMARKS)
    raise RecipeError(problem, allowed=allowed, todo=todo)


def _plain(name: str) -> str:
    return "".join(character for character in name.casefold() if character.isalnum())
