"""Texts and pairs with labels: GLUE's files as published, and whatever users bring."""

import csv
import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maskwright.core.errors import DataError
from maskwright.finetuning.readers.options import ReadOptions
from maskwright.finetuning.readers.texts import read_texts


def read(folder, name, text, kind="classification", options=ReadOptions()):
    path = folder / name
    path.write_text(text, encoding="utf-8", newline="")
    return read_texts(path, kind, options)


def rows(file):
    return [(*example.texts, example.label) for example in file.examples]


def reasons(file):
    return [(skip.location.rpartition(", ")[2], skip.reason) for skip in file.skipped]


def test_csv_of_a_beginner_is_read(tmp_path):
    text = "Satz;Gefühl\n" + 'Das ist schön 😀;gut\n这本书很好。;gut\n"Na; ja, ""toll""";schlecht\n' * 3
    with pytest.raises(DataError, match=r"Allowed: Satz, Gefühl\. Name it, `--text COLUMN`"):
        read(tmp_path, "meinung.csv", text)
    file = read(tmp_path, "meinung.csv", text, options=ReadOptions(text="Satz"))
    assert rows(file)[:3] == [("Das ist schön 😀", "gut"), ("这本书很好。", "gut"), ('Na; ja, "toll"', "schlecht")]
    assert not file.skipped
    assert file.notes == ("double quotes enclose texts, as in CSV", "label: column 'Gefühl' (--label NAME for another)")


def test_columns_that_are_used_have_different_names(tmp_path):
    with pytest.raises(DataError, match=r"a\.csv has several columns 'text'"):
        read(tmp_path, "a.csv", "text,label,text\na,1,x\nb,0,y\n")
    assert rows(read(tmp_path, "a.csv", "text,note,note,label\na,,,1\nb,,,0\n"))[0] == ("a", "1")
    pq.write_table(pa.table([["a"], ["1"], ["x"]], names=["text", "label", "text"]), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet has several columns 'text'"):
        read_texts(tmp_path / "a.parquet", "classification")


def test_wrong_column_names_the_nearest(tmp_path):
    text = "sentence,label\na,1\nb,0\n"
    with pytest.raises(DataError, match=r"has no column 'sentense' for the text.*Did you mean 'sentence'\?"):
        read(tmp_path, "a.csv", text, options=ReadOptions(text="sentense", label="label"))
    assert rows(read(tmp_path, "a.csv", text, options=ReadOptions(text="Sentence", label="LABEL")))[0] == ("a", "1")
    with pytest.raises(DataError, match="'label' is named as the text and as the label"):
        read(tmp_path, "a.csv", text, options=ReadOptions(text="label", label="label"))
    with pytest.raises(DataError, match="the second text is named"):
        read(tmp_path, "a.csv", text, options=ReadOptions(text2="label"))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "lcqmc.tsv",
            "谁\t哪个\t1\n什么\t怎么\t0\n",
            r"no column has a usual name of a text.*Allowed: 谁, 哪个, 1\..*--text2",
        ),
        ("a.csv", "label,title,description\n1,A,A text\n0,B,B text\n", r"title, description.*--text COLUMN"),
        (
            "trec.txt",
            "DESC:manner How ?\nLOC:other Where ?\n",
            r"one text per line and no labels.*delimiter= .*--text 2",
        ),
        ("c.csv", "a,b,text\n1,0,ein Satz\n", r"no column has a usual name of a label.* a, b, text\. .*--label"),
        ("d.csv", "text\nnur Text\n", "no column has a usual name of a label"),
    ],
)
def test_columns_that_are_not_obvious_must_be_named(tmp_path, name, text, message):
    with pytest.raises(DataError, match=message):
        read(tmp_path, name, text)


