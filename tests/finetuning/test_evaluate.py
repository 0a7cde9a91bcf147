"""Measuring and using a model: labels, pairs, places in texts of files."""

import io
import json

import pytest
import torch

from maskwright.core.errors import DataError, MaskwrightError
from maskwright.finetuning.evaluate import evaluate
from maskwright.finetuning.load import TaskModel
from maskwright.finetuning.metrics.scores import accuracy
from maskwright.finetuning.model.fine_tuned import build
from maskwright.finetuning.predict import predict
from maskwright.finetuning.predictions import plain
from maskwright.finetuning.tasks.multiple_choice import MultipleChoice
from maskwright.finetuning.tasks.question_answering import QuestionAnswering
from maskwright.finetuning.tasks.tagging import Tagging
from maskwright.finetuning.tasks.texts import Classification
from maskwright.inference.long_texts import TruncationWarning, UntrainedLength
from maskwright.reporting.reporter import Reporter
from tests.recording import Recorder


def saved(model, task, folder, *, names_task=True):
    """Put an untrained head on a model, and write it; without its task, as transformers does."""
    build(model, task, seed=3, max_length=32).save(folder)
    if not names_task:
        (folder / "task.json").unlink()
    return folder


def built(model, task, **settings):
    """Put an untrained head on a model, for predictions."""
    tuned = build(model, task, **settings)
    return TaskModel(
        name="tuned", tokenizer=tuned.tokenizer, encoder=tuned.encoder, max_length=tuned.max_length, fine_tuned=tuned
    )


def test_labels_are_named_by_hand_where_they_differ(bert_folder, tmp_path):
    file = tmp_path / "dev.tsv"
    lines = ["index\tsentence1\tsentence2\tlabel", "0\tthe cat\tthe dog\tentailment", "1\ta\tb\tnot_entailment"]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    out = saved(bert_folder, Classification(labels=("LABEL_0", "LABEL_1")), tmp_path / "out", names_task=False)
    with pytest.raises(DataError, match="label_names"):
        evaluate(out, file=file, reporter=Reporter())
    for names in (("LABEL_0", "LABEL_1"), ("LABEL_1", "LABEL_0")):
        read = f"label_names=[[entailment, {names[0]}], [not_entailment, {names[1]}]]"
        done = evaluate(out, file=file, read=[read], out=tmp_path / "x.jsonl", reporter=Reporter())
        values = [json.loads(line)["value"] for line in (tmp_path / "x.jsonl").read_text().splitlines()]
        assert (done.task, done.metrics) == ("classification", {"accuracy": accuracy(list(names), values)})


@pytest.mark.parametrize(
    ("name", "text", "location"),
    [
        ("dev.csv", "text,label\nx,a\ny,c\n", "line 3"),
        ("dev.csv", "id,text,label\n7,x,a\n8,y,c\n", "example 8"),
        ("dev.jsonl", '{"text": "x", "label": "a"}\n\n{"text": "y", "label": "c"}\n', "line 3"),
        ("dev.json", '[{"text": "x", "label": "a"}, {"text": "y", "label": "c"}]', "record 2"),
    ],
)
def test_an_unknown_label_is_located_by_line_or_id(bert_folder, tmp_path, name, text, location):
    (tmp_path / name).write_text(text, encoding="utf-8")
    model = built(bert_folder, Classification(labels=("a", "b")), seed=3, max_length=32)
    with pytest.raises(DataError, match=f"{name}, {location}: unknown label 'c'"):
        evaluate(model, file=tmp_path / name, reporter=Reporter())


def test_tags_that_training_lacks_are_named_and_count_as_missed(bert_folder, tmp_path):
    file = tmp_path / "dev.jsonl"
    file.write_text('{"tokens": ["the", "cat"], "tags": ["O", "B-FOO"]}\n' * 3, encoding="utf-8")
    task = Tagging(labels=("O", "B-PER"), entities=True, metrics=("recall",))
    with Recorder() as reporter:
        done = evaluate(built(bert_folder, task, seed=3, max_length=32), file=file, reporter=reporter)
    assert done.metrics == {"recall": 0}
    assert done.by_class["FOO"]["examples"] == 3
    assert reporter.on("file", "B-FOO 3")


