"""Whatever a file contains, reading it ends with a result or with one of the project's own errors.

No other exception, no endless reading, no memory beyond a multiple of the file, nothing outside the named folder.
"""

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from maskwright.core.errors import DataError, JsonError, MaskwrightError
from maskwright.core.files import parse_json, read_json
from maskwright.core.spec import override, parse_overrides
from maskwright.data.cleaning.text import Cleaning
from maskwright.data.sources import files
from maskwright.data.sources.arguments import resolve_sources
from maskwright.data.sources.files import BadLine
from maskwright.data.sources.parsing import documents_of
from maskwright.data.sources.readers import raw_blocks
from maskwright.finetuning.readers import Kind, ReadOptions, read_examples
from maskwright.inference.texts import read_source, read_texts
from maskwright.recipes import catalog
from tests.hostile import BROKEN_JSON, altered, damaged, fuzzing, only_clear_errors, pipe

KINDS: tuple[Kind, ...] = get_args(Kind)


def read_corpus(path: Path) -> list[str]:
    def refuse(bad: BadLine) -> None:
        raise bad.error()

    blocks = raw_blocks(resolve_sources([path]), Cleaning(), [refuse])
    return [
        one.text for block in blocks for piece in block.pieces for one in documents_of(piece, refuse, with_spans=True)
    ]


READERS: dict[str, Callable[[Path], object]] = {
    "corpus": read_corpus,
    "texts": read_texts,
    **{kind: lambda path, kind=kind: read_examples(path, kind) for kind in KINDS},  # type: ignore[misc]
}


@pytest.mark.parametrize("content", BROKEN_JSON.values(), ids=BROKEN_JSON)
def test_broken_json_is_one_kind_of_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(JsonError, match=r"a\.json is not valid JSON"):
        read_json(path)
    with pytest.raises(ValueError):
        parse_json(content)
    for reader in READERS.values():
        for name in ("b.json", "b.jsonl"):
            path = tmp_path / name
            path.write_bytes(content)
            with pytest.raises(MaskwrightError):
                reader(path)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("suffix", [".txt", ".csv", ".jsonl", ".jsonl.gz", ".parquet"])
def test_pipes_are_refused(tmp_path: Path, name: str, suffix: str) -> None:
    with pytest.raises(DataError, match=r"not a regular file|is not read from the format"):
        READERS[name](pipe(tmp_path / f"a{suffix}"))


def test_pipes_and_devices_in_place_of_other_files(tmp_path: Path) -> None:
    pipe(tmp_path / "config.json")
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    for read in (read_json, lambda path: catalog.resolve(str(path)), lambda path: read_source(None, path)):
        for name in ("config.json", "zero.json"):
            with pytest.raises(MaskwrightError, match="not a regular file"):
                read(tmp_path / name)


def test_a_corpus_folder_passes_over_pipes_and_devices(tmp_path: Path) -> None:
    pipe(tmp_path / "a.txt")
    (tmp_path / "b.txt").symlink_to("/dev/zero")
    (tmp_path / "c.txt").write_text("A text.")
    (source,) = resolve_sources([tmp_path])
    assert [path.name for path in source.files] == ["c.txt"]
    assert dict(source.passed_over) == {"pipe or device": 2}


@pytest.mark.parametrize("suffix", [".txt", ".csv", ".jsonl"])
@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
@pytest.mark.parametrize("content", [b"a" * (1 << 20), b"text\n" * (1 << 18)])
def test_compression_bombs_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, compress: Callable[[bytes], bytes], content: bytes
) -> None:
    monkeypatch.setattr(files, "_ALWAYS_UNPACKED", 1 << 16)
    path = tmp_path / f"a{suffix}{'.gz' if compress is gzip.compress else '.zst'}"
    path.write_bytes(compress(content))
    for name in ("corpus", "texts", "classification"):
        with pytest.raises(DataError, match="unpacks to more than 100 times its"):
            READERS[name](path)


def test_lines_of_corpora_and_texts_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 1000)
    for name in ("a.jsonl", "a.csv"):
        path = tmp_path / name
        path.write_bytes(b'text\n"' + b"x" * 5_000_000 + b'"\n')
        for reader in (read_corpus, read_texts):
            with pytest.raises(DataError, match=rf"{name}, line 2: longer than 1,000 bytes|line 1: not JSON"):
                reader(path)


def test_a_table_of_many_columns_is_refused_at_once(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(50_000)]
    path = tmp_path / "a.csv"
    path.write_text("\n".join([",".join(names), *[",".join("1" * 50_000)] * 3]))
    for name in ("corpus", "texts", "classification", "question_answering"):
        with pytest.raises(DataError) as caught:
            READERS[name](path)
        assert len(str(caught.value)) < 10_000


