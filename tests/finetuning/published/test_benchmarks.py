"""Benchmarks: rows that fit together, files found as published, every file's layout read."""

import json

import pytest

from maskwright.core.errors import DataError, RecipeError
from maskwright.finetuning.labeled import LabeledRequest, load_read_as, read_for_model, read_labeled, save_read_as
from maskwright.finetuning.published.benchmarks import BENCHMARKS, SPLITS
from maskwright.finetuning.readers.options import ReadOptions
from maskwright.reporting.reporter import Reporter

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
PUBLISHED = {
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


_PAIRS = 'index\tsentence1\tsentence2\n0\ta\tb\n1\tc " d\te\n'
# One test file of each benchmark, and what its examples hold; published without labels where these were kept back.
TESTS = {
    "cola": ("index\tsentence\n0\tThey \" drank .\n", [["They \" drank ."]]),
    "sst-2": ("index\tsentence\n0\tuneasy mishmash \" . \n", [["uneasy mishmash \" . "]]),
    "mrpc": ("index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t2\t3\t\" a\tlonger b\n", [["\" a", "longer b"]]),
    "sts-b": ("index\tgenre\tsource1\tsentence1\tsentence2\n0\tx\ty\ta\tb\n", [["a", "b"]]),
    "qqp": ("id\tquestion1\tquestion2\n5\ta\tb\n", [["a", "b"]]),
    "mnli": ("index\tgenre\tsentence1_parse\tsentence1\tsentence2\n0\tg\tlong parse\ta\tb\n", [["a", "b"]]),
    "mnli-mm": ("index\tgenre\tsentence1_parse\tsentence1\tsentence2\n0\tg\tlong parse\ta\tb\n", [["a", "b"]]),
    "qnli": ("index\tquestion\tsentence\n0\ta\tb\n", [["a", "b"]]),
    "rte": (_PAIRS, [["a", "b"], ["c \" d", "e"]]),
    "wnli": (_PAIRS, [["a", "b"], ["c \" d", "e"]]),
    "squad-1.1": (json.dumps(QA), [["?", "在北京。"]]),
    "squad-2.0": (json.dumps(QA), [["?", "在北京。"]]),
    "race": (json.dumps(RACE), [["a", "q", "x", "y"]]),
    "dream": (json.dumps(DREAM), [["turn", "q", "x", "y"]]),
    "swag": (SWAG.replace(",label", "") + "0,v,1,p,s,t,gold,a,b,c,d\n", [["s", "t", "a", "b", "c", "d"]]),
    "conll-2003": ("-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nsays VBZ I-VP O\n", [["EU", "says"]]),
    "wnut17": ("Ada\tB-person\n\t\ncodes\tO\n", [["Ada"], ["codes"]]),
    "cmrc2018": (json.dumps(QA), [["?", "在北京。"]]),
    "drcd": (json.dumps(QA), [["?", "在北京。"]]),
    "chnsenticorp": ("label\ttext_a\n1\t這間\"酒店\n", [["這間\"酒店"]]),
    "afqmc": ("借呗取消\t蚂蚁借呗恢复\n网商贷\t切换为借呗\n", [["借呗取消", "蚂蚁借呗恢复"], ["网商贷", "切换为借呗"]]),
    "lcqmc": ("谁\t哪个\t1\n", [["谁", "哪个"]]),
    "ocnli": ('{"sentence1": "a", "sentence2": "b", "id": 0}\n', [["a", "b"]]),
    "xnli": ("language\tgold_label\tsentence1\tsentence2\nde\tneutral\tc\td\nzh\tneutral\t\"b\td\n", [["\"b", "d"]]),
    "tnews": ('{"id": 0, "sentence": "江疏影", "keywords": "很长很长很长的"}\n', [["江疏影"]]),
    "c3": (json.dumps(DREAM), [["turn", "q", "x", "y"]] * 2),
    "sts-b-zh": ("一个女孩\t她在梳头\t2\n我\t你\t3\n", [["一个女孩", "她在梳头"], ["我", "你"]]),
    "weibo-ner": ("科0\tO\n技1\tB-ORG.NAM\n", [["科", "技"]]),
}  # fmt: skip
# Training files: as the development files, with two different labels for scores that need them.
TRAINS = {
    "cola": 'gj04\t0\t*\tThey drank .\ngj04\t1\t\tHe " ate .\n',
    "sts-b": "index\tgenre\tsentence1\tsentence2\tscore\n0\tx\ta\tb\t4.750\n1\tx\ta\tb\t1.0\n",
    "sts-b-zh": "一个女孩\t她在梳头\t2\n一个\t她在\t4\n",
}


def inputs_of(example):
    """Return the texts of an example, without its key and its label."""
    for names in (("texts",), ("words",), ("context", "question", "options"), ("question", "context")):
        if all(hasattr(example, name) for name in names):
            values = [getattr(example, name) for name in names]
            return [text for value in values for text in ((value,) if isinstance(value, str) else value)]
    raise TypeError(type(example).__name__)


def laid_out(folder, name):
    """Write a benchmark's files under their published names; those without a test file have what it would be in dev."""
    row, (dev_name, dev_text, _) = BENCHMARKS[name], PUBLISHED[name]
    last = "test" if "test" in row.files else "dev"
    written = {}
    for split in [split for split in SPLITS if split in row.files]:
        text = TESTS[name][0] if split == last else TRAINS.get(name, dev_text)
        names = (dev_name,) if split == "dev" and split != last else row.files[split][0]
        written[split] = [folder / name for name in names]
        if name == "race":
            written[split] = [folder / split]
            (folder / split / "high").mkdir(parents=True)
        if name == "c3":
            written[split] = [folder / f"c3-{genre}-{split}.json" for genre in "md"]
        for path in written[split]:
            target = path / "high" / "1.txt" if name == "race" else path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8", newline="")
    return written


@pytest.mark.parametrize("name", BENCHMARKS)
def test_published_layouts_are_found_and_read(tmp_path, name):
    """In training and evaluation, and for prediction as in evaluation."""
    row = BENCHMARKS[name]
    assert {"train", "dev"} <= set(row.files) <= set(SPLITS)
    assert row.metrics or "metric" in row.task_fields
    assert len(set(row.labels)) == len(row.labels) != 1
    assert bool(row.labels) == (row.kind == "classification")
    written = laid_out(tmp_path / row.folders[0], name)
    labeled = read_labeled(LabeledRequest.of(task=name, data=tmp_path, files={}, columns={}), {}, Reporter())
    first, label = labeled.parts["dev"].examples[0], PUBLISHED[name][2]
    field = {"tagging": "tags", "question_answering": "answers"}.get(row.kind, "label")
    assert (first.answers[0].start if field == "answers" else getattr(first, field)) == label
    save_read_as(tmp_path, labeled.read_as)
    trained = load_read_as(tmp_path)
    assert trained == labeled.read_as
    last = labeled.parts.get("test", labeled.parts["dev"])
    file = read_for_model(list(written.values())[-1], row.kind, ReadOptions(labels="ignored"), trained)
    assert [(one.key, inputs_of(one)) for one in file.examples] == [(one.key, inputs_of(one)) for one in last.examples]
    assert [inputs_of(one) for one in file.examples] == [list(texts) for texts in TESTS[name][1]]


def test_folders_without_the_files_are_refused(tmp_path):
    sst = BENCHMARKS["sst-2"]
    with pytest.raises(DataError, match="does not exist"):
        sst.find(tmp_path / "nowhere")
    (tmp_path / "training.tsv").write_text("x")
    with pytest.raises(DataError, match=r"holds no files of SST-2, only training\.tsv\. Allowed: train\.tsv"):
        sst.find(tmp_path)
    with pytest.raises(DataError, match="is a file"):
        sst.find(tmp_path / "training.tsv")


def test_split_of_two_files_needs_both(tmp_path):
    (tmp_path / "c3-m-train.json").write_text("[]")
    (tmp_path / "c3-m-dev.json").write_text("[]")
    (tmp_path / "c3-d-dev.json").write_text("[]")
    benchmark = BENCHMARKS["c3"].find(tmp_path)
    assert {split: [path.name for path in files] for split, files in benchmark.items()} == {
        "dev": ["c3-m-dev.json", "c3-d-dev.json"]
    }


def test_without_training_files_the_error_names_the_files_it_expects(tmp_path):
    (tmp_path / "dev.json").write_text("{}", encoding="utf-8")
    columns = {"text": None, "text2": None, "label": None}
    request = LabeledRequest.of(task="ocnli", data=tmp_path, files={}, columns=columns)
    with pytest.raises(DataError, match=r"no training examples.*Allowed: train\.50k\.json or train\.json"):
        read_labeled(request, {}, Reporter())
    with pytest.raises(RecipeError, match=r"no data was given.*train\.50k\.json.*dev\.json.*--data DIR"):
        LabeledRequest.of(task="ocnli", files={"train": None}, columns=columns)