def test_a_tuple_of_two_texts_is_a_pair_and_a_list_is_two(bert_folder, tmp_path):
    out = saved(bert_folder, Classification(labels=("a", "b")), tmp_path / "out")
    [pair] = predict(out, ("the cat", "the dog"), reporter=Reporter())
    [same] = predict(out, [("the cat", "the dog")], reporter=Reporter())
    assert pair == same
    assert len(predict(out, ["the cat", "the dog"], reporter=Reporter())) == 2
    tagger = saved(bert_folder, Tagging(labels=("O", "B-PER"), entities=True, metrics=("f1",)), tmp_path / "tagger")
    assert len(predict(tagger, ("the cat", "the dog"), reporter=Reporter())) == 2


def test_entities_of_files_are_placed_in_the_file_s_text(bert_folder, tmp_path):
    model = built(bert_folder, Tagging(labels=("I-X", "O"), entities=True, metrics=("f1",)), seed=3, max_length=32)
    with torch.no_grad():
        model.fine_tuned.get_parameter("head.output.bias")[0] = 1000.0  # every word is of one entity
    texts = ["  我 爱北京!", "the   cat,sat  on"]
    lines = tmp_path / "texts.txt"
    lines.write_text("\n".join(texts) + "\n", encoding="utf-8")
    records = tmp_path / "texts.jsonl"
    records.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    for actual in (
        predict(model, texts, reporter=Reporter()),
        predict(model, file=lines, reporter=Reporter()),
        predict(model, file=records, reporter=Reporter()),
    ):
        for text, one in zip(texts, actual, strict=True):
            [entity] = one.details["entities"]
            begin = len(text) - len(text.lstrip())
            assert (entity["start"], entity["end"], entity["text"]) == (begin, len(text), text.strip())
            assert "".join(one.details["words"]) == "".join(text.split())


def test_predictions_say_what_they_are_of(bert_folder, tmp_path):
    file = tmp_path / "pairs.csv"
    file.write_text("id,sentence1,sentence2\n7,the cat,the dog\n", encoding="utf-8")
    classes = built(bert_folder, Classification(labels=("a", "b")), seed=3, max_length=32)
    pairs = predict(classes, [("a", "b"), "the  cat"], file=file, reporter=Reporter())
    assert [one.input_text for one in pairs] == ["a | b", "the  cat", "the cat | the dog"]
    assert [one.key for one in pairs] == ["1", "2", "7"]
    assert "input_text" not in plain(pairs[0])
    questions = built(bert_folder, QuestionAnswering(), seed=3, max_length=32)
    inputs = {"question": "who ran ?", "context": "the dog ran"}
    assert [one.input_text for one in predict(questions, [inputs], reporter=Reporter())] == ["who ran ?"]
    choices = built(bert_folder, MultipleChoice(), seed=3, max_length=32)
    options = {"context": "the dog ran", "options": ["a", "b"]}
    both = predict(choices, [{**options, "question": "who ?"}, options], reporter=Reporter())
    assert [one.input_text for one in both] == ["who ?", "the dog ran"]


def test_predictions_say_what_was_truncated_and_windows_read_all(bert_folder):
    model = built(bert_folder, Classification(labels=("a", "b")), seed=3, max_length=32)
    texts = ["the cat", "the dog ran " * 30]
    with pytest.warns(TruncationWarning, match=r"1 of 2 texts have more than 32 tokens.*texts 2.*--windows"):
        truncated = predict(model, texts, reporter=Reporter())
    assert [one.truncated for one in truncated] == [False, True]
    whole = predict(model, texts, windows=True, reporter=Reporter())
    assert [one.truncated for one in whole] == [False, False]
    assert whole[0].score == pytest.approx(truncated[0].score, abs=1e-6)
    assert whole[1].score != truncated[1].score
    labeled = [{"text": text, "label": "a"} for text in texts]
    counts = [evaluate(model, file=labeled, windows=read, reporter=Reporter()).truncated for read in (False, True)]
    assert counts == [1, 0]
    with pytest.warns(TruncationWarning, match="more than 16 tokens"):
        predict(model, texts, max_length=16, reporter=Reporter())
    with pytest.warns(UntrainedLength, match="up to 32 tokens"):
        predict(model, texts[:1], max_length=40, reporter=Reporter())
    choices = built(bert_folder, MultipleChoice(), seed=3, max_length=32)
    options = {"context": "the dog ran", "options": ["a", "b"]}
    with pytest.raises(MaskwrightError, match="multiple choice"):
        predict(choices, [options], windows=True, reporter=Reporter())


