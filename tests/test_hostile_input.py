"""Whatever a file contains, reading it ends with a result or with one of the project's own errors.

No other exception, no endless reading, no memory beyond a multiple of the file, nothing outside the named folder.
"""

import gzip
import io
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from maskwright.checkpoints.checkpoint import read_checkpoint
from maskwright.checkpoints.config_json import from_json, to_json
from maskwright.checkpoints.families import family_named
from maskwright.checkpoints.refusals import position_offset
from maskwright.checkpoints.task_entries import entries_from_json
from maskwright.core.errors import ConversionError, DataError, JsonError, MaskwrightError, RecipeError
from maskwright.core.spec import fingerprint, override, parse_overrides
from maskwright.core.storage.files import parse_json, read_json, write_json
from maskwright.core.types import FamilyName, SpecialTokens
from maskwright.data import files
from maskwright.data.files import BadLine
from maskwright.data.sources import readers
from maskwright.data.sources.arguments import resolve_sources
from maskwright.data.sources.readers import documents_of, raw_blocks
from maskwright.data.tokenizers.stream_encoder import StreamEncoder
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.finetuning.readers import read_examples
from maskwright.finetuning.readers.options import Kind, ReadOptions
from maskwright.inference.model import load
from maskwright.inference.texts import read_source, read_texts
from maskwright.model.config import EncoderConfig
from maskwright.recipes import catalog
from maskwright.serving import model_card
from maskwright.serving.export import export
from maskwright.serving.parity import texts_for
from tests.hostile import BROKEN_JSON, altered, damaged, fuzzing, only_clear_errors, pipe

KINDS: tuple[Kind, ...] = get_args(Kind)


def read_corpus(path: Path) -> list[str]:
    def refuse(bad: BadLine) -> None:
        raise bad.error()

    blocks = raw_blocks(resolve_sources([path]), "auto", [refuse])
    return [text for block in blocks for piece in block.pieces for text in documents_of(piece, refuse)]