@pytest.mark.parametrize("second", ["text2", "text_2"])
@pytest.mark.parametrize(("kind", "label"), [("embedding", 0.5), ("classification", "0.5")])
def test_a_second_text_makes_a_pair(tmp_path, second, kind, label):
    file = read(tmp_path, "a.csv", f"text,{second},label\na,b,0.5\n", kind=kind)
    assert rows(file) == [("a", "b", label)]
    assert f"pairs of texts: columns 'text' and '{second}' (--text NAME for another)" in file.notes


def test_columns_may_be_numbers_below_a_header(tmp_path):
    numbered = ReadOptions(text="1", label="2")
    for header in ("sentence,label\n", "Text,Score\n", ""):
        assert rows(read(tmp_path, "a.csv", f"{header}a,1\nb,0\n", options=numbered)) == [("a", "1"), ("b", "0")]


def test_columns_counted_from_the_end_take_no_header_from_a_file_without_one(tmp_path):
    numbered = ReadOptions(text="-2", label="-1")
    for header in ("id,sentence,label\n", "id,Text,Score\n", ""):
        assert rows(read(tmp_path, "a.csv", f"{header}7,a,1\n8,b,0\n", options=numbered)) == [("a", "1"), ("b", "0")]


def test_lines_of_label_and_text_are_split_at_the_first_space(tmp_path):
    """As TREC has them, in Latin-1."""
    lines = [f"{label} How did serfdom d\xe9velop {n} ?" for n in range(9) for label in ("DESC:manner", "LOC:other")]
    (tmp_path / "trec.label").write_bytes("\n".join(lines).encode("latin-1"))
    options = ReadOptions(delimiter=" ", label="1", text="2", encoding="latin-1")
    file = read_texts(tmp_path / "trec.label", "classification", options)
    assert rows(file)[0] == ("How did serfdom dévelop 0 ?", "DESC:manner")


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ("premise,hypothesis,label", ("a b", "c d")),
        ("label,urteil,text", ("c d",)),
        ("id,text,urteil", ("c d",)),  # the only other column is the label
        ("id,prosa,label", ("c d",)),  # the only other column is the text
        ("review,label,date", ("a b",)),
    ],
)
def test_columns_are_guessed_by_usual_names(tmp_path, header, text):
    values = {"premise": "a b", "hypothesis": "c d", "review": "a b", "text": "c d", "prosa": "c d"}
    line = ",".join(values.get(name, "1") for name in header.split(","))
    assert read(tmp_path, "a.csv", f"{header}\n{line}\n").examples[0].texts == text


def test_a_guess_among_several_columns_is_the_first_usual_name_and_is_printed(tmp_path):
    file = read(tmp_path, "a.csv", "comment,text,label\na,b,c\n")
    assert file.examples[0].texts == ("b",)
    assert "text: column 'text' (--text NAME for another)" in file.notes


def test_a_named_label_is_never_the_text(tmp_path):
    file = read(tmp_path, "a.csv", "text,body\ngood news,a\nbad news,b\n", options=ReadOptions(label="text"))
    assert file.examples[0].texts == ("a",)
    pairs = read(tmp_path, "b.csv", "question,sentence,text\na,b,c c\n", options=ReadOptions(label="question"))
    assert pairs.examples[0].texts == ("c c",)


def test_bad_rows_are_skipped_with_location_and_reason(tmp_path):
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


def test_file_of_mostly_bad_rows_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"2 of 3 rows cannot be read; no text \(2 times, first at .*line 3\)"):
        read(tmp_path, "a.csv", "text,label\ngood,1\n,1\n,0\n", options=ReadOptions(text="text", label="label"))
    with pytest.raises(DataError, match="holds no examples"):
        read(tmp_path, "a.csv", "text,label\n", options=ReadOptions(text="text", label="label"))


