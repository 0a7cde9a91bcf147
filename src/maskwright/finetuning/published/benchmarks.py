"""The benchmarks: files, columns, labels and metrics, one row each. Their settings: `settings.py`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from maskwright.core.errors import DataError
from maskwright.data.files import COMPRESSIONS
from maskwright.finetuning.readers.options import Kind, ReadOptions

Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test")


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One benchmark.

    `name` and `aliases` are what `--task` takes, `title` what papers write, `folders` usual names inside a folder of
    several benchmarks. `files` are the usual files of each split inside it; the first that exists is used. Several make
    up a split in two benchmarks, and a folder in one. Labels are as the files write them. `metrics` begin with the main
    one, and are empty where `task_fields` (further fields of the task) name a script; `labels` are the classes in the
    order of the logits, empty if the training file tells them or there are none.
    """

    name: str
    aliases: tuple[str, ...] = ()
    title: str
    kind: Kind = "classification"
    language: Literal["en", "zh"] = "en"
    folders: tuple[str, ...]
    files: Mapping[Split, tuple[tuple[str, ...], ...]]
    options: ReadOptions = field(default_factory=ReadOptions)
    metrics: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    task_fields: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def find(self, folder: str | Path) -> dict[Split, tuple[Path, ...]]:
        """Return the files of the splits that exist in the benchmark's folder, or in one that holds that folder."""
        folder = Path(folder).expanduser()
        if not folder.is_dir():
            raise DataError(
                f"the folder {folder} for {self.title} {'is a file' if folder.exists() else 'does not exist'}",
                hint="Name the folder with its files, or name the files themselves (train, dev, test).",
            )
        for directory in (folder, *(folder / name for name in self.folders)):
            by_split = {split: files for split in SPLITS if (files := self._of_split(split, directory))}
            if by_split:
                return by_split
        entries = sorted(path.name for path in folder.iterdir())
        raise DataError(
            f"{folder} holds no files of {self.title}, only {', '.join(entries[:8]) or 'nothing'}",
            allowed=", ".join(self.usual_files()),
            hint="Rename them, or name the files themselves (train, dev, test).",
        )

    def usual_files(self, *splits: Split) -> list[str]:
        """Return the names that files of some splits (all by default) may have."""
        names = [name for split in splits or SPLITS for files in self.files.get(split, ()) for name in files]
        return list(dict.fromkeys(names))

    def _of_split(self, split: Split, folder: Path) -> tuple[Path, ...]:
        for names in self.files.get(split, ()):
            paths = [_existing(folder / name) for name in names]
            if all(paths):
                return tuple(path for path in paths if path is not None)
        return ()


def _existing(path: Path) -> Path | None:
    candidates = (path, *(path.with_name(path.name + ending) for ending in COMPRESSIONS))
    return next((candidate for candidate in candidates if candidate.exists()), None)


def _row(
    names: str,
    title: str,
    folders: str,
    files: tuple[str, ...],
    metrics: str = "",
    *,
    kind: Kind = "classification",
    labels: str = "",
    task: Mapping[str, Any] = MappingProxyType({}),
    language: Literal["en", "zh"] = "en",
    **options: Any,
) -> Benchmark:
    """Return a row.

    Names are separated by spaces: `names` are the name and its aliases; `files` are those of SPLITS, "a+b" for two that
    belong together.
    """
    name, *aliases = names.split()
    return Benchmark(
        name=name,
        aliases=tuple(aliases),
        title=title,
        kind=kind,
        language=language,
        folders=tuple(folders.split()),
        files={
            split: tuple(tuple(name.split("+")) for name in names.split())
            for split, names in zip(SPLITS, files, strict=False)
        },
        options=ReadOptions(**options),
        metrics=tuple(metrics.split()),
        labels=tuple(labels.split()),
        task_fields=task,
    )


_TSV = ("train.tsv", "dev.tsv", "test.tsv")
_CLUE = (
    "train.json train.txt train.tsv train.jsonl",
    "dev.json dev.txt dev.tsv dev.jsonl",
    "test.json test1.0.json test.txt test.tsv test.jsonl",
)
_ENTAILMENT = "entailment not_entailment"
# The order of google-research/bert run_classifier.py, MnliProcessor and XnliProcessor.
_NLI = "contradiction entailment neutral"
_ENTITIES = "f1 precision recall accuracy"
_PAIR: dict[str, Any] = {"text": "sentence1", "text2": "sentence2"}
# GLUE: Wang et al. 2019, files as its own download has them. Double quotes are characters: hundreds are never closed.
# Metrics: table 1, the main one as in BERT's table 1.
_GLUE: dict[str, Any] = {"format": "tsv", "quoting": "none"}
_STS: dict[str, Any] = {"kind": "regression"}
_ZH: dict[str, Any] = {"language": "zh"}