TABLES = {
    ".csv": [
        b"text,label\nA good film.,pos\nA bad one.,neg\n",
        b'id;sentence1;sentence2;label\n1;"a ""b"" c";d;0\n2;x;"y\nz";1\n',
        b"context,question,answers,answer_start\nIn Rome.,Where?,Rome,3\n",
        b"sent1,sent2,ending0,ending1,label\na,b,c,d,0\ne,f,g,h,1\n",
    ],
    ".tsv": [b"index\ttext\tscore\n1\ta b\t0.5\n2\tc\t4,5\n", b"0\tx y z\n1\tw\n"],
    ".txt": [
        b"EU\tB-ORG\nsays\tO\n\nPeter\tB-PER\n.\tO\n",
        b"# id 1\nA X Y O\nB X Y B-LOC\n\nC X Y I-LOC\n",
        b"One sentence. Two.\n\n = Title = \n\nA @-@ b\n",
    ],
    ".md": [
        b"---\na: b\n---\n# Title\n\nSome *text* `x` [a](b) <!-- c -->\n\n| a | b |\n|--|--|\n\n```\ncode\n```\n> q\n",
    ],
    ".jsonl": [
        b'{"text": "a b", "label": "x", "spans": [[0, 1, "entity"]]}\n{"text": ["c", "d"], "label": 1}\n',
        b'{"tokens": ["a", "b"], "ner_tags": ["B-PER", "O"]}\n{"tokens": ["c"], "ner_tags": ["O"]}\n',
        b'{"article": "a", "questions": ["b"], "options": [["c", "d"]], "answers": ["A"], "id": "1"}\n' * 2,
    ],
    ".json": [
        json.dumps(
            {"data": [{"paragraphs": [{"context": "In Rome.", "qas": [
                {"id": "q1", "question": "Where?", "answers": [{"text": "Rome", "answer_start": 3}]},
                {"id": "q2", "question": "Who?", "answers": [], "is_impossible": True},
            ]}]}]}
        ).encode(),
        b'[[["A: hi", "B: hm"], [{"question": "who?", "choice": ["a", "b"], "answer": "a"}], "1-1"]]',
        b'[{"text": "a", "label": ["x", "y"]}, {"text": "b", "label": []}]',
    ],
}  # fmt: skip


@pytest.mark.parametrize("suffix", TABLES)
def test_damaged_tables_and_texts(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"

    @fuzzing
    @given(damaged(TABLES[suffix]), st.sampled_from(sorted(READERS)))
    def check(data: bytes, name: str) -> None:
        path.write_bytes(data)
        only_clear_errors(lambda: READERS[name](path))
        if name in KINDS:
            only_clear_errors(lambda: read_examples(path, name, ReadOptions(labels="ignored")))  # type: ignore[arg-type]

    check()


def test_altered_json(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    seeds = [json.loads(text) for text in TABLES[".json"]]
    lines = [[json.loads(line) for line in text.splitlines()] for text in TABLES[".jsonl"]]

    @fuzzing
    @given(
        st.sampled_from([*seeds, *lines]).flatmap(lambda seed: altered(seed, ["text", "label"])), st.sampled_from(KINDS)
    )
    def check(value: Any, kind: Kind) -> None:
        path.write_text(json.dumps(value))
        only_clear_errors(lambda: read_examples(path, kind))

    check()


def parquet(values: list[Any], **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(values), sink, **options)
    return sink.getvalue()


def test_damaged_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    rows = [
        {"text": f"a {number}", "label": number % 2, "tokens": ["a", "b"], "ner_tags": [0, 1]} for number in range(9)
    ]
    seeds = [parquet(rows, compression=name) for name in ("NONE", "SNAPPY", "ZSTD")]

    @fuzzing
    @given(damaged(seeds), st.sampled_from(sorted(READERS)))
    def check(data: bytes, name: str) -> None:
        path.write_bytes(data)
        only_clear_errors(lambda: READERS[name](path))

    check()
    data = parquet([{"text": "caf__", "label": "caf__"}] * 3, compression="NONE").replace(b"caf__", b"caf\xff\xfe")
    path.write_bytes(data)
    for name in ("corpus", "texts", "classification"):
        with pytest.raises(DataError, match="utf-8"):
            READERS[name](path)


def test_altered_recipes(tmp_path: Path) -> None:
    path = tmp_path / "recipe.json"
    recipes = [catalog.get(name).model_dump(mode="json") for name in ("bert/tiny", "electra/tiny", "ernie/tiny")]

    @fuzzing
    @given(st.sampled_from(recipes).flatmap(lambda recipe: altered(recipe, ["kind", "encodr"])))
    def check(recipe: Any) -> None:
        path.write_text(json.dumps(recipe))
        only_clear_errors(lambda: catalog.resolve(str(path)))

    check()


@fuzzing
@given(damaged([b"training.phases.0.max_length=64", b"masking={kind: token, rate: .2}", b"objectives=[mlm, nsp]"]))
def test_damaged_overrides(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    only_clear_errors(lambda: override(catalog.get("bert/tiny"), parse_overrides([text])))
