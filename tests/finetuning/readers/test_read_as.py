"""What one file showed holds for the others of the same data."""

import json
from pathlib import Path

import pytest

from maskwright.core.errors import DataError
from maskwright.finetuning.labeled import LabeledRequest, read_labeled
from maskwright.finetuning.readers import ReadOptions, read_examples, to_keep, with_defaults
from maskwright.finetuning.readers.texts import read_texts
from maskwright.training.reporting import Silent


def written(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def parts(train: Path, dev: Path, task: str = "classification", **columns: str) -> list[list[object]]:
    request = LabeledRequest.of(task=task, files={"train": train, "dev": dev}, columns=columns)
    labeled = read_labeled(request, {}, Silent())
    return [[(one.texts, one.label) for one in part.examples] for part in (labeled.train, labeled.dev)]


def test_the_text_is_that_of_the_training_file(tmp_path: Path) -> None:
    train = written(tmp_path / "a.csv", "satz,label", "ein Satz,gut", "noch einer,schlecht", "drei,gut", "vier,gut")
    # By itself this one would be a file of pairs.
    dev = written(tmp_path / "b.csv", "s1,s2,satz,label", "a,b,e,gut", "c,d,f,schlecht")
    assert len(read_texts(dev, "classification").examples[0].texts) == 2
    _, found = parts(train, dev)
    assert found[0] == (("e",), "gut")


def test_quotes_are_those_of_the_training_file(tmp_path: Path) -> None:
    train = written(tmp_path / "a.tsv", "text\tlabel", 'he said "hi\ta', "x\tb")
    dev = written(tmp_path / "b.tsv", "text\tlabel", '"x ""z"\ta', '"y"\tb')
    assert read_texts(dev, "classification").examples[0].texts == ('x "z',)
    _, found = parts(train, dev)
    assert found[0] == (('"x ""z"',), "a")


def test_a_file_without_the_training_file_s_column_is_refused_and_told(tmp_path: Path) -> None:
    train = written(
        tmp_path / "a.csv", "satz,urteil", "ein Satz,gut", "zwei Sätze,schlecht", "drei,gut", "vier,schlecht"
    )
    dev = written(tmp_path / "b.csv", "text,label", "ein Satz,gut", "zwei,schlecht")
    with pytest.raises(DataError, match=r"no column 'satz'.*read as the training file was: .*text=satz"):
        parts(train, dev)


def test_right_options_are_numbered_as_in_the_training_file(tmp_path: Path) -> None:
    def lines(*rights: int) -> list[str]:
        return [json.dumps({"question": "q", "choices": ["x", "y", "z"], "answer": right}) for right in rights]

    train = written(tmp_path / "a.jsonl", *lines(1, 3, 2))
    dev = written(tmp_path / "b.jsonl", *lines(1, 2))
    request = LabeledRequest.of(task="multiple-choice", files={"train": train, "dev": dev}, columns={})
    labeled = read_labeled(request, {}, Silent())
    assert [one.label for one in labeled.dev.examples] == [0, 1]
    assert labeled.read_as["first_option"] == 1


def test_files_read_as_one_are_read_alike(tmp_path: Path) -> None:
    one = written(tmp_path / "a.jsonl", '{"question": "q", "choices": ["x", "y"], "answer": 2}')
    two = written(tmp_path / "b.jsonl", '{"question": "q", "choices": ["x", "y"], "answer": 1}')
    assert [each.label for each in read_examples([one, two], "multiple_choice").examples] == [1, 0]


def test_what_is_said_outweighs_what_was_seen() -> None:
    before = {"text": "a", "text2": "b", "label": "c", "header": "first_line", "quoting": "csv"}
    assert with_defaults(ReadOptions(), before) == ReadOptions(**before)
    said = ReadOptions(text="x", quoting="none")
    assert with_defaults(said, before) == ReadOptions(text="x", label="c", quoting="none")
    assert to_keep(ReadOptions(label_names=(("1", "good"),)), {"text": "a"}) == {
        "label_names": (("1", "good"),),
        "text": "a",
    }


def test_a_named_label_is_never_the_text(tmp_path: Path) -> None:
    file = written(tmp_path / "a.csv", "text,body", *["good news,a", "bad news,b"] * 3)
    assert read_texts(file, "classification", ReadOptions(label="text")).examples[0].texts == ("a",)
    pairs = written(tmp_path / "b.csv", "question,sentence,text", "a,b,c c", "d,e,f f")
    assert read_texts(pairs, "classification", ReadOptions(label="question")).examples[0].texts == ("c c",)
    with pytest.raises(DataError, match="'text' is named as the text and as the label"):
        read_texts(file, "classification", ReadOptions(text="text", label="text"))


@pytest.mark.parametrize("delimiter", [";;", '"', "\n"])
def test_what_is_no_delimiter_is_refused(tmp_path: Path, delimiter: str) -> None:
    file = written(tmp_path / "a.csv", "text,label", "x,y")
    with pytest.raises(DataError, match="cannot separate columns"):
        read_texts(file, "classification", ReadOptions(delimiter=delimiter))


def test_words_of_conll_stand_where_they_stood_in_training(tmp_path: Path) -> None:
    train = written(tmp_path / "a.conll", "EU\tNNP\tB-ORG", "rises\tVBZ\tO", "")
    read_as = read_examples(train, "tagging").read_as
    assert read_as == {"text": "1", "label": "3"}
    test = written(tmp_path / "b.conll", "EU\tNNP", "rises\tVBZ", "")
    options = with_defaults(ReadOptions(labels="if_there"), read_as)
    assert [one.tags for one in read_examples(test, "tagging", options).examples] == [None]
