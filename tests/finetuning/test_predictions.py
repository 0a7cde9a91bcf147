"""Predictions as DataFrames and files."""

import csv
import json

import pytest

from maskwright.core.errors import DataError, RecipeError
from maskwright.finetuning.predictions import Predictions, check_output, write_predictions
from maskwright.finetuning.results import Evaluation, Results, SeedRow
from maskwright.finetuning.tasks import task_named
from maskwright.finetuning.tasks.base import Prediction, unmapped_label

MADE = Predictions(
    [
        Prediction(key="1", value="good", score=0.75, details={"probabilities": {"good": 0.75}}, input_text='a "b", c'),
        Prediction(key="2", value=["joy", "fear"], score=None, details={}, truncated=True, input_text="two\nlines"),
    ]
)


@pytest.mark.parametrize(("name", "delimiter"), [("p.csv", ","), ("p.TSV", "\t")])
def test_predictions_are_written_as_a_table_if_the_name_says_so(tmp_path, name, delimiter):
    write_predictions(tmp_path / name, MADE)
    with open(tmp_path / name, encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter=delimiter))
    assert rows == [
        ["key", "input", "value", "score", "truncated"],
        ["1", 'a "b", c', "good", "0.75", "False"],
        ["2", "two\nlines", "joy|fear", "", "True"],
    ]


def test_predictions_are_written_as_json_lines_otherwise(tmp_path):
    write_predictions(tmp_path / "p.jsonl", MADE)
    lines = (tmp_path / "p.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert [(row["value"], row["truncated"]) for row in rows] == [("good", False), (["joy", "fear"], True)]


def test_other_names_of_files_are_refused_before_any_work(tmp_path):
    check_output(tmp_path / "p.csv")
    with pytest.raises(DataError, match=r"\.jsonl, \.csv or \.tsv"):
        check_output(tmp_path / "p.xlsx")


def test_predictions_results_and_evaluations_are_dataframes():
    frame = MADE.to_pandas()
    assert list(frame.columns) == ["key", "input", "value", "score", "truncated", "details"]
    assert frame["value"].tolist() == ["good", ["joy", "fear"]]
    rows = tuple(SeedRow(seed=seed, steps=5, best_epoch=1.0, dev={"accuracy": 0.5}, seconds=2.0) for seed in (0, 1))
    results = Results(task="classification", kind="classification", model="m", data={}, settings={}, rows=rows)
    frame = results.to_pandas()
    assert (frame["dev_accuracy"].tolist(), frame["seconds"].tolist()) == ([0.5, 0.5], [2.0, 2.0])
    evaluation = Evaluation(
        model="m",
        task="classification",
        file="f.csv",
        examples=4,
        skipped=1,
        truncated=0,
        precision="fp32",
        metrics={"accuracy": 0.75},
        by_class={"pos": {"f1": 0.5}},
        confusion={},
    )
    [row] = evaluation.to_pandas().to_dict("records")
    assert row == {
        "model": "m",
        "task": "classification",
        "file": "f.csv",
        "examples": 4,
        "skipped": 1,
        "truncated": 0,
        "precision": "fp32",
        "accuracy": 0.75,
    }


@pytest.mark.parametrize(
    ("label", "meant"), [("0", "positive"), ("1", "negative"), ("negativ", "negative"), ("2", "LABEL"), ("x", "LABEL")]
)
def test_the_hint_maps_numbers_by_index_and_never_guesses_another_class(label, meant):
    error = unmapped_label("3", label, ("positive", "negative"))
    assert f'label_names=[["{label}", "{meant}"]]' in str(error)


@pytest.mark.parametrize(("name", "kind"), [("ner", "tagging"), ("text_classification", "classification")])
def test_names_of_other_libraries_are_explained(name, kind):
    with pytest.raises(RecipeError, match=f"Did you mean '{kind}'"):
        task_named(name)
