"""`maskwright predict`: a table of texts with what is said of them."""

import json
from typing import Any

import pytest

from maskwright.finetuning import predict as predict_module
from maskwright.finetuning.tasks.base import Prediction
from tests.cli.conftest import Run

LONG = "the cat " * 30 + "\n sat"


@pytest.fixture
def fake_predict(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that says the same of everything."""

    def predict(model: str, inputs: list[str], **options: Any) -> list[Prediction]:
        details = {"probabilities": {"good": 0.875, "bad": 0.125}}
        texts = ("short", LONG, "我爱北京" * 30)
        return [
            Prediction(key=str(number), value="good", score=0.875, details=details, input_text=text)
            for number, text in enumerate(texts, start=2)
        ]

    monkeypatch.setattr(predict_module, "predict", predict)


@pytest.mark.usefixtures("fake_predict")
def test_the_table_shows_texts_in_short_and_no_numbers_of_rows(tmp_path, monkeypatch, run):
    monkeypatch.setenv("COLUMNS", "200")  # Chinese characters are two columns wide.
    file = tmp_path / "texts.csv"
    file.write_text("text\nany\n", encoding="utf-8")
    rows = [line.split(maxsplit=2) for line in run("predict", "model", file)[1].splitlines() if "%" in line]
    assert [row[:2] for row in rows] == [["87.5%", "good"]] * 3
    short, long, chinese = (row[2].rstrip() for row in rows)
    assert short == "short"
    assert long == " ".join(LONG.split())[:76].rstrip() + " ..."
    assert chinese == "我爱北京" * 19 + " ..."


@pytest.mark.usefixtures("fake_predict")
def test_json_holds_neither_the_text_nor_anything_new(run: Run) -> None:
    code, out, _ = run("predict", "model", "--file", "texts.csv", "--json")
    assert code == 0
    assert [set(one) for one in json.loads(out)] == [{"key", "value", "score", "details", "truncated"}] * 3