READERS: dict[str, Callable[[Path], object]] = {
    "corpus": read_corpus,
    "texts": read_texts,
    **{kind: lambda path, kind=kind: read_examples(path, kind) for kind in KINDS},
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


@pytest.mark.parametrize("suffix", [".txt", ".csv", ".jsonl", ".jsonl.gz", ".parquet"])
def test_pipes_are_refused(tmp_path: Path, suffix: str) -> None:
    path = pipe(tmp_path / f"a{suffix}")
    for read in READERS.values():
        with pytest.raises(DataError, match=r"not a regular file|is not read from the format"):
            read(path)


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
    assert dict(source.ignored_files) == {"pipe or device": 2}


@pytest.mark.parametrize("suffix", [".txt", ".csv", ".jsonl"])
@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
@pytest.mark.parametrize("content", [b"a" * (1 << 20), b"text\n" * (1 << 18)])
def test_compression_bombs_are_refused(tmp_path, monkeypatch, suffix, compress, content):
    monkeypatch.setattr(files, "_ALWAYS_UNPACKED", 1 << 16)
    path = tmp_path / f"a{suffix}{'.gz' if compress is gzip.compress else '.zst'}"
    path.write_bytes(compress(content))
    for name in ("corpus", "texts", "classification"):
        with pytest.raises(DataError, match="unpacks to more than 100 times its"):
            READERS[name](path)


def test_lines_of_corpora_and_texts_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (files, readers):
        monkeypatch.setattr(module, "MAX_LINE_BYTES", 1000)
    for name in ("a.jsonl", "a.csv"):
        path = tmp_path / name
        path.write_bytes(b'text\n"' + b"x" * 5_000_000 + b'"\n')
        for reader in (read_corpus, read_texts):
            with pytest.raises(DataError, match=rf"{name}, line 2: longer than 1,000 bytes|line 1: not JSON"):
                reader(path)


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("suffix", [".txt", ".csv", ".jsonl", ".md"])
def test_utf_16_without_a_mark_is_refused(tmp_path: Path, suffix: str, codec: str) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes('{"text": "A good film.", "label": "Größe"}\n\n{"text": "b", "label": "x"}\n'.encode(codec))
    for name in ("corpus", "texts", "classification"):
        with pytest.raises(DataError, match=rf"UTF-16.*iconv -f {codec.upper().replace('16-', '16')}|not read from"):
            READERS[name](path)
    if suffix == ".jsonl":
        examples = read_examples(path, "classification", ReadOptions(encoding=codec)).examples
        assert [each.label for each in examples] == ["Größe", "x"]


def test_a_few_nulls_in_text_are_no_utf_16(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"A text with\0 a NUL.\n")
    assert len(read_corpus(tmp_path / "a.txt")) == 1


@pytest.mark.parametrize("number", ["1e308", "-1e308", "1e31", "1e999", "nan", "-inf"])
def test_numbers_whose_squares_overflow_are_no_labels(tmp_path: Path, number: str) -> None:
    (tmp_path / "a.csv").write_text(f"text,label\na,{number}\nb,{number}\n")
    with pytest.raises(DataError, match=number):
        read_examples(tmp_path / "a.csv", "regression")


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
            only_clear_errors(lambda: read_examples(path, name, ReadOptions(labels="ignored")))

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


@pytest.mark.parametrize("mark", ["<!--", "<table ", "*a ", "_a ", "`a", "[a](", "= ", " = a", "> "])
def test_marks_without_end_take_linear_time(tmp_path: Path, mark: str) -> None:
    path = tmp_path / ("a.txt" if "=" in mark else "a.md")
    path.write_text(" = Title = \n" + mark * (40_000 // len(mark)))
    begun = time.process_time()
    read_corpus(path)
    assert time.process_time() - begun < 5  # it takes well below a second; minutes if quadratic


def test_file_names_that_are_not_utf_8(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.csv"))
    path.write_text("text,label\nA text.,a\nAnother.,b\n")
    for name in ("corpus", "texts", "classification"):
        READERS[name](path)
    write_json(tmp_path / "a.json", {"path": str(path)})
    assert read_json(tmp_path / "a.json") == {"path": str(path)}
    assert fingerprint(str(path)) != fingerprint("")


@pytest.mark.parametrize(
    "setting",
    [
        *("tokenizer.vocab_size=1000000000", "encoder.num_layers=1000000000", "encoder.hidden_size=1000000000000"),
        *("encoder.num_groups=1000000000000", "training.phases.0.max_length=1000000000000"),
    ],
)
def test_absurd_sizes_are_refused_at_once(setting: str) -> None:
    with pytest.raises(RecipeError):
        catalog.resolve("bert/tiny", [setting])


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


@pytest.mark.parametrize("family", ["bert", "albert", "roberta", "distilbert", "electra", "ernie"])
def test_altered_configurations(family: FamilyName) -> None:
    special = SpecialTokens(pad=0, unk=1, cls=2, sep=3, mask=4, vocab_size=40, names=tuple("abcde"))
    table = family_named(family)
    config = EncoderConfig(
        **{"hidden_size": 8, "num_layers": 2, "num_heads": 2, "intermediate_size": 16, **table.config.fixed},
        position_offset=position_offset(table, 0),
        pooler=False,
        hidden_activation=table.config.head_activation or "gelu",
    )
    seed = to_json(table, config, special, frozenset(), 32)
    labeled = {"id2label": {"0": "a", "1": "b"}, "problem_type": "regression", "sharing": "all"}
    seeds = st.sampled_from([seed, seed | labeled])

    @fuzzing
    @given(seeds.flatmap(lambda one: altered(one, [*seed, *labeled, "num_groups", "num_labels", "model_type"])))
    def check(data: Any) -> None:
        only_clear_errors(lambda: from_json(table, data, "config.json"))
        only_clear_errors(lambda: entries_from_json(table, data, "sequence", 0.1, "config.json"))

    check()


@pytest.fixture
def copied(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(request.getfixturevalue(request.param), tmp_path / "model"))


@pytest.mark.parametrize("copied", ["bert_folder", "electra_folder"], indirect=True)
def test_altered_model_folders(copied: Path) -> None:
    config = copied / "config.json"
    seed = json.loads(config.read_text())

    @fuzzing
    @given(altered(seed, [*seed, "sharing", "num_groups", "id2label", "num_labels", "trained_length", "pair_head"]))
    def check(data: Any) -> None:
        config.write_text(json.dumps(data))
        only_clear_errors(lambda: load(copied).embed("the cat sat"))

    check()


@pytest.mark.parametrize("copied", ["bert_folder"], indirect=True)
def test_damaged_weights(copied: Path) -> None:
    weights = copied / "model.safetensors"
    seed = weights.read_bytes()
    header = 8 + int.from_bytes(seed[:8], "little")
    index = json.dumps({"metadata": {}, "weight_map": {"a": "model-1.safetensors"}}).encode()

    @fuzzing
    @given(damaged([seed[:header]]), damaged([index]))
    def check(data: bytes, index: bytes) -> None:
        weights.write_bytes(data + seed[header:])
        only_clear_errors(lambda: read_checkpoint(copied))
        weights.unlink()
        (copied / "model.safetensors.index.json").write_bytes(index)
        only_clear_errors(lambda: read_checkpoint(copied))

    check()


def with_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> Path:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("copied", ["bert_folder"], indirect=True)
@pytest.mark.parametrize(
    "dtype",
    [torch.uint8, torch.int8, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn],
    ids=str,
)
def test_weights_of_other_types_are_refused(copied: Path, dtype: torch.dtype) -> None:
    tensors = load_file(copied / "model.safetensors")
    for name in ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias", "unknown.weight"):
        save_file({**tensors, name: torch.ones(73, 48).to(dtype)}, copied / "model.safetensors")
        with pytest.raises(ConversionError, match=name):
            read_checkpoint(copied)


@pytest.mark.parametrize("copied", ["bert_folder"], indirect=True)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300])
@pytest.mark.parametrize("name", ["bert.embeddings.word_embeddings.weight", "unknown.weight"])
def test_weights_that_are_not_finite_are_refused(copied: Path, value: float, name: str) -> None:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        tensors[name] = tensors.get(name, torch.zeros(3, 3)).double()
        tensors[name][2, 1] = value

    with_weights(copied, change)
    with pytest.raises(ConversionError, match="NaN or infinite"):
        read_checkpoint(copied)
    with pytest.raises(ConversionError, match="NaN or infinite"):
        export(copied, to="hub", out=copied.parent / "out")
    assert not (copied.parent / "out").exists()


@pytest.mark.parametrize("copied", ["bert_folder"], indirect=True)
def test_large_weights_whose_sum_overflows_are_read(copied: Path) -> None:
    with_weights(copied, lambda tensors: tensors.update({"unknown": torch.full((2,), 3e38), "one": torch.ones(())}))
    assert read_checkpoint(copied).unexpected == ("one", "unknown")


@pytest.mark.parametrize("copied", ["bert_folder"], indirect=True)
@pytest.mark.parametrize(("old", "modern"), [("gamma", "weight"), ("beta", "bias")])
def test_two_names_of_one_weight_are_refused(copied: Path, old: str, modern: str) -> None:
    name = "bert.embeddings.LayerNorm."
    with_weights(copied, lambda tensors: tensors.update({name + old: tensors[name + modern] + 1}))
    with pytest.raises(ConversionError, match=rf"both {name}{old} and {name}{modern}"):
        read_checkpoint(copied)


@pytest.mark.parametrize("copied", ["bert_folder"], indirect=True)
def test_a_pipe_as_weights_is_refused(copied: Path) -> None:
    (copied / "model.safetensors").unlink()
    pipe(copied / "model.safetensors")
    with pytest.raises(ConversionError, match="not a regular file"):
        read_checkpoint(copied)


@pytest.mark.parametrize("copied", ["electra_folder"], indirect=True)
def test_a_generator_that_cannot_be_read_is_not_exported(copied: Path) -> None:
    name = "electra.embeddings.word_embeddings.weight"
    with_weights(copied / "generator", lambda tensors: tensors[name].fill_(float("nan")))
    with pytest.raises(ConversionError, match=r"generator.*NaN"):
        export(copied, to="hub", out=copied.parent / "out")


@pytest.mark.parametrize(
    "name", ["../model.safetensors", "/etc/passwd", "..", ".", "", "a/b", "a\0b", "\ud800", None, 3]
)
@pytest.mark.parametrize("copied", ["bert_folder"], indirect=True)
def test_an_index_names_only_files_beside_it(copied: Path, name: Any) -> None:
    (copied / "model.safetensors").rename(copied.parent / "model.safetensors")
    (copied / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(ConversionError):
        read_checkpoint(copied)


CARD_FILES: dict[str, Any] = {
    "run.json": {
        "request": {"recipe": {"name": "bert/tiny", "paper": "p"}, "budget": {"seconds": 60.0}, "seed": 3},
        "result": {
            **{"steps": 7, "tokens": 12345, "epochs": 1.5, "flops": 1e9, "baseline": {"loss": 3.0, "accuracy": 0.1}},
            "held_out": {"mlm": {"loss": 2.5, "accuracy": 0.456, "count": 99, "details": {}}},
        },
        "begun_with": {"model": "a/b"},
    },
    "data_card.json": {
        "fingerprint": "f00d",
        "sources": [{"name": "a", "kept": {"documents": 1, "sentences": 2, "characters": 3}, "examples": ["A text."]}],
        "total": {"kept": {"documents": 1, "sentences": 2, "characters": 3}, "scripts": {"Latin": 1.0}},
    },
    "recipe.json": catalog.get("bert/tiny").model_dump(mode="json"),
}


@pytest.mark.parametrize("copied", ["bert_folder"], indirect=True)
def test_altered_records_in_model_cards(copied: Path) -> None:
    loaded = read_checkpoint(copied)

    def card() -> str:
        return model_card.text("a", loaded, "mlm", "hub", [], license="unknown", language=None)

    for name, content in CARD_FILES.items():
        write_json(copied / name, content)
    assert "## Training" in card()

    @fuzzing
    @given(st.sampled_from(sorted(CARD_FILES)), st.data())
    def check(name: str, data: st.DataObject) -> None:
        (copied / name).write_text(json.dumps(data.draw(altered(CARD_FILES[name], ["kept", "result"]))))
        only_clear_errors(card)
        only_clear_errors(lambda: texts_for(copied, None))
        write_json(copied / name, CARD_FILES[name])

    check()


@pytest.mark.parametrize("copied", ["bert_folder"], indirect=True)
def test_records_of_another_type_in_model_cards(copied: Path) -> None:
    for name in ("run.json", "data_card.json"):
        for content in ("[]", "3", "null", '"x"', '{"sources": 3, "total": []}', '{"request": 3}'):
            (copied / name).write_text(content)
            only_clear_errors(lambda: export(copied, to="hub", out=copied.parent / "out"))
            shutil.rmtree(copied.parent / "out", ignore_errors=True)
        (copied / name).unlink()


@pytest.mark.parametrize(
    "changes",
    [
        *({"hidden_size": 48.0}, {"hidden_size": "48"}, {"num_hidden_layers": True}, {"vocab_size": 73.0}),
        *({"layer_norm_eps": "1e-12"}, {"layer_norm_eps": True}, {"tie_word_embeddings": "x"}, {"pad_token_id": 0.0}),
    ],
)
@pytest.mark.parametrize("copied", ["bert_folder"], indirect=True)
def test_configuration_values_of_another_type_are_refused(copied: Path, changes: dict[str, Any]) -> None:
    config = copied / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | changes))
    with pytest.raises(ConversionError, match=next(iter(changes))):
        read_checkpoint(copied)


@pytest.mark.parametrize(
    "changes",
    [
        *({"model_max_length": value} for value in ("x", [], True, -1, 0, float("nan"))),
        *({"chat_template": value} for value in ("{{ ''.__class__ }}", [{"x": 1}], None)),
    ],
)
@pytest.mark.parametrize("copied", ["bert_folder"], indirect=True)
def test_tokenizer_settings_that_others_cannot_load_are_not_exported(copied: Path, changes: dict[str, Any]) -> None:
    settings = copied / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | changes))
    with pytest.raises(ConversionError, match=next(iter(changes)).replace("_", "[_ ]")):
        export(copied, to="hub", out=copied.parent / "out")


