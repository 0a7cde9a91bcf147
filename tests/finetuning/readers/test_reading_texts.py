"""Texts and pairs with labels: GLUE's files as published, and whatever users bring."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maskwright.core.errors import DataError
from maskwright.finetuning.examples import ExampleFile, TextExample
from maskwright.finetuning.readers import ReadOptions, TextKind, read_examples, read_texts

GLUE = ReadOptions(format="tsv", quoting="none")


def read(
    folder: Path, name: str, text: str, kind: TextKind = "classification", options: ReadOptions = ReadOptions()
) -> ExampleFile[TextExample]:
    path = folder / name
    path.write_text(text, encoding="utf-8", newline="")
    return read_texts(path, kind, options)


def rows(file: ExampleFile[TextExample]) -> list[tuple[object, ...]]:
    return [(*example.texts, example.label) for example in file.examples]


def reasons(file: ExampleFile[TextExample]) -> list[tuple[str, str]]:
    return [(skip.place.rpartition(", ")[2], skip.reason) for skip in file.skipped]


def test_newcomers_csv_works_at_the_first_try(tmp_path: Path) -> None:
    text = "Satz;Gefühl\n" + 'Das ist schön 😀;gut\n这本书很好。;gut\n"Na; ja, ""toll""";schlecht\n' * 3
    file = read(tmp_path, "meinung.csv", text)
    assert rows(file)[:3] == [
        ("Das ist schön 😀", "gut"),
        ("这本书很好。", "gut"),
        ('Na; ja, "toll"', "schlecht"),
    ]
    assert not file.skipped
    assert file.notes == (
        "semicolons separate the columns",
        "double quotes enclose texts, as in CSV",
        "the first line names the columns: Satz, Gefühl",
        "column 'Satz' is taken as the text",
        "column 'Gefühl' is taken as the label",
    )


def test_quotes_of_glue_are_characters(tmp_path: Path) -> None:
    text = '﻿Quality\t#1 ID\t#1 String\t#2 String\r\n1\t7\t" Never closed .\tHe said " no " .\r\n0\t8\t"a"\tb\r\n'
    named = ReadOptions(quoting="none", text="#1 String", text2="#2 String", label="Quality")
    file = read(tmp_path, "train.tsv", text, options=named)
    assert rows(file) == [('" Never closed .', 'He said " no " .', "1"), ('"a"', "b", "0")]
    assert [example.key for example in file.examples] == ["2", "3"]
    assert rows(read(tmp_path, "guessed.tsv", text, options=ReadOptions(text="#1 String", label="Quality"))) == [
        ('" Never closed .', "1"),
        ('"a"', "0"),
    ]


def test_columns_without_header_are_called_by_number(tmp_path: Path) -> None:
    cola = ReadOptions(quoting="none", text=("sentence", "4"), label=("label", "2"))
    train = read(tmp_path, "train.tsv", "gj04\t1\t\tFine.\ngj04\t0\t*\tFine not.\x08\n", options=cola)
    assert rows(train) == [("Fine.", "1"), ("Fine not.\x08", "0")]
    assert train.notes == ("control characters are kept: 1 (\\x08), the first in line 2",)
    options = ReadOptions(quoting="none", text=("sentence", "4"), label=("label", "2"), labels="if_there")
    test = read(tmp_path, "test.tsv", "index\tsentence\n0\tBill whistled.\n1\tMore.\n", options=options)
    assert rows(test) == [("Bill whistled.", None), ("More.", None)]
    assert [example.key for example in test.examples] == ["0", "1"]
    assert test.notes == ("no column 'label': the file has no labels",)


def test_number_in_the_first_line_is_not_a_header(tmp_path: Path) -> None:
    named = ReadOptions(text=("sentence1", "1"), text2=("sentence2", "2"), label=("score", "3"))
    file = read(tmp_path, "test.txt", "一个女孩\t她在梳头\t2\n一群人\t他们在跑\t3.5\n", "regression", named)
    assert rows(file) == [("一个女孩", "她在梳头", 2.0), ("一群人", "他们在跑", 3.5)]


