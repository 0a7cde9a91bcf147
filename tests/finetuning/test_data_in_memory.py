"""Tables in memory are fine-tuned on, evaluated and predicted as their files are."""

import warnings

import pandas as pd
import pytest
import toy_tasks
from toy_tasks import QUICK

from maskwright.core.errors import DataError, MaskwrightError
from maskwright.finetuning.evaluate import evaluate
from maskwright.finetuning.examples import ChoiceExample, QuestionExample
from maskwright.finetuning.finetune import finetune
from maskwright.finetuning.labeled import LabeledRequest
from maskwright.finetuning.predict import predict
from maskwright.finetuning.readers import read_examples
from maskwright.reporting.reporter import Reporter


def test_rows_in_memory_are_the_examples_of_their_file(tmp_path):
    path = toy_tasks.texts(tmp_path)
    from_file = read_examples(path, "classification")
    frame = pd.read_csv(path)
    for data in (frame, frame.to_dict(orient="records")):
        in_memory = read_examples(data, "classification")
        assert [(one.texts, one.label) for one in in_memory.examples] == [
            (one.texts, one.label) for one in from_file.examples
        ]
    # A run records the fingerprint: the same rows resume it, others do not.
    records = frame.to_dict(orient="records")
    fingerprint = read_examples(frame, "classification").fingerprint
    assert read_examples(records, "classification").fingerprint == fingerprint
    assert read_examples(records[::-1], "classification").fingerprint != fingerprint
    with pytest.raises(DataError, match=r"DataFrame\), record 2: no label|rows cannot be read; no label"):
        read_examples([{"text": "a", "label": None}] * 2, "classification")


def test_nested_and_listed_records_of_other_tasks_are_read():
    squad = [{"question": "Who?", "context": "A cat sat.", "answers": {"text": ["cat"], "answer_start": [2]}}]
    (question,) = read_examples(squad, "question_answering").examples
    assert isinstance(question, QuestionExample)
    assert question.answers[0].start == 2
    race = [{"article": "a", "question": "b", "options": ["c", "d"], "answer": "B"}]
    (choice,) = read_examples(race, "multiple_choice").examples
    assert isinstance(choice, ChoiceExample)
    assert choice.label == 1
    tagged = [{"tokens": ["Ada", "ran"], "ner_tags": ["B-PER", "O"]}]
    assert read_examples(tagged, "tagging").examples[0].tags == ("B-PER", "O")


@pytest.mark.parametrize("wrong", [7, ["a.csv", {"text": "a"}], {"text": ["a"]}, b"text", object()])
def test_other_data_is_refused_with_what_is_allowed(wrong):
    with pytest.raises(DataError, match=r"train is a .*a DataFrame of pandas"):
        LabeledRequest.of(task="classification", files={"train": wrong}, columns={})


@pytest.mark.slow
def test_a_run_on_data_in_memory_resumes_on_the_same_rows_only(bert_folder, tmp_path):
    frame = pd.read_csv(toy_tasks.texts(tmp_path, rows=16))
    arguments = {"task": "classification", "out": tmp_path / "out", "device": "cpu", "reporter": Reporter()}
    settings = (*QUICK, "epochs=1", "batch_size=16")
    done = finetune(bert_folder, train=frame, set=settings, **arguments)
    again = finetune(bert_folder, train=frame.to_dict(orient="records"), set=settings, **arguments)
    assert again.results.rows == done.results.rows
    changed = frame.assign(label=[*frame["label"][1:], "feline"])
    with pytest.raises(MaskwrightError, match="data"):
        finetune(bert_folder, train=changed, set=settings, **arguments)

    path = tmp_path / "texts.csv"
    quiet = {"device": "cpu", "reporter": Reporter()}
    assert (
        evaluate(tmp_path / "out", file=frame, **quiet).metrics
        == evaluate(tmp_path / "out", file=path, **quiet).metrics
    )
    from_file = [one.value for one in predict(tmp_path / "out", file=path, **quiet)]
    with warnings.catch_warnings(action="ignore"):
        from datasets import Dataset
    for data in (frame, frame[["text"]].to_dict(orient="records"), Dataset.from_pandas(frame[["text"]])):
        assert [one.value for one in predict(tmp_path / "out", data, **quiet)] == from_file
    with pytest.raises(DataError, match="input 1 is not what a model for classification takes"):
        predict(tmp_path / "out", 7, **quiet)
