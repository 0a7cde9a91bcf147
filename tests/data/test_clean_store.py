"""The store: whole, the same for any number of workers, kept by fingerprint, and exact in its counts."""

import errno
import gzip
import json
import os
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from token_samples import files_of, sentences_of

from maskwright.core.errors import DataError, DeviceError
from maskwright.core.storage.checksums import CONTENTS
from maskwright.data.cleaning import deduplication
from maskwright.data.cleaning.store import CleanCorpus, clean_corpus
from maskwright.data.cleaning.text import Cleaning, clean_document
from maskwright.data.sources import readers

WORDS = ["the", "of", "and", "to", "in", "that", "it", "is", "was", "he", "for", "as", "with", "his", "be", "on"]
ALL = Cleaning(deduplicate="none", min_document_bytes=1)


def prose(seed: int, sentences: int = 8) -> str:
    words = random.Random(seed)
    lines = [" ".join(words.choices(WORDS, k=12)).capitalize() + f" {seed} {n}." for n in range(sentences)]
    return "\n\n".join(" ".join(lines[start : start + 3]) for start in range(0, sentences, 3))


def jsonl(path: Path, texts: list[str]) -> Path:
    data = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


def documents(corpus: CleanCorpus) -> list[str]:
    return ["".join(document) for block in range(len(corpus.blocks)) for document in corpus.sentences(block)]


def blocks(corpus: CleanCorpus) -> list[bytes]:
    return [path.read_bytes() for path in corpus.blocks]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "BLOCK_BYTES", 2000)
    monkeypatch.setattr(deduplication, "STORED_BLOCK_BYTES", 3000)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.characters(exclude_characters="\x00"), max_size=60), min_size=1, max_size=6))
