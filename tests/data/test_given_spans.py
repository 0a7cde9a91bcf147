import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskwright.core.errors import DataError
from maskwright.data.cleaning.store import CleanCorpus, clean_corpus
from maskwright.data.cleaning.text import Cleaning, clean_document
from maskwright.data.sources import readers
from maskwright.data.words.given_spans import GivenSpan, locate_spans

FILLER = "This sentence is only here to make the document long enough to keep."


def located(text: str, spans: list[tuple[int, int]], cleaning: Cleaning = Cleaning()) -> list[str]:
    """Return the clean text of each span that has a place."""
    paragraphs = clean_document(text, cleaning)
    rows = locate_spans(text, [GivenSpan(start, end, "entity") for start, end in spans], cleaning, paragraphs)
    return [paragraphs[number][start:end] for number, start, end, _ in rows.tolist()]


@pytest.mark.parametrize(
    ("text", "surface", "says"),
    [
        ("The  New \tYork  Times", "New \tYork", ["New York"]),
        ("say New York. Not the second New York", "New York", ["New York"]),
        ("cafe\u0301 de Flore", "cafe\u0301 de", ["café de"]),
        ("a\u200b zero\u200bwidth b", "zero\u200bwidth", ["zerowidth"]),
        ("a  padded  span", " padded ", ["padded"]),
        ("北京\n大学在这里", "北京\n大学", []),
        ("first\n\nsecond", "first\n\nsecond", []),
        ("nothing \u200b here", "\u200b", []),
    ],
)
def test_spans_survive_cleaning(text: str, surface: str, says: list[str]) -> None:
    start = text.index(surface)
    assert located(text, [(start, start + len(surface))]) == says


def test_where_marks_would_change_the_cleaning_texts_are_looked_for() -> None:
    # The mark would stand between a letter and its accent.
    text = "x cafe\u0301 cafe\u0301"
    assert located(text, [(8, 13), (2, 7)]) == ["café", "café"]
    assert located(text, [(2, 6), (8, 13)]) == ["café"]


words = st.lists(
    st.sampled_from(["New", "York", "北京", "大学", "e\u0301t", "don't", "a", "."]), min_size=1, max_size=12
)
gaps = st.sampled_from([" ", "  ", "\t", "\u00a0", " \u200b", "\n\n"])


@settings(max_examples=150)
@given(words=words, data=st.data())
def test_every_span_of_whole_words_is_found_where_it_stands(words: list[str], data: st.DataObject) -> None:
    text, bounds = "", []
    for word in words:
        bounds.append((len(text), len(text) + len(word)))
        text += word + data.draw(gaps)
    first = data.draw(st.integers(0, len(words) - 1))
    last = data.draw(st.integers(first, len(words) - 1))
    span = (bounds[first][0], bounds[last][1])
    expected = clean_document(text[span[0] : span[1]], Cleaning())
    assert located(text, [span]) == (expected if len(expected) == 1 else [])


def corpus_of(folder: Path, records: list[dict[str, Any]], **options: Any) -> CleanCorpus:
    folder.mkdir(exist_ok=True)
    lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    # Without the time of writing, so that the same records are the same file.
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))
    return clean_corpus([folder / "a.jsonl.gz"], cache=folder / "cache", with_spans=True, **options)


def given_texts(clean: CleanCorpus) -> list[tuple[str, str]]:
    found = []
    for block in range(len(clean.blocks)):
        text = "".join(sentence for document in clean.sentences(block) for sentence in document)
        for level, spans in clean.given_spans(block).items():
            found += [(text[start:end], level) for start, end in zip(spans.starts, spans.ends, strict=True)]
    return found


def record(text: str, *marked: tuple[str, str]) -> dict[str, Any]:
    return {"text": text, "spans": [[text.index(part), text.index(part) + len(part), label] for part, label in marked]}


def test_spans_are_stored_beside_the_sentences_that_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "BLOCK_BYTES", 200)
    texts = [
        record(f"Anna lives in  New York. {FILLER}\n\n{FILLER} Repeated: Los Angeles.", ("New York", "entity")),
        record(
            f"Short {FILLER}\n\n{FILLER} Repeated: Los Angeles.\n\nAt last San Marino.",
            ("Los Angeles", "entity"),
            ("San Marino", "entity"),
        ),
        record(f"Anna lives in  New York. {FILLER}\n\n{FILLER} Repeated: Los Angeles.", ("Anna", "entity")),
        {"text": f"By and large Ünal agrees. {FILLER}", "spans": [{"start": 0, "end": 12, "label": "phrase"}]},
        {"text": f"No spans at all. {FILLER}"},
    ]
    clean = corpus_of(tmp_path, texts)
    assert given_texts(clean) == [("By and large", "phrase"), ("New York", "entity"), ("San Marino", "entity")]
    assert clean.card["total"]["spans"] == {"given": 5, "located": 5}
    assert "5 of 5 phrases and entities" in (clean.folder / "data_card.md").read_text(encoding="utf-8")


def test_number_of_workers_does_not_change_a_byte_and_spans_no_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "BLOCK_BYTES", 400)
    texts = [record(f"{number} lives in  New York. {FILLER}{number}", ("New York", "entity")) for number in range(60)]
    one, two = corpus_of(tmp_path / "one", texts, workers=1), corpus_of(tmp_path / "two", texts, workers=2)
    without = clean_corpus([tmp_path / "one" / "a.jsonl.gz"], cache=tmp_path, workers=1)
    for first, second, plain in zip(one.blocks, two.blocks, without.blocks, strict=True):
        assert first.read_bytes() == second.read_bytes() == plain.read_bytes()
        assert np.array_equal(np.load(first.with_suffix(".spans.npy")), np.load(second.with_suffix(".spans.npy")))
    assert given_texts(one) == [("New York", "entity")] * 60
    assert one.fingerprint == two.fingerprint != without.fingerprint


@pytest.mark.parametrize(
    ("spans", "says"),
    [
        (
            [[0, 999, "entity"]],
            r"span 0 of the field 'spans' is \[0, 999\), not a range of characters of a text of",
        ),
        ([[0, 4, "entity"], [4, 4, "entity"]], r"span 1 of the field 'spans' is \[4, 4\)"),
        ([[0, 4.0, "entity"]], "not a range of characters"),
        ([[True, 4, "entity"]], "not a range of characters"),
        ([[0, 4, "entty"]], "the label 'entty'; allowed: phrase, entity"),
        ([[0, 4]], r"is \[0, 4\], not \[start, end, label\]"),
        ({"start": 0}, "is not a list but dict"),
    ],
)
def test_wrong_spans_are_named_with_file_and_line_or_skipped(spans: Any, says: str, tmp_path: Path) -> None:
    texts = [record(f"Anna, line one. {FILLER}", ("Anna", "entity")), {"text": f"Anna. {FILLER}", "spans": spans}]
    with pytest.raises(DataError, match=r"a\.jsonl\.gz, line 2: .*" + says):
        corpus_of(tmp_path, texts)
    skipped = corpus_of(tmp_path, texts, cleaning=Cleaning(bad_lines="skip"))
    assert (skipped.num_documents, given_texts(skipped)) == (1, [("Anna", "entity")])


def test_corpus_without_any_span_is_refused_if_they_are_wanted(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no document has any.*spans"):
        corpus_of(tmp_path, [{"text": FILLER}])