def test_unclosed_quote_does_not_swallow_the_file(tmp_path):
    lines = [f"a sentence number {n},{n % 2}" for n in range(400)]
    lines[100], lines[200] = 'a 5" screen,1', '"an unclosed quote,0'
    file = read(tmp_path, "a.csv", "text,label\n" + "\n".join(lines))
    assert len(file.examples) == 400
    assert file.examples[200].texts == ('"an unclosed quote',)
    lines = [f'"a sentence, number {n}",{n % 2}' for n in range(400)]
    lines[250] = '"never closed, 1'
    file = read(tmp_path, "a.csv", "text,label\n" + "\n".join(lines), options=ReadOptions(quoting="csv"))
    assert len(file.examples) >= 250
    assert any("line 252" in skip.location for skip in file.skipped)


@pytest.mark.parametrize("quoting", [csv.QUOTE_ALL, csv.QUOTE_MINIMAL])
@pytest.mark.parametrize("broken", ['"a "great", film","pos"', '"a film, cut', '"a "great" film, cut'])
@pytest.mark.parametrize("place", [0, 40, 99])
def test_a_malformed_row_of_a_quoted_file_is_skipped(tmp_path, quoting, broken, place):
    expected = [(f"it 's a journey , {n}", "pos" if n % 2 else "neg") for n in range(99)]
    (out := io.StringIO()).write("text,label\n")
    csv.writer(out, quoting=quoting, lineterminator="\n").writerows(expected)
    lines = out.getvalue().splitlines()
    lines.insert(1 + place, broken)
    file = read(tmp_path, "a.csv", "\n".join(lines))
    assert rows(file) == expected
    assert [line for line, _ in reasons(file)] == [f"line {2 + place}"]
    assert "--read quoting=none" in file.notes[0]


def test_quotes_that_are_mostly_malformed_are_part_of_the_texts(tmp_path):
    """As in MRPC; a note names the first of them."""
    texts = ['"No," he said', "\"We won't", '"Never"', 'a 5" screen'] * 5
    file = read(tmp_path, "a.tsv", "text\tlabel\n" + "".join(f"{text}\t{n % 2}\n" for n, text in enumerate(texts)))
    assert [example.texts[0] for example in file.examples] == texts
    assert "first at line 2;" in file.notes[0]


def test_line_ends_may_be_carriage_returns_alone(tmp_path):
    text = 'text,label\rgood 1,pos\r"bad, 2",neg\r'
    assert rows(read(tmp_path, "a.csv", text)) == [("good 1", "pos"), ("bad, 2", "neg")]


@pytest.mark.parametrize(
    ("field", "read_as"), [('"He said ""no"""', 'He said "no"'), ('"two\nlines"', "two\nlines"), ('say "x"', 'say "x"')]
)
def test_quotes_of_a_tsv_enclose_only_fields_that_need_them(tmp_path, field, read_as):
    file = read(tmp_path, "a.tsv", f"text\tlabel\nplain\t1\n{field}\t0\nmore\t0\n")
    assert file.examples[1].texts == (read_as,)


def test_texts_without_labels_read_for_prediction(tmp_path):
    ignoring = ReadOptions(labels="ignored")
    lines = read(tmp_path, "a.txt", "Ein Satz.\r\n\r\nNoch 😀 einer, mit Komma.", options=ignoring)
    assert rows(lines) == [("Ein Satz.", None), ("Noch 😀 einer, mit Komma.", None)]
    assert [example.key for example in lines.examples] == ["1", "3"]
    records = read(tmp_path, "a.jsonl", '{"id": 7, "text": "a"}\n{"id": 8, "text": "b"}\n', options=ignoring)
    assert [(example.key, example.texts) for example in records.examples] == [("7", ("a",)), ("8", ("b",))]
    assert rows(read(tmp_path, "a.csv", "text,label\na,1\n", options=ignoring)) == [("a", None)]


