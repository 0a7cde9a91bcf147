"""Questions about texts: where answers stand, and the layouts of SQuAD, CMRC and tables."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.core.errors import DataError
from maskwright.finetuning.examples import Answer, ExampleFile, QuestionExample
from maskwright.finetuning.readers import ReadOptions, read_questions
from maskwright.finetuning.readers.questions import AnswerCounts, WrittenAnswer, offset_unit, place_answer

CONTEXT = "Ada 😀 wrote notes. Ada died in London."


def squad(*qas: dict[str, Any], context: str = CONTEXT) -> dict[str, Any]:
    return {"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": context, "qas": list(qas)}]}]}


def qa(key: str, *answers: tuple[str, int], **more: Any) -> dict[str, Any]:
    written = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": key, "question": f"{key}?", "answers": written, **more}


def read(
    folder: Path, data: object, options: ReadOptions = ReadOptions(), name: str = "a.json"
) -> ExampleFile[QuestionExample]:
    text = data if isinstance(data, str) else json.dumps(data)
    (folder / name).write_text(text, encoding="utf-8", newline="")
    return read_questions(folder / name, options)


def test_squad_is_read(tmp_path: Path) -> None:
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


def test_wrong_places_are_found_again_and_counted(tmp_path: Path) -> None:
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
        "3 answers do not stand where the file says, but within 20 characters of it, and are taken there "
        "(first: question near)",
        "1 answers do not stand where the file says; the nearest place where they stand is taken "
        "(first: question elsewhere)",
        "1 answers came without their place; the first place where they stand is taken (first: question minus)",
        "1 answers stand nowhere in their context: they can be scored, but not learnt from (first: question none)",
    )


@pytest.mark.parametrize(
    ("unit", "codec", "width"),
    [("code points", "utf-32-le", 4), ("UTF-16 units", "utf-16-le", 2), ("UTF-8 bytes", "utf-8", 1)],
)
def test_unit_of_places_is_told_and_said(tmp_path: Path, unit: str, codec: str, width: int) -> None:
    words = ["Ada", "wrote", "notes", "died", "London"]
    places = [CONTEXT.index(word) for word in words]
    written = [len(CONTEXT[:place].encode(codec)) // width for place in places]
    data = squad(*(qa(word, (word, start)) for word, start in zip(words, written, strict=True)))
    file = read(tmp_path, data)
    assert [example.answers[0].start for example in file.examples] == places
    expected = () if unit == "code points" else (f"places of answers are counted in {unit} and turned into characters",)
    assert file.notes == expected


@given(st.lists(st.text(st.sampled_from("ab é中😀"), min_size=1, max_size=12), min_size=1, max_size=5), st.data())
def test_answers_at_right_places_stay_there(contexts: list[str], data: st.DataObject) -> None:
    pairs = []
    for context in contexts:
        start = data.draw(st.integers(0, len(context) - 1))
        end = data.draw(st.integers(start + 1, len(context)))
        pairs.append((context, WrittenAnswer(context[start:end], start)))
    assert offset_unit(pairs) == "code points"
    counts = AnswerCounts()
    for context, written in pairs:
        assert place_answer(context, written, "code points", counts, "q").start == written.start
    assert counts.notes() == ()


@given(st.text("ab", max_size=30), st.text("ab", min_size=1, max_size=3), st.integers(-1, 40))
def test_found_answer_is_the_nearest(context: str, text: str, start: int) -> None:
    places = [place for place in range(len(context)) if context.startswith(text, place)]
    nearest = min(places, key=lambda place: (abs(place - max(start, 0)), place), default=None)
    found = place_answer(context, WrittenAnswer(text, start), "code points", AnswerCounts(), "q")
    assert found == Answer(text=text, start=nearest)


def test_questions_that_cannot_be_used_are_skipped(tmp_path: Path) -> None:
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
    reasons = {skip.place.rpartition(", ")[2]: skip.reason for skip in file.skipped}
    assert reasons == {
        "question no answers": "no answer, and not said to be impossible",
        "question odd": "said to be impossible, yet with answers",
        "question textless": "an answer without text",
        "question half": "half a character in question, context or answer (broken UTF-8 or a lone surrogate)",
        "paragraph 2": "no list of questions 'qas'",
        "article 3": "not a JSON object",
    }


def test_files_without_answers_read_for_prediction(tmp_path: Path) -> None:
    data = squad({"id": "a", "question": "who?"}, {"id": "b", "question": "", "answers": []})
    with pytest.raises(DataError, match="2 of 2 rows cannot be read"):
        read(tmp_path, data)
    file = read(tmp_path, data, ReadOptions(labels="if_there"))
    assert [example.answers for example in file.examples] == [(), ()]
    assert "1 questions are empty texts (first: b)" in file.notes[0]
    answered = read(tmp_path, squad(qa("a", ("Ada", 7))), ReadOptions(labels="ignored"))
    assert (answered.examples[0].answers, answered.notes) == ((), ())


def test_own_layout_of_cmrc_is_read(tmp_path: Path) -> None:
    data = [
        {
            "context_id": "T",
            "context_text": "她在北京。",
            "qas": [{"query_id": "T_0", "query_text": "哪", "answers": ["北京"]}],
        }
    ]
    file = read(tmp_path, data)
    assert file.examples[0] == QuestionExample(
        key="T_0", question="哪", context="她在北京。", answers=(Answer(text="北京", start=2),)
    )
    assert "came without their place" in file.notes[0]


def test_tables_of_questions_are_read(tmp_path: Path) -> None:
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
    assert table.skipped[0].reason == "no answer, and not said to be impossible"
    with pytest.raises(DataError, match=r"no column 'Absats' for the context.*Did you mean 'Absatz'"):
        read(tmp_path, "Frage;Absatz\nWo?;In Köln.\n", ReadOptions(text="Frage", text2="Absats"), "b.csv")


def test_what_is_no_squad_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.json, line 2, column 1: not JSON"):
        read(tmp_path, '{"data":\n')
    with pytest.raises(DataError, match="is not in the layout of SQuAD"):
        read(tmp_path, {"articles": []}, ReadOptions(format="squad"))
