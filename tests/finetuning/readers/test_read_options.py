"""Options of reading: as written on a command line, and as one file showed them for others of the same data."""

import json

import pytest

from maskwright.core.errors import DataError, RecipeError
from maskwright.finetuning.labeled import LabeledRequest, load_read_as, read_labeled, save_read_as
from maskwright.finetuning.readers.options import ReadOptions, to_keep, with_defaults, with_overrides
from maskwright.finetuning.readers.texts import read_texts
from maskwright.reporting.reporter import Reporter


@pytest.mark.parametrize(
    ("written", "field", "value"),
    [
        ("choices=A,B,C", "choices", ("A", "B", "C")),
        ("choices=['a, b', c]", "choices", ("a, b", "c")),
        ("label_columns=joy, fear", "label_columns", ("joy", "fear")),
        ("dropped_labels=[true]", "dropped_labels", ("true",)),
        ("label_names=[[0, neg], [1, pos]]", "label_names", (("0", "neg"), ("1", "pos"))),
        ("only=[[language, zh]]", "only", (("language", "zh"),)),
        ("text=[sentence, 4]", "text", ("sentence", "4")),
        ("delimiter= ", "delimiter", " "),
        ("delimiter=\t", "delimiter", "\t"),
        (r"delimiter=\t", "delimiter", "\t"),
        ('delimiter=";"', "delimiter", ";"),
    ],
)
def test_options_are_read_as_meant(tmp_path, written, field, value):
    options = with_overrides(ReadOptions(), {}, [written])
    assert getattr(options, field) == value
    kept = to_keep(options, {})
    save_read_as(tmp_path, kept)
    assert load_read_as(tmp_path) == kept


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("label_names=neg", "label_names: must be a list"),
        ("only=[[a, b, c]]", "at most 2 items"),
        ("delimiter=;;", "write one character"),
        ("delimiter=", "one character"),
        ("quotting=none", "unknown field 'quotting'.*Did you mean 'quoting'"),
        ("quoting=all", "'csv' or 'none'; found 'all'"),
    ],
)
def test_wrong_options_are_refused(written, message):
    with pytest.raises(RecipeError, match=message):
        with_overrides(ReadOptions(), {}, [written])


def test_options_override_what_a_file_showed():
    before = {"text": ("a",), "text2": "b", "label": "c", "quoting": "csv"}
    assert with_defaults(ReadOptions(), before) == ReadOptions(**before)
    requested = ReadOptions(text="x", quoting="none")
    assert with_defaults(requested, before) == ReadOptions(text="x", label="c", quoting="none")
    renamed = (("1", "good"),)
    assert to_keep(ReadOptions(label_names=renamed), {"text": "a"}) == {"label_names": renamed, "text": ("a",)}


def test_reading_json_is_stored_beside_the_model(tmp_path):
    assert load_read_as(tmp_path) == {}
    kept = {"text": ("satz",), "choices": ("a", "b"), "first_option": 1, "label_names": (("1", "gut"),)}
    save_read_as(tmp_path, kept)
    assert load_read_as(tmp_path) == kept


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"txt": 1}, r"reading\.json: txt: unknown field"),
        ({"first_option": 7}, r"reading\.json: first_option"),
        ({"only": 3}, r"reading\.json: only"),
    ],
)
def test_wrong_reading_json_is_refused(tmp_path, written, message):
    (tmp_path / "reading.json").write_text(json.dumps(written), encoding="utf-8")
    with pytest.raises(DataError, match=message):
        load_read_as(tmp_path)


def write(path, *lines):
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def labels_and_texts(train, dev, task="classification"):
    request = LabeledRequest.of(task=task, files={"train": train, "dev": dev}, columns={})
    labeled = read_labeled(request, {}, Reporter())
    return [
        [(*one.texts, one.label) for one in part.examples] for part in (labeled.parts["train"], labeled.parts["dev"])
    ]


def test_dev_files_are_read_as_the_training_file(tmp_path):
    train = write(tmp_path / "a.csv", "sentence,label", "ein Satz,gut", "noch einer,schlecht", "drei,gut", "vier,gut")
    # Guessed, this is a file of pairs.
    dev = write(tmp_path / "b.csv", "sentence1,sentence2,sentence,label", "a,b,e,gut", "c,d,f,schlecht")
    assert len(read_texts(dev, "classification").examples[0].texts) == 2
    assert labels_and_texts(train, dev)[1][0] == ("e", "gut")
    other = write(tmp_path / "c.csv", "text,label", "ein Satz,gut", "zwei,schlecht")
    with pytest.raises(DataError, match=r"no column 'sentence'.*read as the training file was"):
        labels_and_texts(train, other)
    train = write(tmp_path / "a.tsv", "text\tlabel", '"hi\ta', "x\tb")
    dev = write(tmp_path / "b.tsv", "text\tlabel", '"x ""z"\ta', '"y"\tb')
    assert read_texts(dev, "classification").examples[0].texts == ('x "z',)
    assert labels_and_texts(train, dev)[1][0] == ('"x ""z"', "a")