def test_test_files_without_labels_are_refused_where_labels_are_needed(tmp_path: Path) -> None:
    text = "index\tsentence1\tsentence2\n0\ta\tb\n1\tc\td\n"
    named = ReadOptions(text="sentence1", text2="sentence2", label="label")
    with pytest.raises(DataError, match="has no column 'label' for the label"):
        read(tmp_path, "test.tsv", text, options=named)
    ignoring = ReadOptions(labels="ignored")
    assert rows(read(tmp_path, "test.tsv", text, options=ignoring)) == [("a", "b", None), ("c", "d", None)]


def test_wrong_column_names_the_nearest(tmp_path: Path) -> None:
    text = "sentence,label\na,1\nb,0\n"
    with pytest.raises(DataError, match=r"has no column 'sentense' for the text.*Did you mean 'sentence'\?"):
        read(tmp_path, "a.csv", text, options=ReadOptions(text="sentense", label="label"))
    with pytest.raises(DataError, match=r"has no column 'lable' for the label.*Did you mean 'label'\?"):
        read(tmp_path, "a.csv", text, options=ReadOptions(text="sentence", label="lable"))
    assert rows(read(tmp_path, "a.csv", text, options=ReadOptions(text="Sentence", label="LABEL")))[0] == ("a", "1")


@pytest.mark.parametrize("ending", ["\n", "\r\n", ""])
def test_line_ends_do_not_matter(tmp_path: Path, ending: str) -> None:
    text = (ending or "\n").join(["text\tlabel", "a b\t1", "c\t0"]) + ending
    assert rows(read(tmp_path, "a.tsv", text, options=GLUE)) == [("a b", "1"), ("c", "0")]


def test_bad_rows_are_skipped_with_place_and_reason(tmp_path: Path) -> None:
    good = "".join(f"text {n},{n % 2}\n" for n in range(20))
    text = f"text,label\n{good}too,many,columns\nonly one\n,1\nno label,\nunknown,2\ntrailing,1,,\n\n"
    known = ReadOptions(text="text", label="label", known_labels=("0", "1"))
    file = read(tmp_path, "a.csv", text, options=known)
    assert len(file.examples) == 21
    assert rows(file)[-1] == ("trailing", "1")
    assert reasons(file) == [
        ("line 22", "3 columns where the header has 2"),
        ("line 23", "1 column where the header has 2"),
        ("line 24", "no text"),
        ("line 25", "no label"),
        ("line 26", "the label '2' is none of 0, 1"),
    ]
    with pytest.raises(DataError, match=r"a\.csv, line 22: 3 columns where the header has 2"):
        read(tmp_path, "a.csv", text, options=ReadOptions(text="text", label="label", bad_rows="refuse"))


def test_file_of_mostly_bad_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"2 of 3 rows cannot be read; no text \(2 times, first at .*line 3\)"):
        read(tmp_path, "a.csv", "text,label\ngood,1\n,1\n,0\n", options=ReadOptions(text="text", label="label"))
    with pytest.raises(DataError, match="holds no examples"):
        read(tmp_path, "a.csv", "text,label\n", options=ReadOptions(text="text", label="label"))


def test_unclosed_quote_does_not_swallow_the_file(tmp_path: Path) -> None:
    lines = [f"a sentence number {n},{n % 2}" for n in range(400)]
    lines[100] = 'a 5" screen,1'
    lines[200] = '"an unclosed quote,0'
    file = read(tmp_path, "a.csv", "text,label\n" + "\n".join(lines))
    assert len(file.examples) == 400
    assert file.examples[200].texts == ('"an unclosed quote',)
    assert "double quotes are part of the texts" in file.notes


def test_row_that_an_unclosed_quote_makes_is_skipped(tmp_path: Path) -> None:
    lines = [f'"a sentence, number {n}",{n % 2}' for n in range(400)]
    lines[250] = '"never closed, 1'
    file = read(tmp_path, "a.csv", "text,label\n" + "\n".join(lines), options=ReadOptions(quoting="csv"))
    assert len(file.examples) >= 250
    assert any("line 252" in skip.place for skip in file.skipped)


