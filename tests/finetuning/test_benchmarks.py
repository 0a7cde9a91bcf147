"""Benchmarks: rows that fit together, files found as published, every file's layout read."""

import json
from pathlib import Path

import pytest

from maskwright.core.errors import DataError, RecipeError
from maskwright.finetuning.benchmarks import BENCHMARKS, SPLITS, Benchmark, benchmark
from maskwright.finetuning.labeled import LabeledRequest, read_labeled
from maskwright.finetuning.readers import read_examples
from maskwright.training.reporting import Silent

QA = {
    "data": [
        {
            "paragraphs": [
                {
                    "context": "在北京。",
                    "qas": [{"id": "q", "question": "?", "answers": [{"text": "北京", "answer_start": 1}]}],
                }
            ]
        }
    ]
}
RACE = {"article": "a", "questions": ["q"], "options": [["x", "y"]], "answers": ["B"]}
DREAM = [[["turn"], [{"question": "q", "choice": ["x", "y"], "answer": "y"}], "1"]]
MNLI = "index\tpromptID\tpairID\tgenre\tsentence1_parse\tsentence1\tsentence2\tlabel1\tgold_label\n"
XNLI = 'language\tgold_label\tsentence1\tsentence2\nde\tneutral\tc\td\nzh\tneutral\ta "b\td\n'
OCNLI = "".join(f'{{"sentence1": "a", "sentence2": "b", "label": "{label}"}}\n' for label in ("-", "neutral"))
SWAG = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n"

# One development file of each benchmark in its published layout, and the label of its first example.
PUBLISHED: dict[str, tuple[str, str, object]] = {
    "cola": ("dev.tsv", "gj04\t0\t*\tThey \" drank .\n", "0"),
    "sst-2": ("dev.tsv", "sentence\tlabel\nit 's \" charming \t1\n", "1"),
    "mrpc": ("dev.tsv", "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t2\t3\t\" a\tb\n", "1"),
    "sts-b": ("dev.tsv", "index\tgenre\tsentence1\tsentence2\tscore\n0\tx\ta\tb\t4.750\n", 4.75),
    "qqp": ("dev.tsv", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n5\t1\t2\ta\tb\t0\n", "0"),
    "mnli": ("dev_matched.tsv", f"{MNLI}0\t1\t2\tg\tp\ta\tb\tx\tneutral\n1\t1\t3\tg\tp\ta\tb\tx\t-\n", "neutral"),
    "mnli-mm": ("dev_mismatched.tsv", f"{MNLI}0\t1\t2\tg\tp\ta\tb\tx\tentailment\n", "entailment"),
    "qnli": ("dev.tsv", "index\tquestion\tsentence\tlabel\n0\ta\tb\tnot_entailment\n", "not_entailment"),
    "rte": ("dev.tsv", "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n", "entailment"),
    "wnli": ("dev.tsv", "index\tsentence1\tsentence2\tlabel\n0\ta\tb\t1\n", "1"),
    "squad-1.1": ("dev-v1.1.json", json.dumps(QA), 1),
    "squad-2.0": ("dev-v2.0.json", json.dumps(QA), 1),
    "race": ("dev/high/1.txt", json.dumps(RACE), 1),
    "dream": ("dev.json", json.dumps(DREAM), 1),
    "swag": ("val.csv", SWAG + "0,v,1,s,t,u,gold,a,b,c,d,3\n", 3),
    "conll-2003": ("eng.testa", "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nsays VBZ I-VP O\n", ("I-ORG", "O")),
    "wnut17": ("emerging.dev.conll", "Ada\tB-person\n\t\ncodes\tO\n", ("B-person",)),
    "cmrc2018": ("cmrc2018_dev.json", json.dumps(QA), 1),
    "drcd": ("DRCD_dev.json", json.dumps(QA), 1),
    "chnsenticorp": ("dev.tsv", "label\ttext_a\n1\t這間\"酒店\n", "1"),
    "afqmc": ("dev.txt", "花呗\t花呗额度\t0\n", "0"),
    "lcqmc": ("dev.tsv", "text_a\ttext_b\tlabel\n谁\t哪个\t1\n", "1"),
    "ocnli": ("dev.json", OCNLI, "neutral"),
    "xnli": ("xnli.dev.tsv", XNLI, "neutral"),
    "tnews": ("dev.json", '{"label": "102", "label_desc": "news_x", "sentence": "江疏影", "keywords": ""}\n', "102"),
    "c3": ("c3-m-dev.json", json.dumps(DREAM), 1),
    "sts-b-zh": ("sts-b-dev.txt", "一个女孩\t她在梳头\t2\n", 2.0),
    "weibo-ner": ("weiboNER_2nd_conll.dev", "科0\tO\n技1\tB-ORG.NAM\n", ("O", "B-ORG.NAM")),
}  # fmt: skip


def test_every_benchmark_has_its_published_layout_here() -> None:
    assert set(PUBLISHED) == set(BENCHMARKS)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_published_layouts_are_found_and_read(tmp_path: Path, name: str) -> None:
    row = benchmark(name)
    file, text, label = PUBLISHED[name]
    path = tmp_path / row.folders[0] / file
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8", newline="")
    if name == "c3":
        path.with_name("c3-d-dev.json").write_text(text, encoding="utf-8")
    for folder in (tmp_path, tmp_path / row.folders[0]):
        found = row.find(folder)
        assert list(found) == ["dev"]
    examples = read_examples(found["dev"], row.kind, row.options.replace(known_labels=row.labels)).examples
    first = examples[0]
    match row.kind:
        case "tagging":
            assert first.tags == label
            assert all(not word.endswith("0") for word in first.words)
        case "question_answering":
            assert first.answers[0].start == label
        case _:
            assert first.label == label


@pytest.mark.parametrize(
    ("ending", "text"),
    [
        ("train.tsv", "text_a\ttext_b\tlabel\n谁\t哪个\t1\n"),
        ("train.txt", "谁\t哪个\t1\n"),
        ("train.jsonl", '{"sentence1": "谁", "sentence2": "哪个", "label": "1"}\n'),
        ("LCQMC_train.txt", "谁\t哪个\t1\n"),
        ("LCQMC_train.json", '{"sentence1": "谁", "sentence2": "哪个", "label": 1}\n'),
        ("LCQMC_train.json", '{"gold_label": "1", "sentence1": "谁", "sentence2": "哪个", "ID": "1158530"}\n'),
    ],
)
def test_lcqmc_is_read_under_every_name_it_goes_by(tmp_path: Path, ending: str, text: str) -> None:
    row = benchmark("lcqmc")
    for split in SPLITS:
        (tmp_path / ending.replace("train", split)).write_text(text, encoding="utf-8")
    found = row.find(tmp_path)
    assert list(found) == list(SPLITS)
    for files in found.values():
        [example] = read_examples(files, row.kind, row.options.replace(known_labels=row.labels)).examples
        assert (example.texts, example.label) == (("谁", "哪个"), "1")


@pytest.mark.parametrize("row", BENCHMARKS.values(), ids=BENCHMARKS)
def test_rows_are_sound(row: Benchmark) -> None:
    assert set(row.files) <= set(SPLITS)
    assert {"train", "dev"} <= set(row.files)
    assert row.metrics or "metric" in row.task_fields
    assert len(set(row.labels)) == len(row.labels) != 1
    assert bool(row.labels) == (row.kind == "classification")
    assert 1e-5 <= row.learning_rate <= 5e-5
    assert row.max_length in (128, 256, 384, 512)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("SST2", "sst-2"),
        ("STS-B", "sts-b"),
        ("squad_v2.0", "squad-2.0"),
        ("SQuAD", "squad-1.1"),
        ("MNLI-mismatched", "mnli-mm"),
    ],
)
def test_names_are_taken_loosely(written: str, name: str) -> None:
    assert benchmark(written).name == name