@pytest.mark.parametrize("ids", [[], {"a": -1}, {"a": 1e9}, {"a": "x"}, {"a": None}, {"a": 10**30}, {"a": True}])
@pytest.mark.parametrize("copied", ["bert_folder"], indirect=True)
def test_ids_of_added_tokens_that_are_no_ids_are_refused(copied: Path, ids: Any) -> None:
    (copied / "added_tokens.json").write_text(json.dumps(ids))
    with pytest.raises(DataError, match="added_tokens"):
        Tokenizer.from_folder(copied)


TEXTS = [
    "The cats sat on the mat, running. 我爱北京 <mask> [MASK]",
    "",
    " ",
    "é" * 50,
    "a" * 3000,
    "\x00 \u2028 \U0010ffff",
]


def use(folder: Path) -> None:
    tokenizer = Tokenizer.from_folder(folder)
    for text in TEXTS:
        tokenizer.decode(tokenizer.encode(text, special_tokens_in_text=True).ids)
        tokenizer.encode_around_masks(text)
    tokenizer.encode_batch(TEXTS)
    StreamEncoder(tokenizer, with_offsets=True).encode(TEXTS)
    tokenizer.token_text(5)
    tokenizer.save(folder / "saved")


@pytest.mark.parametrize("copied", ["bert_folder", "roberta_folder"], indirect=True)
def test_altered_tokenizers(copied: Path) -> None:
    Tokenizer.from_folder(copied).save(copied)
    seed = json.loads((copied / "tokenizer.json").read_text())
    names = ["normalizer", "pre_tokenizer", "type", "pattern", "continuing_subword_prefix", "max_input_chars_per_word"]

    @fuzzing
    @given(altered(seed, names))
    def check(data: Any) -> None:
        (copied / "tokenizer.json").write_text(json.dumps(data))
        only_clear_errors(lambda: use(copied))

    check()


