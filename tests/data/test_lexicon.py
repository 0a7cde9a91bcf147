from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.core.errors import DataError
from maskwright.data.words.lexicon import Lexicon, content_of, longest, read_dictionary, read_lexicon, spans_of


def matches(entries: list[str], *texts: str) -> list[str]:
    text = "".join(texts)
    text_of = np.repeat(np.arange(len(texts)), [len(each) for each in texts])
    spans = longest(Lexicon(entries).find(text, np.zeros(len(text) + 1, dtype=np.bool_), text_of))
    return [text[start:end] for start, end in zip(spans.starts, spans.ends, strict=True)]


@pytest.mark.parametrize(
    ("entries", "text", "says"),
    [
        (["new york", "new york city"], "In New York City and new york.", ["New York City", "new york"]),
        (["US"], "us US USA", ["US"]),
        (["US", "us"], "us US Us", ["us", "US", "Us"]),
        (["art"], "party art art's art-house", ["art", "art", "art"]),
        (["模型", "语言模型"], "大语言模型和模型", ["语言模型", "模型"]),
        (["हिन्दी"], "हिन्दी हिन्दीभाषा", ["हिन्दी"]),
        (["언어"], "언어 언어는", ["언어"]),
        (["می", "می\u200cخواهم"], "می\u200cآیند می می\u200cخواهم", ["می", "می\u200cخواهم"]),
        (["é"], "İé é", ["é"]),
        ([], "nothing", []),
    ],
)
def test_entries_are_found_longest_first_at_word_edges(entries: list[str], text: str, says: list[str]) -> None:
    assert matches(entries, text) == says


def test_entries_never_reach_from_one_text_into_the_next() -> None:
    assert matches(["end next"], "the end", " next") == []


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 6)), max_size=12))
def test_longest_spans_are_the_greedy_choice_from_the_left(pairs: list[tuple[int, int]]) -> None:
    spans = [(start, start + length) for start, length in pairs]
    expected, position = [], 0
    while left := [span for span in spans if span[0] >= position]:
        first = min(start for start, _ in left)
        expected.append((first, max(end for start, end in left if start == first)))
        position = expected[-1][1]
    chosen = longest(spans_of(spans))
    assert list(zip(chosen.starts.tolist(), chosen.ends.tolist(), strict=True)) == expected


def test_lexicon_file_is_read_in_clean_form(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("\ufeffNew  York\r\n\n模型\ncafe\u0301\nNew York\n".encode())
    (tmp_path / "a.tsv").write_text("New York\tLOC\t5\n模型\n", encoding="utf-8")
    assert read_lexicon(tmp_path / "a.txt") == ["New York", "模型", "café"]
    assert read_lexicon(tmp_path / "a.tsv") == ["New York", "模型"]


def test_dictionary_file_takes_frequency_and_tag(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("模型 100 n\n语言 7\n北大 nt\n大模型\n", encoding="utf-8")
    words = [("模型", 100, "n"), ("语言", 7, ""), ("北大", None, "nt"), ("大模型", None, "")]
    assert read_dictionary(tmp_path / "a.txt") == words


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\xff\xfe", "line 1: not UTF-8"),
        (b"a\n\xc3\n", "line 2: not UTF-8"),
        (b" \n", "is empty"),
        (b"x" * 300, "line 1: "),
    ],
)
def test_wrong_word_lists_are_named_with_file_and_line(data: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_bytes(data)
    for read in (read_lexicon, read_dictionary):
        with pytest.raises(DataError, match=r"list\.txt.*" + says):
            read(path)


def test_missing_and_undecodable_files_are_called_word_lists(tmp_path: Path) -> None:
    for read in (read_lexicon, content_of):
        with pytest.raises(DataError, match=r"cannot read the word list .*list\.txt"):
            read(tmp_path / "list.txt")
    (tmp_path / "list.txt").write_bytes(b"\xff")
    with pytest.raises(DataError, match=r"the word list .*list\.txt, line 1: not UTF-8"):
        read_lexicon(tmp_path / "list.txt")