def test_stored_sentences_join_to_the_clean_text(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    folder = tmp_path_factory.mktemp("law")
    clean = [clean_document(text.encode("utf-8", "replace").decode(), ALL) for text in ["Kept.", *texts]]
    path = jsonl(folder / "a.jsonl", [text.encode("utf-8", "replace").decode() for text in ["Kept.", *texts]])
    corpus = clean_corpus([path], cleaning=ALL, cache=folder, workers=1)
    assert documents(corpus) == [" ".join(paragraphs) for paragraphs in clean if paragraphs]


@pytest.mark.usefixtures("small_blocks", "processes")
def test_number_of_workers_does_not_change_a_byte(tmp_path: Path) -> None:
    texts = [prose(number % 40, 4 + number % 7) + ("\n\n中文句子。第二句！" * (number % 5)) for number in range(120)]
    path = jsonl(tmp_path / "a.jsonl.gz", texts)
    one = clean_corpus([path], cache=tmp_path / "1", workers=1)
    two = clean_corpus([path], cache=tmp_path / "2", workers=2)
    assert len(one.blocks) > 3
    assert one.card == two.card
    assert files_of(one.folder) == files_of(two.folder)


@pytest.mark.parametrize("near_duplicates", [False, True])
def test_number_of_hash_files_does_not_change_a_byte(near_duplicates, tmp_path, small_blocks, monkeypatch):
    if near_duplicates:
        pytest.importorskip("rensa")
    texts = [
        prose(number % 40, 4 + number % 7) + f"\n\nThe ending number {number % 90}, once or more."
        for number in range(120)
    ]
    path = jsonl(tmp_path / "a.jsonl", texts)
    cleaning = Cleaning(near_duplicates=near_duplicates)
    one = clean_corpus([path], cleaning=cleaning, cache=tmp_path / "1", workers=1)
    monkeypatch.setattr(deduplication, "PARTITION_BYTES", 3000)
    monkeypatch.setattr(deduplication, "_BUFFERED_ROWS", 50)
    many = clean_corpus([path], cleaning=cleaning, cache=tmp_path / "2", workers=1)
    assert files_of(one.folder) == files_of(many.folder)
    dropped = one.card["total"]["dropped"]
    assert dropped["repeated paragraphs"]["paragraphs"] > 30
    assert (dropped["nearly repeated documents"]["documents"] > 0) == near_duplicates


def test_lines_lead_with_a_space_where_white_space_stood(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(
        "Mr. Smith left. Why?\nNobody knew.\n\n他走了。我们也走了。\n真的吗？", encoding="utf-8"
    )
    corpus = clean_corpus([tmp_path / "a.txt"], cleaning=ALL, cache=tmp_path)
    assert corpus.blocks[0].read_text(encoding="utf-8") == (
        "Mr. Smith left.\n Why?\n Nobody knew.\n\n他走了。\n我们也走了。\n 真的吗？\n\n"
    )
    assert (corpus.num_documents, corpus.num_sentences) == (2, 6)
    assert (corpus.num_characters, corpus.num_bytes) == (33 + 15, 33 + 1 + 14 * 3)


def test_lines_that_are_sentences_are_not_split_or_cut(tmp_path: Path) -> None:
    endless = "词" * 3000
    text = f"Mr. Smith left. Why?\nNobody knew.\n\n他走了。我们也走了。\n{endless}\n\n"
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    corpus = clean_corpus([tmp_path / "a.txt"], cleaning=ALL.replace(line_breaks="sentence"), cache=tmp_path)
    # White space stands between lines, and so before the second of each document.
    stored = text.replace("\nN", "\n N").replace("\n词", "\n 词")
    assert corpus.blocks[0].read_text(encoding="utf-8") == stored
    assert not any("cut" in note for source in corpus.card["sources"] for note in source["notes"])


def test_blocks_hold_whole_documents_of_one_source(tmp_path: Path, small_blocks: None) -> None:
    one = jsonl(tmp_path / "one.jsonl", [prose(number) for number in range(20)])
    two = jsonl(tmp_path / "two.jsonl", [prose(500 + number) for number in range(20)])
    corpus = clean_corpus([f"{one}:0.7", two], cache=tmp_path, workers=1)
    assert corpus.source_weights == (0.7, None)
    assert corpus.source_names == ("one.jsonl", "two.jsonl")
    assert corpus.block_sources == tuple(sorted(corpus.block_sources))
    assert set(corpus.block_sources) == {0, 1}
    for block, source in enumerate(corpus.block_sources):
        assert all((" 50" in "".join(d) or " 51" in "".join(d)) == (source == 1) for d in corpus.sentences(block))


def test_repeats_are_kept_once_and_short_paragraphs_are_no_repeats(tmp_path: Path) -> None:
    shared = "This paragraph stands in two documents of the corpus."
    first = "Parameters\n\n" + shared + "\n\nOnly here, in the first document of all."
    second = "Parameters\n\n" + shared + "\n\nAnd this, on the other hand, stands only in the second document."
    corpus = clean_corpus([jsonl(tmp_path / "a.jsonl", [first, first, second, shared])], cache=tmp_path)
    assert documents(corpus) == [
        first.replace("\n\n", " "),
        "Parameters And this, on the other hand, stands only in the second document.",
    ]
    dropped = corpus.card["total"]["dropped"]
    assert dropped["repeated documents"]["documents"] == 1
    assert dropped["repeated paragraphs"]["paragraphs"] == 1
    assert dropped["nearly repeated documents"]["documents"] == 0
    only_documents = clean_corpus(
        [tmp_path / "a.jsonl"], cleaning=Cleaning(deduplicate="documents", min_document_bytes=1), cache=tmp_path
    )
    assert only_documents.num_documents == 3


def test_near_duplicates_are_dropped_on_request(tmp_path: Path) -> None:
    pytest.importorskip("rensa")
    long = " ".join(prose(number) for number in range(20))
    shared = "A paragraph that a near duplicate and another document have in common."
    other = " ".join(prose(100 + number) for number in range(20))
    file = jsonl(tmp_path / "a.jsonl", [long, f"{long.replace('0', 'zero', 1)}\n\n{shared}", f"{other}\n\n{shared}"])
    assert clean_corpus([file], cache=tmp_path).num_documents == 3
    corpus = clean_corpus([file], cleaning=Cleaning(near_duplicates=True), cache=tmp_path)
    assert corpus.num_documents == 2
    assert corpus.card["total"]["dropped"]["nearly repeated documents"]["documents"] == 1
    # What only the dropped document had before is kept where it occurs again.
    assert [shared in "".join(document) for document in corpus.sentences(0)] == [False, True]


def test_fingerprint_is_of_the_content_not_of_paths_and_times(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    path = jsonl(tmp_path / "one" / "a.jsonl", [prose(1)])
    first = clean_corpus([path], cache=tmp_path / "cache")
    os.utime(path, (0, 0))
    assert clean_corpus([path], cache=tmp_path / "cache").fingerprint == first.fingerprint
    (tmp_path / "one").rename(tmp_path / "two")
    moved = tmp_path / "two" / "a.jsonl"
    assert clean_corpus([moved], cache=tmp_path / "cache").folder == first.folder
    times = moved.stat().st_atime_ns, moved.stat().st_mtime_ns
    moved.write_bytes(moved.read_bytes().replace(b"the", b"thy"))
    os.utime(moved, ns=times)
    assert clean_corpus([moved], cache=tmp_path / "cache").fingerprint != first.fingerprint


@pytest.mark.parametrize("harm", ["gone", "cut", "changed"])
def test_damaged_block_is_refused_and_made_anew_by_the_next_call(tmp_path: Path, harm: str) -> None:
    path = jsonl(tmp_path / "a.jsonl", [prose(number) for number in range(5)])
    first = clean_corpus([path], cache=tmp_path / "cache")
    kept, block = blocks(first), first.blocks[0]
    data = block.read_bytes()
    if harm == "gone":
        block.unlink()
    else:
        block.write_bytes(data[: len(data) // 5] if harm == "cut" else data[:50] + b"#" + data[51:])
        again = clean_corpus([path], cache=tmp_path / "cache")
        with pytest.raises(DataError, match=r"00000\.txt is damaged: .* Run the same command again"):
            list(again.sentences(0))
    with pytest.warns(UserWarning, match="prepared data is damaged and is rebuilt"):
        assert blocks(clean_corpus([path], cache=tmp_path / "cache")) == kept


def test_a_block_that_cannot_be_read_now_is_not_rebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = clean_corpus([jsonl(tmp_path / "a.jsonl", [prose(1)])], cache=tmp_path / "cache")

    def fail(path: Path) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Path, "read_bytes", fail)
    with pytest.raises(DeviceError, match=r"cannot read .*00000\.txt: Too many open files"):
        list(corpus.sentences(0))
    assert (corpus.folder / CONTENTS).exists()


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["short", "shorter still"], "longest has 13 bytes.*60 bytes.*`--clean min_document_bytes=20`"),
        (["", " \n"], "holds no text"),
    ],
)
def test_source_without_documents_is_refused(tmp_path: Path, texts: list[str], says: str) -> None:
    with pytest.raises(DataError, match=says):
        clean_corpus([jsonl(tmp_path / "a.jsonl", texts)], cache=tmp_path)


def test_source_that_repeats_another_is_refused(tmp_path: Path) -> None:
    one, two = jsonl(tmp_path / "a.jsonl", [prose(1)]), jsonl(tmp_path / "b.jsonl", [prose(1)])
    with pytest.raises(DataError, match=r"nothing is left of b\.jsonl.*`--clean deduplicate=none`"):
        clean_corpus([one, two], cache=tmp_path)


def test_sample_is_bounded_even_and_keyed(tmp_path: Path, small_blocks: None) -> None:
    path = jsonl(tmp_path / "a.jsonl", [prose(number, 30) for number in range(100)])
    corpus = clean_corpus([path], cache=tmp_path, workers=1)
    everything = sentences_of(corpus)
    assert list(corpus.sample(corpus.num_bytes, seed=1)) == everything
    limit = corpus.num_bytes // 5
    sample = list(corpus.sample(limit, seed=1))
    size = sum(len(sentence.encode()) for sentence in sample)
    assert 0.9 * limit < size <= limit
    assert sample == list(corpus.sample(limit, seed=1))
    assert sample != list(corpus.sample(limit, seed=2))
    indices = {sentence: index for index, sentence in enumerate(everything)}
    quarters = [4 * indices[sentence] // len(everything) for sentence in sample]
    assert all(0.2 < quarters.count(quarter) / len(sample) < 0.3 for quarter in range(4))
    assert list(corpus.sample(0, seed=1)) == []