@pytest.mark.parametrize("copied", ["bert_folder", "roberta_folder"], indirect=True)
def test_damaged_tokenizer_files(copied: Path) -> None:
    Tokenizer.from_folder(copied).save(copied)
    (copied / "tokenizer.json").unlink()
    seeds = {path.name: path.read_bytes() for path in copied.iterdir() if path.suffix in (".txt", ".json")}
    del seeds["config.json"]

    @fuzzing
    @given(st.sampled_from(sorted(seeds)).flatmap(lambda name: st.tuples(st.just(name), damaged([seeds[name]]))))
    def check(change: tuple[str, bytes]) -> None:
        for name, content in (*seeds.items(), change):
            (copied / name).write_bytes(content)
        only_clear_errors(lambda: use(copied))
        shutil.rmtree(copied / "saved", ignore_errors=True)

    check()


def replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
TEMPLATE = {"type": "TemplateProcessing", "pair": [], "special_tokens": {}}
GROWING: dict[str, dict[str, Any]] = {
    "long replacement": {"normalizer": replace({"String": "a"}, "a b " * 1000)},
    "doubled 40 times": {
        "normalizer": {"type": "Sequence", "normalizers": [replace({"String": "a"}, "aa")] * 40},
    },
    "empty matches": {"normalizer": {"type": "Sequence", "normalizers": [replace({"Regex": "(?=.)"}, "a")] * 40}},
    "bytes of bytes": {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [BYTES] * 40}},
    "long beginning": {"normalizer": {"type": "Prepend", "prepend": "a b " * 100_000}},
    "text many times": {"post_processor": {**TEMPLATE, "single": [{"Sequence": {"id": "A", "type_id": 0}}] * 1000}},
    "nested templates": {
        "post_processor": {
            "type": "Sequence",
            "processors": [{**TEMPLATE, "single": [{"Sequence": {"id": "A", "type_id": 0}}] * 2}] * 40,
        }
    },
    "decoded": {"decoder": {"type": "Sequence", "decoders": [replace({"String": "a"}, "aa")] * 40}},
}


@pytest.mark.parametrize("change", GROWING.values(), ids=GROWING)
@pytest.mark.parametrize("copied", ["bert_folder"], indirect=True)
def test_tokenizers_that_multiply_text_are_refused(copied: Path, change: dict[str, Any]) -> None:
    Tokenizer.from_folder(copied).save(copied)
    path = copied / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError, match=r"times as long|tokens of"):
        Tokenizer.from_folder(copied)


@pytest.mark.parametrize("copied", ["bert_folder"], indirect=True)
@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(?:a?){500}a{500}", "(", r"(\w+\s?)*$"])
def test_regular_expressions_that_backtrack_end_in_an_error(copied: Path, pattern: str) -> None:
    Tokenizer.from_folder(copied).save(copied)
    path = copied / "tokenizer.json"
    data = json.loads(path.read_text())
    data["pre_tokenizer"] = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    path.write_text(json.dumps(data))
    only_clear_errors(lambda: Tokenizer.from_folder(copied).encode("a" * 5000 + "!"))
    only_clear_errors(lambda: Tokenizer.from_folder(copied).encode_batch(["a" * 5000 + "!"]))
    only_clear_errors(lambda: StreamEncoder(Tokenizer.from_folder(copied)).encode(["a" * 5000 + "!"]))