@pytest.mark.parametrize(
    ("field", "read_as"),
    [
        ('"Hello."', '"Hello."'),
        ('"He said ""no"""', 'He said "no"'),
        ('"two\nlines"', "two\nlines"),
        ('say "x"', 'say "x"'),
    ],
)
def test_quotes_of_a_tsv_quote_only_where_they_must(tmp_path: Path, field: str, read_as: str) -> None:
    file = read(tmp_path, "a.tsv", f"text\tlabel\nplain\t1\n{field}\t0\nmore\t0\n")
    assert file.examples[1].texts == (read_as,)


def test_all_fields_quoted_are_quoted(tmp_path: Path) -> None:
    file = read(tmp_path, "a.tsv", '"text"\t"label"\n"one"\t"1"\n"two"\t"0"\n')
    assert rows(file) == [("one", "1"), ("two", "0")]


def test_header_is_guessed_by_what_is_below(tmp_path: Path) -> None:
    lines = "Ein langer Satz.\t1\nNoch ein Satz.\t0\nUnd einer.\t1\nSo.\t0\n"
    with pytest.raises(
        DataError, match=r"no column has .* text \(the first row is 1: Ein langer Satz.; 2: 1\).*--text"
    ):
        read(tmp_path, "a.tsv", lines)
    named = ReadOptions(text="1", label="2")
    assert len(read(tmp_path, "a.tsv", lines, options=named).examples) == 4
    with pytest.raises(DataError, match="Allowed: Aussage, Urteil"):
        read(tmp_path, "b.tsv", "Aussage\tUrteil\n" + lines)
    assert len(read(tmp_path, "b.tsv", "Satz\tUrteil\n" + lines).examples) == 4
    forced = read(
        tmp_path, "c.tsv", "Satz\tlabel\na b\tlabel\n", options=ReadOptions(header="none", text="1", label="2")
    )
    assert rows(forced) == [("Satz", "label"), ("a b", "label")]


def test_first_line_of_excel_names_the_delimiter(tmp_path: Path) -> None:
    assert rows(read(tmp_path, "a.csv", "sep=|\ntext|label\na,b|x\nc|y\n")) == [("a,b", "x"), ("c", "y")]


def test_columns_are_guessed_by_usual_names(tmp_path: Path) -> None:
    pair = read(tmp_path, "a.csv", "premise,hypothesis,label\na,b,1\nc,d,0\n")
    assert rows(pair)[0] == ("a", "b", "1")
    assert "columns 'premise' and 'hypothesis' are taken as a pair of texts" in pair.notes
    for header in ("text,urteil", "prosa,label"):  # the only other column
        assert rows(read(tmp_path, "b.csv", f"id,{header}\n1,a,1\n2,b,0\n"))[0] == ("a", "1")
    with pytest.raises(DataError, match=r"no column has a usual name of a label\. Allowed: a, b, text\. .*--label"):
        read(tmp_path, "c.csv", "a,b,text\n1,0,ein Satz\n")
    with pytest.raises(DataError, match="no column has a usual name of a label"):
        read(tmp_path, "d.csv", "text\nnur Text\n")


def test_texts_without_labels_read_for_prediction(tmp_path: Path) -> None:
    ignoring = ReadOptions(labels="ignored")
    lines = read(tmp_path, "a.txt", "Ein Satz.\r\n\r\nNoch 😀 einer, mit Komma.", options=ignoring)
    assert rows(lines) == [("Ein Satz.", None), ("Noch 😀 einer, mit Komma.", None)]
    assert [example.key for example in lines.examples] == ["1", "3"]
    records = read(tmp_path, "a.jsonl", '{"id": 7, "text": "a"}\n{"id": 8, "text": "b"}\n', options=ignoring)
    assert [(example.key, example.texts) for example in records.examples] == [("7", ("a",)), ("8", ("b",))]
    assert rows(read(tmp_path, "a.csv", "text,label\na,1\n", options=ignoring)) == [("a", None)]