def test_unknown_benchmarks_name_the_nearest() -> None:
    with pytest.raises(RecipeError, match=r"unknown benchmark 'sst-3'.*Did you mean 'sst-2'\?"):
        benchmark("sst-3")


def test_folders_without_the_files_are_refused(tmp_path: Path) -> None:
    sst = benchmark("sst-2")
    with pytest.raises(DataError, match="does not exist"):
        sst.find(tmp_path / "nowhere")
    with pytest.raises(DataError, match="is empty"):
        sst.find(tmp_path)
    (tmp_path / "training.tsv").write_text("x")
    with pytest.raises(
        DataError, match=r"holds no files of SST-2, only training\.tsv\. Allowed: train\.tsv.*'training\.tsv'"
    ):
        sst.find(tmp_path)
    with pytest.raises(DataError, match="is a file"):
        sst.find(tmp_path / "training.tsv")


def test_compressed_files_and_all_splits_are_found(tmp_path: Path) -> None:
    for name in ("train.tsv.gz", "dev.tsv", "test.tsv.zst"):
        (tmp_path / name).write_bytes(b"x")
    found = benchmark("sst-2").find(tmp_path)
    assert {split: files[0].name for split, files in found.items()} == {
        "train": "train.tsv.gz",
        "dev": "dev.tsv",
        "test": "test.tsv.zst",
    }


def test_split_of_two_files_needs_both(tmp_path: Path) -> None:
    (tmp_path / "c3-m-train.json").write_text("[]")
    (tmp_path / "c3-m-dev.json").write_text("[]")
    (tmp_path / "c3-d-dev.json").write_text("[]")
    found = benchmark("c3").find(tmp_path)
    assert {split: [path.name for path in files] for split, files in found.items()} == {
        "dev": ["c3-m-dev.json", "c3-d-dev.json"]
    }


def test_without_training_files_the_error_names_the_files_it_expects(tmp_path: Path) -> None:
    (tmp_path / "dev.json").write_text("{}", encoding="utf-8")
    columns = {"text": None, "text2": None, "label": None}
    request = LabeledRequest.of(task="ocnli", data=tmp_path, files={}, columns=columns)
    with pytest.raises(DataError, match=r"no training examples.*Allowed: train\.50k\.json or train\.json"):
        read_labeled(request, {}, Silent())
    with pytest.raises(RecipeError, match=r"no data was given.*train\.50k\.json.*dev\.json.*--data DIR"):
        LabeledRequest.of(task="ocnli", files={"train": None}, columns=columns)