def test_json_lines_hold_labels_of_any_type(tmp_path):
    lines = ['{"sentence": "a", "label": 1}', '{"sentence": "b", "label": "x"}', '{"sentence": "c", "label": true}']
    lines += ['{"sentence": "d", "label": 2.0}', "", '{"sentence": "e", "label": null}', "[1]", "{broken"]
    file = read(tmp_path, "a.json", "\n".join(lines))
    assert rows(file) == [("a", "1"), ("b", "x"), ("c", "true"), ("d", "2")]
    assert [line for line, _ in reasons(file)] == ["line 7", "line 8", "line 6"]
    assert reasons(file)[2][1] == "no label"
    assert "not JSON (column 2: Expecting property name enclosed in double quotes)" in reasons(file)[1][1]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("3.5", 3.5),
        (" 4 ", 4.0),
        ("2,75", 2.75),
        ("-1e2", -100.0),
        *((wrong, None) for wrong in ("viel", "nan", "inf", "1,2,3")),
    ],
)
def test_numbers(tmp_path, written, value):
    file = read(tmp_path, "a.tsv", f"text\tscore\na\t1\nb\t{written}\n", "regression")
    assert [example.label for example in file.examples[1:]] == ([] if value is None else [value])
    assert all("is not a" in skip.reason for skip in file.skipped)


def test_several_classes_in_a_list_a_text_or_columns(tmp_path):
    expected = [("a", ("joy", "fear")), ("b", ()), ("c", ("fear",))]
    listed = '{"text":"a","labels":["joy","fear","joy"]}\n{"text":"b","labels":[]}\n{"text":"c","labels":["fear"]}'
    assert rows(read(tmp_path, "a.jsonl", listed, "multi_label")) == expected
    named = ReadOptions(label_columns=("joy", "fear"))
    flags = read(tmp_path, "c.csv", "id,text,joy,fear\n7,a,1,1\n8,b,0,0\n9,c,0,1\n", "multi_label", named)
    assert rows(flags) == expected
    for separator in "|;,":
        text = f"text\tlabels\na\tjoy{separator}fear\nb\t\nc\tfear\n"
        assert rows(read(tmp_path, "b.tsv", text, "multi_label")) == expected


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("""['joy', "l'amour"]""", ("joy", "l'amour")),
        ('["joy", "fear, awe"]', ("joy", "fear, awe")),
        ("['joy','fear']", ("joy", "fear")),
        ("""["a",'b' , -1.5,]""", ("a", "b", "-1.5")),
        (r"['\d', 'l\'amour']", (r"\d", "l'amour")),
        ("[{[1]}]", ("[{[1]}]",)),
        ("[]", ()),
        ("[1, 2]", ("1", "2")),
        ("[joy]; [fear]", ("[joy]", "[fear]")),
        ("[" * 9999 + "]", ("[" * 9999 + "]",)),
    ],
)
def test_classes_in_a_list_that_was_written_as_text(tmp_path, label, expected):
    ((_, actual),) = rows(
        read(tmp_path, "a.tsv", f"text\tlabels\na\t{label}\n", "multi_label", ReadOptions(quoting="none"))
    )
    assert actual == expected


@pytest.mark.parametrize("label", ["['joy' 'fear']", "[['joy'], 'fear']", "['joy']; ['fear']"])
def test_what_is_not_a_list_of_classes_is_skipped(tmp_path, label):
    file = read(tmp_path, "a.tsv", f"text\tlabels\na\tjoy\nb\tfear\nc\t{label}\n", "multi_label")
    assert reasons(file) == [("line 4", f"the label {label!r} is not a list of texts with commas")]


def test_labels_are_renamed_dropped_and_filtered(tmp_path):
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


def test_parquet_is_read(tmp_path):
    pq.write_table(pa.table({"sentence": ["a", "b"], "label": [1, 0], "idx": [10, 11]}), tmp_path / "a.parquet")
    file = read_texts(tmp_path / "a.parquet", "classification")
    assert rows(file) == [("a", "1"), ("b", "0")]
    assert [example.key for example in file.examples] == ["10", "11"]
    (tmp_path / "b.parquet").write_bytes(b"text,label\n")
    with pytest.raises(DataError, match="is not a readable Parquet file"):
        read_texts(tmp_path / "b.parquet", "classification")