def test_json_lines_hold_labels_of_any_type(tmp_path: Path) -> None:
    lines = ['{"sentence": "a", "label": 1}', '{"sentence": "b", "label": "x"}', '{"sentence": "c", "label": true}']
    lines += ['{"sentence": "d", "label": 2.0}', "", '{"sentence": "e", "label": null}', "[1]", "{broken"]
    file = read(tmp_path, "a.json", "\n".join(lines))
    assert rows(file) == [("a", "1"), ("b", "x"), ("c", "true"), ("d", "2")]
    assert [place for place, _ in reasons(file)] == ["line 7", "line 8", "line 6"]
    assert reasons(file)[2][1] == "no label"
    assert "not JSON" in reasons(file)[1][1]


def test_json_lists_and_lone_surrogates(tmp_path: Path) -> None:
    data = [{"text": f"t{n}", "label": "x"} for n in range(3)]
    text = json.dumps([*data, {"text": 5, "label": "y"}, "row"]).replace('"t1"', '"\\ud83d cut"')
    file = read(tmp_path, "a.json", text)
    assert rows(file) == [("t0", "x"), ("t2", "x"), ("5", "y")]
    assert reasons(file)[0] == ("record 5", "not a JSON object but string")
    assert reasons(file)[1][0] == "record 2"
    with pytest.raises(DataError, match=r"a\.json, line 1, column .*not JSON"):
        read(tmp_path, "a.json", "[1,")


@pytest.mark.parametrize(("written", "value"), [("3.5", 3.5), (" 4 ", 4.0), ("2,75", 2.75), ("-1e2", -100.0)])
def test_numbers_are_read(tmp_path: Path, written: str, value: float) -> None:
    file = read(tmp_path, "a.tsv", f"text\tscore\na\t1\nb\t{written}\n", "regression")
    assert file.examples[1].label == value


@pytest.mark.parametrize("written", ["viel", "nan", "inf", "1,2,3"])
def test_what_is_no_number_is_skipped(tmp_path: Path, written: str) -> None:
    file = read(
        tmp_path, "a.tsv", f"text\tscore\na\t1\nb\t{written}\n", "regression", ReadOptions(label="score", text="text")
    )
    assert len(file.examples) == 1
    assert "is not a" in file.skipped[0].reason


def test_several_classes_stand_in_a_list_a_text_or_columns(tmp_path: Path) -> None:
    expected = [("a", ("joy", "fear")), ("b", ()), ("c", ("fear",))]
    listed = '{"text":"a","labels":["joy","fear","joy"]}\n{"text":"b","labels":[]}\n{"text":"c","labels":["fear"]}'
    assert rows(read(tmp_path, "a.jsonl", listed, "multi_label")) == expected
    flags = read(tmp_path, "c.csv", "id,text,joy,fear\n7,a,1,1\n8,b,0,0\n9,c,0,1\n", "multi_label")
    assert rows(flags) == expected
    assert "columns 'joy', 'fear' hold 0 and 1 and are taken as the classes" in flags.notes
    named = ReadOptions(label_columns=("fear",))
    assert rows(read(tmp_path, "d.csv", "text,joy,fear\na,1,1\nb,1,0\n", "multi_label", named)) == [
        ("a", ("fear",)),
        ("b", ()),
    ]
    text = read(tmp_path, "b.csv", "text,labels\na,joy|fear\nb,\nc,fear\n", "multi_label")
    assert rows(text) == expected
    assert "several classes are separated by '|'" in text.notes


def test_labels_are_renamed_dropped_and_filtered(tmp_path: Path) -> None:
    options = ReadOptions(
        text="s1",
        text2="s2",
        label="gold",
        label_names=(("contradictory", "contradiction"),),
        known_labels=("contradiction", "neutral"),
        dropped_labels=("-",),
        only=(("language", "zh"),),
    )
    text = "language\tgold\ts1\ts2\nzh\tcontradictory\ta\tb\nde\tneutral\tc\td\nzh\t-\te\tf\nzh\tneutral\tg\th\n"
    file = read(tmp_path, "a.tsv", text, options=options)
    assert rows(file) == [("a", "b", "contradiction"), ("g", "h", "neutral")]
    assert reasons(file) == [("line 4", "labeled '-', which is left out by rule")]
    assert "1 row with other values of language left out" in file.notes


