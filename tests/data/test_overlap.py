"""Evaluation text is found in a corpus, whatever its file's format, and only if 13 words in a row are shared."""

import gzip
import json
from pathlib import Path

import pytest

from maskwright.core.errors import DataError
from maskwright.data.cleaning.overlap import LEAK_NGRAM, excluded_hashes, shares_text
from maskwright.data.cleaning.store import CleanCorpus, clean_corpus
from maskwright.data.cleaning.text import Cleaning

WORDS = [f"word{chr(97 + number)}" for number in range(26)]
LEAK = " ".join(WORDS[:LEAK_NGRAM])
CHINESE = "\u4eca\u5929\u5929\u6c14\u5f88\u597d\u6211\u4eec\u53bb\u516c\u56ed\u73a9\u5427"
FILES = {
    "dev.tsv": f"sentence\tlabel\n{LEAK}\t1\n",
    "dev.csv": f'"{LEAK}",positive\n',
    "dev.jsonl": json.dumps({"text": "short"}) + "\n" + json.dumps({"a": [{"context": LEAK}]}) + "\n",
    "dev.json": json.dumps({"data": [{"paragraphs": [{"context": f"Before. {LEAK}. After."}]}]}),
    "clue.json": "\n".join(json.dumps({"sentence1": text}) for text in ("short", LEAK)),
    "dev.txt": f"{LEAK}\n",
    "separators.jsonl": json.dumps({"text": f"a\u2028b\x85 {LEAK}"}, ensure_ascii=False) + "\n",
}


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", FILES)
def test_thirteen_shared_words_are_found_in_any_case_and_punctuation(tmp_path: Path, name: str) -> None:
    hashes = excluded_hashes(Cleaning(exclude=(write(tmp_path / name, FILES[name]),)))
    assert shares_text("And then: " + LEAK.upper().replace(" ", ", ") + "! The end.", hashes)
    assert not shares_text(" ".join(WORDS[: LEAK_NGRAM - 1]) + " else", hashes)
    assert not shares_text(" ".join(reversed(WORDS)), hashes)
    assert not shares_text("", hashes)


def test_characters_of_chinese_are_words_and_files_may_be_compressed(tmp_path: Path) -> None:
    file = tmp_path / "dev.json.gz"
    file.write_bytes(gzip.compress(json.dumps({"q": CHINESE}).encode()))  # Escaped, as json.dumps writes it.
    hashes = excluded_hashes(Cleaning(exclude=(str(file),)))
    assert shares_text("\u542c\u8bf4" + CHINESE, hashes)
    assert not shares_text(CHINESE[1:], hashes)


def cleaned(folder: Path, *exclude: str) -> CleanCorpus:
    text = (
        f"A first paragraph that is long enough to be kept.\n{LEAK}\n\nAnother document, about something else entirely."
    )
    file = folder / "corpus.txt"
    write(file, text)
    cleaning = Cleaning(exclude=exclude, min_document_bytes=10)
    return clean_corpus([file], cleaning=cleaning, cache=folder / "cache", workers=1)


def test_the_paragraph_is_dropped_and_counted_and_the_files_content_counts(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    files = [write(folder / "dev.tsv", FILES["dev.tsv"]) for folder in (tmp_path, tmp_path / "other")]
    with_leak, without, moved = cleaned(tmp_path), cleaned(tmp_path, files[0]), cleaned(tmp_path, files[1])
    assert with_leak.num_sentences == without.num_sentences + 1
    assert without.fingerprint == moved.fingerprint != with_leak.fingerprint
    total = without.card["total"]
    assert total["dropped"]["paragraphs with evaluation text"] == {"paragraphs": 1, "characters": len(LEAK) + 1}
    assert total["read"] == with_leak.card["total"]["read"]
    assert (
        total["dropped"]["control characters and white space"]
        == (with_leak.card["total"]["dropped"]["control characters and white space"])
    )
    assert without.card["cleaning"]["exclude"] == ["dev.tsv"]
    write(tmp_path / "dev.tsv", FILES["dev.tsv"].replace(LEAK, " ".join(WORDS[-LEAK_NGRAM:])))
    changed = cleaned(tmp_path, files[0])
    assert changed.fingerprint != without.fingerprint
    assert changed.num_sentences == with_leak.num_sentences


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("dev.tsv", "too\tshort\n", "13 words"),
        ("dev.json", '{"a": ', "line 1: not JSON"),
        ("dev.txt", None, "there is no|cannot read"),
        ("dev.gz", "no gzip", "damaged"),
    ],
)
def test_files_that_exclude_nothing_are_refused(tmp_path: Path, name: str, text: str | None, says: str) -> None:
    path = str(tmp_path / name) if text is None else write(tmp_path / name, text)
    with pytest.raises(DataError, match=says):
        cleaned(tmp_path, path)
