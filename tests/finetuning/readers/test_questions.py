"""Questions about texts: offsets of answers, and the layouts of SQuAD, CMRC and tables."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.core.errors import DataError
from maskwright.finetuning.examples import Answer, QuestionExample
from maskwright.finetuning.readers.options import ReadOptions
from maskwright.finetuning.readers.questions import read_questions

CONTEXT = "Ada 😀 wrote notes. Ada died in London."


def squad(*qas, context=CONTEXT):
    return {"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": context, "qas": list(qas)}]}]}


def qa(key, *answers, **more):
    written = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": key, "question": f"{key}?", "answers": written, **more}


def read(folder, data, options=ReadOptions(), name="a.json"):
    text = data if isinstance(data, str) else json.dumps(data)
    (folder / name).write_text(text, encoding="utf-8", newline="")
    return read_questions(folder / name, options)


def test_squad_is_read(tmp_path):
    data = squad(
        qa("a", ("Ada", 0), ("wrote", 6)), qa("b", is_impossible=True), qa("c", ("London", 31), is_impossible="false")
    )
    file = read(tmp_path, data)
    assert file.examples[0] == QuestionExample(
        key="a", question="a?", context=CONTEXT, answers=(Answer(text="Ada", start=0), Answer(text="wrote", start=6))
    )
    assert [(example.key, example.is_impossible) for example in file.examples] == [
        ("a", False),
        ("b", True),
        ("c", False),
    ]
    assert (file.skipped, file.notes) == ((), ())


def test_wrong_answer_positions_are_corrected_and_counted(tmp_path):
    data = squad(
        qa("near", ("notes", 14)),
        qa("far", ("Ada", 12)),
        qa("elsewhere", ("Ada", 400)),
        qa("none", ("Byron", 3)),
        qa("minus", ("wrote", -1)),
        qa("spaces", (" London ", 31)),
    )
    file = read(tmp_path, data)
    assert [example.answers[0] for example in file.examples] == [
        Answer(text="notes", start=12),
        Answer(text="Ada", start=19),
        Answer(text="Ada", start=19),
        Answer(text="Byron", start=None),
        Answer(text="wrote", start=6),
        Answer(text="London", start=31),
    ]
    assert file.notes == (
        "5 answers are not at their offset, or have none; the nearest occurrence is read",
        "1 answers do not occur in their context: they are used for scoring, not for training",
    )


@given(st.text("ab", min_size=1, max_size=30), st.text("ab", min_size=1, max_size=3), st.integers(-1, 40))
def test_answer_is_the_nearest_occurrence(context, text, start):
    starts = [index for index in range(len(context)) if context.startswith(text, index)]
    nearest = min(starts, key=lambda index: (abs(index - max(start, 0)), index), default=None)
    with TemporaryDirectory() as folder:
        file = read(Path(folder), squad(qa("q", (text, start)), context=context))
    assert file.examples[0].answers == (Answer(text=text, start=nearest),)
    assert (file.notes == ()) == (nearest == start)


def test_questions_that_cannot_be_used_are_skipped(tmp_path):
    data = squad(
        *(qa(f"good{n}", ("Ada", 0)) for n in range(6)),
        qa("no answers"),
        qa("odd", ("Ada", 0), is_impossible=True),
        {"id": "textless", "question": "?", "answers": [{"answer_start": 3}]},
    )
    data["data"].append({"paragraphs": [{"context": "x \ud83d", "qas": [qa("half", ("x", 0))]}, {"qas": "none"}]})
    data["data"].append("article")
    file = read(tmp_path, data)
    assert len(file.examples) == 6
    reasons = {skip.location.rpartition(", ")[2]: skip.reason for skip in file.skipped}
    assert reasons == {
        "question no answers": "no answer, and not marked as impossible",
        "question odd": "marked as impossible, but with answers",
        "question textless": "an answer without text",
        "question half": "lone surrogate at position 3 of the text (broken UTF-8)",
        "paragraph 2": "no text 'context' with a list of questions 'qas'",
        "record 3": "not a JSON object but str",
    }


def test_files_without_answers_read_for_prediction(tmp_path):
    data = squad({"id": "a", "question": "who?"}, {"id": "b", "question": "", "answers": []})
    with pytest.raises(DataError, match="2 of 2 rows cannot be read"):
        read(tmp_path, data)
    file = read(tmp_path, data, ReadOptions(labels="if_there"))
    assert [example.answers for example in file.examples] == [(), ()]
    answered = read(tmp_path, squad(qa("a", ("Ada", 7))), ReadOptions(labels="ignored"))
    assert (answered.examples[0].answers, answered.notes) == ((), ())


def test_tables_of_questions_are_read(tmp_path):
    answered = {"id": "a", "context": CONTEXT, "question": "who?", "answers": {"text": ["Ada"], "answer_start": [19]}}
    unanswered = {"id": "b", "context": CONTEXT, "question": "why?", "answers": {"text": [], "answer_start": []}}
    file = read(tmp_path, f"{json.dumps(answered)}\n{json.dumps(unanswered)}\n", name="a.jsonl")
    assert [(example.key, example.answers, example.is_impossible) for example in file.examples] == [
        ("a", (Answer(text="Ada", start=19),), False),
        ("b", (), True),
    ]
    named = ReadOptions(text="Frage", text2="Absatz", label="Antwort")
    table = read(
        tmp_path, "Frage;Absatz;Antwort\nWo?;Sie lebt in Köln.;Köln\nWer?;Sie lebt in Köln.;\n", named, "a.csv"
    )
    assert table.examples[0].answers == (Answer(text="Köln", start=12),)
    assert table.skipped[0].reason == "no answer, and not marked as impossible"
    with pytest.raises(DataError, match=r"no column 'Absats' for the context.*Did you mean 'Absatz'"):
        read(tmp_path, "Frage;Absatz\nWo?;In Köln.\n", ReadOptions(text="Frage", text2="Absats"), "b.csv")