def test_parquet_is_read_with_the_names_of_its_classes(tmp_path: Path) -> None:
    table = pa.table({"sentence": ["a", "b", "c"], "label": [1, 0, -1], "idx": [10, 11, 12]})
    features = {"label": {"names": ["neg", "pos"], "_type": "ClassLabel"}, "sentence": {"_type": "Value"}}
    metadata = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "a.parquet")
    file = read_texts(tmp_path / "a.parquet", "classification", ReadOptions(labels="if_there"))
    assert rows(file) == [("a", "pos"), ("b", "neg"), ("c", None)]
    assert [example.key for example in file.examples] == ["10", "11", "12"]
    assert "the classes of column 'label' are named in the file" in file.notes
    (tmp_path / "b.parquet").write_bytes(b"text,label\n")
    with pytest.raises(DataError, match="is not a readable Parquet file"):
        read_texts(tmp_path / "b.parquet", "classification")


def test_keys_are_ids_only_if_they_differ(tmp_path: Path) -> None:
    file = read(tmp_path, "a.csv", "id,text,label\n5,a,1\n5,b,0\n")
    assert [example.key for example in file.examples] == ["2", "3"]
    named = read(tmp_path, "a.csv", "nr,text,label\nx,a,1\ny,b,0\n", options=ReadOptions(key="nr"))
    assert [example.key for example in named.examples] == ["x", "y"]


def test_kinds_are_not_read_from_every_format(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="classification is not read from the format 'conll'"):
        read(tmp_path, "a.txt", "a O\n", options=ReadOptions(format="conll"))


def test_column_whose_name_stands_twice_is_read_only_if_it_is_told_which(tmp_path: Path) -> None:
    text = "text,text,label\n" + "".join(f"one {n},two {n},{n % 2}\n" for n in range(6))
    with pytest.raises(
        DataError,
        match=r"a\.csv: the header holds 'text' 2 times.*Allowed: text, text \(2\), label.*"
        r"'text' is the first, 'text \(2\)' the second",
    ):
        read(tmp_path, "a.csv", text)
    assert rows(read(tmp_path, "a.csv", text, options=ReadOptions(text="text")))[1] == ("one 1", "1")
    assert rows(read(tmp_path, "a.csv", text, options=ReadOptions(text="text (2)")))[1] == ("two 1", "1")
    with pytest.raises(DataError, match="the header holds 'label' 2 times"):
        read(tmp_path, "b.csv", text.replace("text,text", "text,label"))


def test_columns_whose_name_stands_twice_are_said_where_they_are_not_read(tmp_path: Path) -> None:
    text = "id,text,,id,label\n" + "".join(f"{n},one {n},x,{n},{n % 2}\n" for n in range(6))
    file = read(tmp_path, "a.csv", text)
    assert rows(file)[0] == ("one 0", "0")
    assert [example.key for example in file.examples[:2]] == ["2", "3"]  # no id is taken that could be another
    assert file.notes[:2] == (
        "the first line names the columns: id, text, 3, id (2), label",
        "the header holds 'id' more than once: these columns are called id, id (2)",
    )
    named = read(tmp_path, "a.csv", text, options=ReadOptions(key="id"))
    assert [example.key for example in named.examples[:2]] == ["0", "1"]


def test_names_that_are_read_as_an_example_since_it_was_asked_for_are_noted(tmp_path: Path) -> None:
    days = "".join(f"day {number} was what it was\t{('good', 'bad')[number % 2]}\n" for number in range(20))
    file = read(tmp_path, "c.tsv", "text\tlabel\n" + days, options=ReadOptions(header="none", text="1", label="2"))
    assert rows(file)[0] == ("text", "label")
    assert any("looks like names: text, label" in note for note in file.notes)


def test_names_in_a_later_file_are_kept_too(tmp_path: Path) -> None:
    plain, headed = tmp_path / "a.tsv", tmp_path / "b.tsv"
    plain.write_text("fine day\t1\nbad day\t0\n", encoding="utf-8")
    headed.write_text("Satz\tNote\nfine day\t1\nbad day\t0\n", encoding="utf-8")
    options = ReadOptions(header="none", text="1", label="2")
    assert read_examples([plain, headed], "classification", options).names_among_rows == ("Satz", "Note")
    assert read_examples([plain], "classification", options).names_among_rows == ()