def test_truncated_questions_and_words_are_named_as_such(bert_folder, roberta_folder):
    questions = built(bert_folder, QuestionAnswering(max_query_length=4), seed=3, max_length=32)
    inputs = {"question": "who ran to the tree ?", "context": "the dog ran " * 30}
    with pytest.warns(TruncationWarning, match="a question of more than 4 tokens"):
        assert predict(questions, [inputs], reporter=Reporter())[0].truncated
    tagger = built(roberta_folder, Tagging(labels=("O", "X")), seed=3, max_length=8)
    with pytest.warns(TruncationWarning, match="a word of more than 6 tokens"):
        actual = predict(tagger, ["dog " * 30, "dog" * 30], reporter=Reporter())
    assert [one.truncated for one in actual] == [False, True]


def test_pairs_are_refused_by_a_model_of_single_texts(bert_folder, tmp_path):
    out = saved(bert_folder, Classification(labels=("gut", "schlecht")), tmp_path / "out")
    assert len(predict(out, ["the cat", ("the cat", "the dog")], reporter=Reporter())) == 2  # its folder tells nothing
    (out / "reading.json").write_text('{"text": "satz", "label": "urteil"}', encoding="utf-8")
    with pytest.raises(
        DataError,
        match=r"input 2: pairs of texts, but this model was trained on single texts.*with a file, add `--text",
    ):
        predict(out, ["the cat", ("the cat", "the dog")], reporter=Reporter())
    file = tmp_path / "pairs.csv"
    file.write_text("sentence1,sentence2,y\nthe cat,the dog,gut\na cat,a dog,schlecht\n", encoding="utf-8")
    for use in (predict, evaluate):
        with pytest.raises(DataError, match=r"pairs\.csv has no column 'satz'.*read as the training file was"):
            use(out, file=file, reporter=Reporter())
    assert [one.input_text for one in predict(out, file=file, text="sentence2", reporter=Reporter())] == [
        "the dog",
        "a dog",
    ]


@pytest.mark.parametrize(
    ("task", "inputs", "location"),
    [
        (Classification(labels=("a", "b")), ["the cat", "a \ud83d"], "input 2: lone surrogate at position 3"),
        (Classification(labels=("a", "b")), [("the cat", "sch\udcf6n")], "input 1: lone surrogate at position 4"),
        (MultipleChoice(), [{"context": "who ?", "options": ["a", "\ud83d"]}], "input 1: lone surrogate"),
    ],
)
def test_surrogates_are_refused_with_their_position(bert_folder, task, inputs, location):
    with pytest.raises(DataError, match=location):
        predict(built(bert_folder, task, seed=3, max_length=32), inputs, reporter=Reporter())


def test_standard_input_is_read_like_a_file(bert_folder, tmp_path, monkeypatch):
    model = built(bert_folder, Classification(labels=("a", "b")), seed=3, max_length=32)
    file = tmp_path / "texts.csv"
    file.write_text("text\nthe dog\n", encoding="utf-8")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbfthe cat\n\nsch\xc3\xb6n\n")))
    predictions = predict(model, "a word", file=["-", file], reporter=Reporter())
    assert [(one.key, one.input_text) for one in predictions] == [
        ("input:1", "a word"),
        ("standard input:1", "the cat"),
        ("standard input:3", "schön"),
        ("texts.csv:2", "the dog"),
    ]