# fmt: off
_ROWS = (
    # Train and dev have no header; the test file has one and no labels.
    _row("cola", "CoLA", "CoLA cola", _TSV, "matthews accuracy", labels="0 1", text=("sentence", "4"),
         label=("label", "2"), **_GLUE),
    _row("sst-2", "SST-2", "SST-2 sst2", _TSV, "accuracy", labels="0 1", text="sentence", label="label", **_GLUE),
    _row("mrpc", "MRPC", "MRPC mrpc", _TSV, "f1 accuracy", labels="0 1", text="#1 String", text2="#2 String",
         label="Quality", **_GLUE),
    _row("sts-b", "STS-B", "STS-B stsb", _TSV, "spearman pearson", **_PAIR, label="score", **_GLUE, **_STS),
    _row("qqp", "QQP", "QQP qqp", _TSV, "f1 accuracy", labels="0 1", text="question1", text2="question2",
         label="is_duplicate", **_GLUE),
    *(
        _row(name, title, "MNLI mnli multinli", ("train.tsv", f"dev_{part}.tsv", f"test_{part}.tsv"), "accuracy",
             labels=_NLI, **_PAIR, label="gold_label", dropped_labels=("-",), **_GLUE)
        for name, title, part in (
            ("mnli mnli-m mnli-matched", "MNLI", "matched"),
            ("mnli-mm mnli-mismatched", "MNLI mismatched", "mismatched"),
        )
    ),
    _row("qnli", "QNLI", "QNLI qnli", _TSV, "accuracy", labels=_ENTAILMENT, text="question", text2="sentence",
         label="label", **_GLUE),
    _row("rte", "RTE", "RTE rte", _TSV, "accuracy", labels=_ENTAILMENT, **_PAIR, label="label", **_GLUE),
    _row("wnli", "WNLI", "WNLI wnli", _TSV, "accuracy", labels="0 1", **_PAIR, label="label", **_GLUE),

    _row("squad-1.1 squad squad-v1 squad-v1.1", "SQuAD 1.1", "squad SQuAD squad1", ("train-v1.1.json", "dev-v1.1.json"),
         kind="question_answering", format="json", task={"metric": "squad"}),
    _row("squad-2.0 squad-2 squad-v2 squad-v2.0", "SQuAD 2.0", "squad SQuAD squad2",
         ("train-v2.0.json", "dev-v2.0.json"),
         kind="question_answering", format="json", task={"metric": "squad_v2"}),
    _row("race", "RACE", "RACE race", ("train train.jsonl", "dev dev.jsonl", "test test.jsonl"), "accuracy",
         kind="multiple_choice", format="json"),
    _row("dream", "DREAM", "dream DREAM dream_mc data",
         tuple(f"{split}.json race_style/{split}.jsonl {split}.jsonl" for split in SPLITS), "accuracy",
         kind="multiple_choice"),
    _row("swag", "SWAG", "swag SWAG swagaf data", ("train.csv", "val.csv dev.csv", "test.csv"), "accuracy",
         kind="multiple_choice", text="sent1", text2="sent2", choices="ending0,ending1,ending2,ending3", label="label",
         first_option=0),
    _row("conll-2003 conll", "CoNLL-2003 NER", "conll2003 conll-2003 CoNLL-2003 CoNLL2003",
         ("eng.train train.txt train.conll", "eng.testa valid.txt dev.txt testa.txt dev.conll",
          "eng.testb test.txt testb.txt test.conll"),
         _ENTITIES, kind="tagging", format="conll", text="1", label="-1"),
    _row("wnut17", "WNUT-17 emerging entities", "wnut17 wnut17_ner emerging_entities_17",
         ("wnut17train.conll train.conll train.txt", "emerging.dev.conll dev.conll dev.txt",
          "emerging.test.annotated test.conll test.txt"),
         _ENTITIES, kind="tagging", format="conll", text="1", label="2"),

    _row("cmrc2018 cmrc", "CMRC 2018", "cmrc2018 CMRC2018 cmrc2018_public squad-style-data",
         tuple(f"cmrc2018_{split}.json {split}.json" for split in SPLITS),
         kind="question_answering", format="json", task={"metric": "cmrc"}, **_ZH),
    _row("drcd", "DRCD", "drcd DRCD", ("DRCD_training.json train.json", "DRCD_dev.json dev.json",
         "DRCD_test.json test.json"),
         kind="question_answering", format="json", task={"metric": "cmrc"}, **_ZH),
    _row("chnsenticorp", "ChnSentiCorp", "chnsenticorp ChnSentiCorp", _TSV, "accuracy",
         labels="0 1", text="text_a", label="label", **_GLUE, **_ZH),
    _row("afqmc", "AFQMC", "afqmc AFQMC afqmc_public", _CLUE, "accuracy",
         labels="0 1", text=("sentence1", "1"), text2=("sentence2", "2"), label=("label", "3"), **_ZH),
    # Its authors' own files are called LCQMC_train.json (README of the corpus); some pass them on as LCQMC_train.txt.
    _row("lcqmc", "LCQMC", "lcqmc LCQMC",
         tuple(f"{names} LCQMC_{split}.json LCQMC_{split}.txt" for split, names in zip(SPLITS, _CLUE, strict=True)),
         "accuracy", labels="0 1", text=("text_a", "sentence1", "1"),
         text2=("text_b", "sentence2", "2"), label=("label", "gold_label", "3"), **_ZH),
    # "-": the annotators did not agree; to be left out (CLUEbenchmark/OCNLI README).
    _row("ocnli", "OCNLI", "ocnli OCNLI ocnli_public",
         ("train.50k.json train.json train.30k.json", "dev.json", "test.json"), "accuracy",
         labels=_NLI, **_PAIR, label="label", dropped_labels=("-",), **_ZH),
    # The development and test files hold fifteen languages; the translated training file has other names for its
    # columns and one of its labels (google-research/bert run_classifier.py, XnliProcessor).
    _row("xnli", "XNLI (Chinese)", "xnli XNLI",
         ("multinli/multinli.train.zh.tsv multinli.train.zh.tsv train.tsv train.jsonl",
          "xnli.dev.tsv xnli.dev.jsonl dev.tsv dev.jsonl", "xnli.test.tsv xnli.test.jsonl test.tsv test.jsonl"),
         "accuracy", labels=_NLI, quoting="none", text=("sentence1", "premise"),
         text2=("sentence2", "hypo", "hypothesis"),
         label=("gold_label", "label"), label_names=(("contradictory", "contradiction"),),
         only=(("language", "zh"),), **_ZH),
    # Codes of Toutiao's channels; 105 and 111 are not among them (CLUE, tnews labels.json).
    _row("tnews", "TNEWS", "tnews TNEWS tnews_public", _CLUE, "accuracy",
         labels="100 101 102 103 104 106 107 108 109 110 112 113 114 115 116", text="sentence", label="label", **_ZH),
    # Two files for each split: mixed genre and dialogue.
    _row("c3", "C3", "c3 C3 c3_public data",
         ("c3-m-train.json+c3-d-train.json m-train.json+d-train.json",
          "c3-m-dev.json+c3-d-dev.json m-dev.json+d-dev.json", "c3-m-test.json+c3-d-test.json test1.0.json test.json"),
         "accuracy", kind="multiple_choice", **_ZH),
    _row("sts-b-zh chinese-sts-b", "STS-B (Chinese)", "chinese_stsb STS-B",
         tuple(f"sts-b-{split}.txt {split}.txt" for split in SPLITS), "spearman pearson",
         text=("sentence1", "1"), text2=("sentence2", "2"), label=("score", "3"), **_STS, **_ZH),
    _row("weibo-ner weibo", "Weibo NER", "weibo_ner weibo Weibo",
         tuple(f"weiboNER_2nd_conll.{split} weiboNER.conll.{split} {split}.txt" for split in SPLITS), _ENTITIES,
         kind="tagging", format="conll", text="1", label="2", word_ending="segmentation_digit",
         task={"joined": "nothing"}, **_ZH),
)
# fmt: on

BENCHMARKS: Mapping[str, Benchmark] = MappingProxyType({row.name: row for row in _ROWS})
"""All benchmarks by name."""


def benchmark(name: str) -> Benchmark | None:
    """Return a benchmark by name, None if there is none; case and punctuation do not matter ("SST2", "squad_v1.1")."""

    def plain(name: str) -> str:
        return "".join(filter(str.isalnum, name.casefold()))

    return next((row for row in _ROWS if plain(name) in map(plain, (row.name, *row.aliases))), None)
