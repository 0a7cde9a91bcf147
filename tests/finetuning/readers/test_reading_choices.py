"""Multiple choice: RACE's folders and lines, DREAM's and C3's lists, SWAG's table, and tables of users."""

import json

import pytest

from maskwright.core.errors import DataError
from maskwright.finetuning.examples import ChoiceExample
from maskwright.finetuning.readers import read_examples
from maskwright.finetuning.readers.options import ReadOptions
from maskwright.finetuning.readers.questions import read_choices

RACE = {
    "id": "high1.txt",
    "article": "Ada went to Paris.",
    "questions": ["Who _ ?", "Where?"],
    "options": [["Ada", "Bob", "Eve", "Joe"], ["Rome", "Paris"]],
    "answers": ["A", "B"],
}


def read(folder, text, options=ReadOptions(), name="a.json"):
    (folder / name).write_text(text, encoding="utf-8", newline="")
    return read_choices(folder / name, options)


def test_race_folders_are_read(tmp_path):
    for number, level in enumerate(["high", "middle"]):
        (tmp_path / "train" / level).mkdir(parents=True)
        record = RACE | {"id": f"{level}{number}.txt"}
        (tmp_path / "train" / level / f"{number}.txt").write_text(json.dumps(record, indent=number or None))
    file = read_choices(tmp_path / "train")
    assert [example.key for example in file.examples] == [
        "high0.txt-1",
        "high0.txt-2",
        "middle1.txt-1",
        "middle1.txt-2",
    ]
    assert file.examples[1] == ChoiceExample(
        key="high0.txt-2", context="Ada went to Paris.", question="Where?", options=("Rome", "Paris"), label=1
    )
    (tmp_path / "train" / "high" / "broken.txt").write_text("{")
    with pytest.raises(DataError, match=r"broken\.txt, line 1: not JSON"):
        read_choices(tmp_path / "train")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"holds no \.txt files"):
        read_choices(tmp_path / "empty")


def test_bad_questions_of_race_are_skipped(tmp_path):
    records = [
        RACE,
        RACE,
        RACE,
        RACE | {"answers": ["E", "ß"]},
        RACE | {"answers": ["A"]},
        RACE | {"options": [["Ada"], ["Rome", " "]]},
        {"article": "x"},
    ]
    file = read(tmp_path, "\n".join(map(json.dumps, records)), name="a.jsonl")
    assert [(skip.location.rpartition(", line ")[2], skip.reason) for skip in file.skipped] == [
        ("5", "2 questions, 2 lists of options, 1 answers"),
        ("7", "no text 'article' with lists 'questions' and 'options'"),
        ("4, question 1", "the answer is option 5 of 4"),
        ("4, question 2", "the answer 'ß' is none of the options"),
        ("6, question 1", "fewer than two options"),
        ("6, question 2", "an option is empty"),
    ]
    assert len(file.examples) == 6


def test_dream_and_c3_are_read(tmp_path):
    data = [
        [["M: Hi.", "W: Hello."], [{"question": "Who?", "choice": ["him", "her", "us"], "answer": "her"}], "1-2"],
        [
            ["文"],
            [
                {"question": "谁", "choice": ["他", "她"], "answer": "它"},
                {"question": "?", "choice": ["a", "a"], "answer": "a"},
            ],
            "3",
        ],
        [["x"], [{"question": name, "choice": ["b", "c"], "answer": "c"} for name in "qp"], "4"],
    ]
    file = read(tmp_path, json.dumps(data, indent=2).replace("\n", "\r\n"))
    assert file.examples[0] == ChoiceExample(
        key="1-2-1", context="M: Hi.\nW: Hello.", question="Who?", options=("him", "her", "us"), label=1
    )
    assert [skip.reason for skip in file.skipped] == [
        "the answer '它' is none of the options",
        "the answer 'a' is 2 of the options",
    ]


def test_swag_is_read(tmp_path):
    header = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n"
    text = header + '0,v,1,"He runs. He","He runs, fast.",He,gold,a,b,"c, d",e,2\n1,v,2,s,t,u,gold,a,b,c,d,0\n'
    named = ReadOptions(text="sent1", text2="sent2", choices=("ending0", "ending1", "ending2", "ending3"))
    file = read(tmp_path, text, named, "train.csv")
    assert file.examples[0] == ChoiceExample(
        key="2", context="He runs, fast.", question="He", options=("a", "b", "c, d", "e"), label=2
    )
    test = read(
        tmp_path, header.replace(",label", "") + "0,v,1,s,t,u,gold,a,b,c,d\n", named.replace(labels="if_there"), "t.csv"
    )
    assert test.examples[0].label is None


@pytest.mark.parametrize(("written", "label"), [("B", 1), ("b", 1), ("blau", 1), ("2", 1)])
def test_right_option_is_a_letter_a_number_or_itself(tmp_path, written, label):
    text = f"question,A,B,answer\nFarbe?,rot,blau,{written}\nUnd?,rot,grün,A\n"
    file = read(tmp_path, text, ReadOptions(choices=("A", "B")), "a.csv")
    assert file.examples[0].options == ("rot", "blau")
    assert file.examples[0].label == label


def test_records_list_their_options(tmp_path):
    record = {"passage": "p", "query": "q", "choices": ["x", "y"], "gold": 0}
    named = ReadOptions(text="passage", text2="query", choices="choices", label="gold")
    assert read(tmp_path, json.dumps(record), named, "a.jsonl").examples[0].label == 0
    with pytest.raises(DataError, match=r"no column 'golden' for the right option.*Did you mean 'gold'"):
        read(tmp_path, json.dumps(record), ReadOptions(label="golden"), "a.jsonl")
    with pytest.raises(
        DataError, match=r"has no column for the options, such as options, choices.*`--read choices=COLUMN`"
    ):
        read(tmp_path, "question,label\nq,1\n", name="a.csv")


def lines_of(rights, options=("w", "x", "y", "z")):
    records = [{"question": "q", "choices": list(options), "answer": right} for right in rights]
    return "\n".join(map(json.dumps, records))


@pytest.mark.parametrize(
    ("rights", "first", "labels"),
    [
        ([1, 4, 2], 1, [0, 3, 1]),
        ([1, 2], 1, [0, 1]),
        ([1, 0, 2], 0, [1, 0, 2]),
        (["4", None, "1"], 1, [3, None, 0]),
        ([4.0, 1.0], 1, [3, 0]),
        (["D", "A"], None, [3, 0]),
        (["z", "w"], None, [3, 0]),
    ],
)
def test_first_option_is_recognized_by_the_numbers(tmp_path, rights, first, labels):
    file = read(tmp_path, lines_of(rights), ReadOptions(labels="if_there"), "a.jsonl")
    assert [example.label for example in file.examples] == labels
    assert file.read_as.get("first_option") == first


def test_several_files_are_read_as_one(tmp_path):
    for name in ("m.jsonl", "d.jsonl"):
        (tmp_path / name).write_text(json.dumps(RACE), encoding="utf-8")
    file = read_examples([tmp_path / "m.jsonl", tmp_path / "d.jsonl"], "multiple_choice")
    keys = [example.key for example in file.examples]
    assert keys == ["m.jsonl:high1.txt-1", "m.jsonl:high1.txt-2", "d.jsonl:high1.txt-1", "d.jsonl:high1.txt-2"]
    with pytest.raises(DataError, match="no file was given"):
        read_examples([], "multiple_choice")
