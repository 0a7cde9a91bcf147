"""Files for a fine-tuned model are read like the files of its training, if they are laid out like them."""

import json

import pytest
from toy_tasks import QUICK

from maskwright.core.errors import DataError
from maskwright.finetuning.evaluate import evaluate
from maskwright.finetuning.finetune import finetune
from maskwright.finetuning.labeled import read_for_model
from maskwright.finetuning.predict import predict
from maskwright.finetuning.predictions import plain
from maskwright.finetuning.readers.options import ReadOptions
from maskwright.reporting.reporter import Reporter


def mrpc(folder):
    """MRPC's three files in the words of the tiny models; the test file has other columns, and a longer second text."""
    folder.mkdir()
    for split, head in (("train", "Quality"), ("dev", "Quality"), ("test", "index")):
        lines = [f"{head}\t#1 ID\t#2 ID\t#1 String\t#2 String"]
        for number in range(16):
            animal = ("cat", "dog")[number // 2 % 2]
            lines.append(f'{number % 2}\t1\t2\tthe {animal} " sat\tthe {("cat", "dog")[number % 2]} ran to the tree')
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def paraphrases(bert_folder, tmp_path_factory):
    """A model of MRPC, with the folder of its files in "glue"."""
    out = tmp_path_factory.mktemp("tuned") / "out"
    glue = mrpc(out.parent / "glue")
    finetune(bert_folder, task="mrpc", data=glue, out=out, device="cpu", set=(*QUICK, "epochs=1"), reporter=Reporter())
    return out


def test_a_benchmark_s_test_file_is_predicted_as_it_was_measured(paraphrases):
    glue = paraphrases.parent / "glue"
    predictions = predict(paraphrases, file=glue / "test.tsv", device="cpu", reporter=Reporter())
    lines = (paraphrases / "runs" / "seed-0" / "test_predictions.jsonl").read_text(encoding="utf-8").splitlines()
    assert [plain(one) for one in predictions] == [json.loads(line) for line in lines]
    assert predictions[0].input_text == 'the cat " sat | the cat ran to the tree'
    results = json.loads((paraphrases / "results.json").read_text(encoding="utf-8"))
    measured = evaluate(paraphrases, file=glue / "dev.tsv", device="cpu", reporter=Reporter())
    assert measured.metrics == results["seeds"][0]["dev"]


def test_single_texts_are_refused_by_a_model_of_pairs(paraphrases, tmp_path):
    with pytest.raises(DataError, match=r"input 2: single texts, but this model was trained on pairs.*`--file FILE"):
        predict(paraphrases, [("the cat", "the dog"), "the cat"], device="cpu", reporter=Reporter())
    file = tmp_path / "own.csv"
    file.write_text("satz,antwort\nthe cat,the old dog\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"no column '#1 String' for the text .*read as the training file was"):
        predict(paraphrases, file=file, device="cpu", reporter=Reporter())
    with pytest.raises(DataError, match=r"own\.csv: single texts, but .*--text2 COLUMN"):
        predict(paraphrases, file=file, text="satz", device="cpu", reporter=Reporter())
    [one] = predict(paraphrases, file=file, text="satz", text2="antwort", device="cpu", reporter=Reporter())
    assert one.input_text == "the cat | the old dog"


def test_the_name_of_a_file_is_no_text(paraphrases, tmp_path):
    file = tmp_path / "own texts.csv"
    file.write_text("a,b\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"the input '.*own texts\.csv' is the name of a file\. .*`file="):
        predict(paraphrases, str(file), device="cpu", reporter=Reporter())
    for text in ([str(file)], "missing.csv", str(tmp_path)):
        with pytest.raises(DataError, match="input 1: single texts"):
            predict(paraphrases, text, device="cpu", reporter=Reporter())


@pytest.mark.parametrize(
    ("first", "texts"), [("花呗\t额度\n", [("花呗", "额度"), ("a", "b")]), ("sentence1\tsentence2\n", [("a", "b")])]
)
def test_header_is_not_an_example_of_a_benchmark_without_header(tmp_path, first, texts):
    file = tmp_path / "own.tsv"
    file.write_text(f"{first}a\tb\n", encoding="utf-8")
    afqmc = {"format": "tsv", "text": ("sentence1", "1"), "text2": ("sentence2", "2")}
    read = read_for_model(file, "classification", ReadOptions(labels="ignored"), afqmc)
    assert [example.texts for example in read.examples] == texts


def test_running_text_is_read_by_a_model_trained_on_conll(tmp_path):
    trained = {"format": "conll", "text": "1", "word_ending": "segmentation_digit"}
    lines = tmp_path / "texts.txt"
    lines.write_text("我爱 北京!\n在 北京 的 人 很 多\n", encoding="utf-8")
    read = read_for_model(lines, "tagging", ReadOptions(labels="ignored"), trained)
    assert [example.words[:4] for example in read.examples] == [("我", "爱", "北", "京"), ("在", "北", "京", "的")]


def test_labels_and_texts_between_spaces_are_evaluated_as_they_were_trained_on(tmp_path):
    """As TREC has them: in evaluation lines have a label, in prediction they are texts."""
    file = tmp_path / "trec.label"
    file.write_text("DESC How did it ?\nLOC Where is it ?\n", encoding="utf-8")
    trained = {"format": "tsv", "delimiter": " ", "label": ("1",), "text": ("2",)}
    read = read_for_model(file, "classification", ReadOptions(), trained)
    assert [(one.texts, one.label) for one in read.examples] == [
        (("How did it ?",), "DESC"),
        (("Where is it ?",), "LOC"),
    ]
    read = read_for_model(file, "classification", ReadOptions(labels="ignored"), trained)
    assert read.examples[0].texts == ("DESC How did it ?",)


def test_lines_of_text_have_no_columns(tmp_path):
    lines = tmp_path / "a.txt"
    lines.write_text("one text\nanother\n", encoding="utf-8")
    read = read_for_model(lines, "classification", ReadOptions(labels="ignored"), {"text": "satz"})
    assert [one.texts for one in read.examples] == [("one text",), ("another",)]
