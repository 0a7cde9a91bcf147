"""Words with tags: CoNLL columns as benchmarks write them, and lists in records."""

import json

import pytest

from maskwright.core.errors import DataError
from maskwright.finetuning.readers.options import ReadOptions
from maskwright.finetuning.readers.tagged import cut_into_words, read_tagged


def read(folder, text, options=ReadOptions(), name="a.conll"):
    path = folder / name
    path.write_text(text, encoding="utf-8", newline="")
    return read_tagged(path, options)


def sentences(file):
    return [
        " ".join(f"{word}/{tag}" for word, tag in zip(example.words, example.tags or (), strict=True))
        for example in file.examples
    ]


@pytest.mark.parametrize("separator", ["\t", " ", "  "])
@pytest.mark.parametrize(
    ("blank", "end"), [("\n\n", "\n\n"), ("\r\n\r\n", "\r\n"), ("\n \t \n", ""), ("\n\n\n\n", "\n")]
)
def test_sentences_end_at_blank_lines(tmp_path, separator, blank, end):
    newline = "\r\n" if "\r" in blank else "\n"
    text = newline.join(["Ada B-PER", "codes O"]) + blank + "Paris B-LOC" + end
    file = read(tmp_path, text.replace(" B", f"{separator}B").replace(" O", f"{separator}O"))
    assert sentences(file) == ["Ada/B-PER codes/O", "Paris/B-LOC"]
    assert file.examples[0].key == "1"
    assert file.notes == ("tags of entities: B-PER, O, B-LOC",)


def test_columns_are_chosen_by_number(tmp_path):
    text = "-DOCSTART- -X- -X- O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\nPeter NNP I-NP I-PER\n"
    file = read(tmp_path, text)
    assert sentences(file) == ["EU/I-ORG rejects/O", "Peter/I-PER"]
    assert [example.key for example in file.examples] == ["3", "6"]
    assert file.notes == ("words: column 1, tags: column 4", "tags of entities: I-ORG, O, I-PER")
    assert sentences(read(tmp_path, text, ReadOptions(text="1", label="2"))) == ["EU/NNP rejects/VBZ", "Peter/NNP"]
    assert sentences(read(tmp_path, text, ReadOptions(text="4", label="-4"))) == ["I-ORG/EU O/rejects", "I-PER/Peter"]
    with pytest.raises(DataError, match="has no column '5' for the tags"):
        read(tmp_path, text, ReadOptions(label="5"))


def test_comments_are_not_words_and_hash_tags_are(tmp_path):
    text = "# id 4\n#moon _ _ O\nshines _ _ O\n\n# a remark\n# _ _ O\nAda _ _ B-PER\n"
    file = read(tmp_path, text)
    assert sentences(file) == ["#moon/O shines/O", "#/O Ada/B-PER"]


def test_sentence_with_a_bad_line_is_skipped_whole(tmp_path):
    good = "a\tO\nb\tO\n\n" * 4
    file = read(tmp_path, f"{good}Ada\tB-PER\nalone\n\n\tO\nx\tO\n\ny\tO\tO\n\n")
    assert len(file.examples) == 4
    assert [(skip.location.rpartition(", ")[2], skip.reason) for skip in file.skipped] == [
        ("line 14", "1 column where most lines have 2"),
        ("line 19", "3 columns where most lines have 2"),
        ("line 16", "one of the words is empty"),
    ]


def test_segmentation_digits_are_removed_on_request(tmp_path):
    text = "科0\tO\n技1\tO\n10\tB-PER.NOM\n\n😀0\tO\n"
    kept = read(tmp_path, text)
    assert kept.examples[0].words == ("科0", "技1", "10")
    weibo = ReadOptions(word_ending="segmentation_digit")
    assert [example.words for example in read(tmp_path, text, weibo).examples] == [("科", "技", "1"), ("😀",)]
    wrong = read(tmp_path, f"{text}\n全\tO\n", weibo)
    assert len(wrong.examples) == 2
    assert "the word '全' does not end in a digit" in wrong.skipped[0].reason


def test_files_without_tags(tmp_path):
    text = "Ada\ncodes\n\nParis\n"
    with pytest.raises(DataError, match="most lines have one column, so there are no tags"):
        read(tmp_path, text)
    for labels in ("if_there", "ignored"):
        file = read(tmp_path, text, ReadOptions(labels=labels))
        assert [(example.words, example.tags) for example in file.examples] == [
            (("Ada", "codes"), None),
            (("Paris",), None),
        ]


def test_running_text_is_split_into_words_for_prediction(tmp_path):
    text = "Ada Lovelace visited 北京, didn't she? 😀\n\nÉcole №5 ﷺ\n"
    file = read(tmp_path, text, ReadOptions(labels="ignored"), "a.txt")
    assert file.examples[0].words == ("Ada", "Lovelace", "visited", *"北京,", "didn", "'", "t", "she", "?", "😀")
    assert [example.key for example in file.examples] == ["1", "3"]
    assert "2 texts split into words" in file.notes[-1]
    assert cut_into_words("𠀀a㐀") == ("𠀀", "a", "㐀")


def test_records_hold_words_and_tags(tmp_path):
    records = [
        {"id": "x", "tokens": ["Ada", "codes"], "ner_tags": ["B-PER", "O"]},
        {"id": "y", "tokens": ["Paris"], "ner_tags": ["B-LOC"]},
        {"id": "z", "tokens": ["one", "two"], "ner_tags": ["O"]},
    ]
    file = read(tmp_path, "\n".join(map(json.dumps, records)), name="a.jsonl")
    assert sentences(file) == ["Ada/B-PER codes/O", "Paris/B-LOC"]
    assert [example.key for example in file.examples] == ["x", "y"]
    assert file.skipped[0].reason == "2 words with 1 tag"
    with pytest.raises(DataError, match=r"no column 'tag' for the tags.*Did you mean 'ner_tags'"):
        read(tmp_path, json.dumps(records[0]), ReadOptions(label="tag"), "b.jsonl")
