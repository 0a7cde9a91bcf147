"""Text prepared ahead: a run trains on it, without the corpus, as on the corpus itself."""

import os
import pickle
import random
import shutil
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from toy_runs import CLEAN, TOY, assert_same_files, train_toy, write_corpus

from maskwright.core.errors import DataError
from maskwright.data.cleaning import deduplication
from maskwright.data.shards.tokenize import tokenize_corpus
from maskwright.data.sources import readers
from maskwright.data.sources.arguments import PREPARED
from maskwright.reporting.reporter import Reporter
from maskwright.training.start.prepared_text import prepare
from recording import Recorder

TOKENIZER = "tokenizer.vocab_size=300"


def prepare_toy(folder: Path, out: str | Path, documents: int = 60, **changes: Any) -> str:
    write_corpus(corpus := folder / "corpus.txt", documents)
    settings = {"recipe": "bert/tiny", "set": [TOKENIZER], "clean": CLEAN, "reporter": Reporter(), "workers": 1}
    return prepare(corpus, out=out, **{**settings, **changes}).digest


def test_a_run_on_prepared_text_is_the_run_on_the_corpus(tmp_path: Path) -> None:
    prepare_toy(tmp_path, tmp_path / "prepared")
    undisturbed = train_toy(tmp_path)
    (tmp_path / "corpus.txt").unlink()
    settings = [each for each in TOY if each != TOKENIZER]
    run = train_toy(tmp_path, "other", corpus=tmp_path / "prepared", clean=(), set=settings, cache=tmp_path / "empty")
    assert_same_files(undisturbed, run, "model.safetensors", "tokenizer.json")
    assert not list((tmp_path / "empty").glob("tokens-*"))


def test_other_cleaning_is_refused_and_another_vocabulary_trained(tmp_path: Path) -> None:
    prepare_toy(tmp_path, tmp_path / "prepared")
    with pytest.raises(DataError, match=r"another cleaning \(unicode, deduplicate\)"):
        train_toy(tmp_path, corpus=tmp_path / "prepared", clean=("unicode=NFKC",))
    smaller = [each if each != TOKENIZER else "tokenizer.vocab_size=190" for each in TOY]
    run = train_toy(tmp_path, corpus=tmp_path / "prepared", set=smaller, steps=1)
    assert len((run.folder / "vocab.txt").read_text().splitlines()) == 190


def test_another_kind_of_tokenizer_is_trained_on_the_text(tmp_path: Path) -> None:
    prepare_toy(tmp_path, tmp_path / "prepared")
    settings, recorder = [each for each in TOY if each != TOKENIZER], Recorder()
    train_toy(tmp_path, corpus=tmp_path / "prepared", recipe="roberta/tiny", set=settings, steps=1, reporter=recorder)
    (message,) = recorder.on("tokenizer")
    assert message.endswith("tokenized again: tokenizer.kind is byte_bpe, there wordpiece")


def test_a_given_tokenizer_is_that_of_the_run(tmp_path: Path) -> None:
    prepare_toy(tmp_path, tmp_path / "first")
    (folder,) = (tmp_path / "first").glob("tokenizer-*")
    prepare_toy(tmp_path, tmp_path / "prepared", tokenizer=folder, set=())
    settings = [each for each in TOY if each != TOKENIZER]
    run = train_toy(tmp_path, corpus=tmp_path / "prepared", clean=(), set=settings, cache=tmp_path / "empty", steps=1)
    assert (run.folder / "vocab.txt").read_bytes() == (folder / "vocab.txt").read_bytes()
    assert not list((tmp_path / "empty").glob("tok*"))


@pytest.mark.parametrize("name", ["book.txt", "model.safetensors", "chapters"])
def test_folders_of_something_else_are_no_target(tmp_path: Path, name: str) -> None:
    (tmp_path / "out" / name).mkdir(parents=True)
    with pytest.raises(DataError, match=f"contains '{name}'"):
        prepare_toy(tmp_path, tmp_path / "out")


def test_only_pretrain_reads_prepared_text(tmp_path: Path) -> None:
    prepare_toy(tmp_path, tmp_path / "prepared")
    with pytest.raises(DataError, match="prepared text"):
        prepare([tmp_path / "corpus.txt", tmp_path / "prepared"], out=tmp_path / "twice", reporter=Reporter())
    with pytest.raises(DataError, match="prepared text"):
        prepare(tmp_path / "prepared", out=tmp_path / "twice", reporter=Reporter())


def test_damaged_prepared_text_is_refused(tmp_path: Path) -> None:
    prepare_toy(tmp_path, tmp_path / "prepared")
    record = tmp_path / "prepared" / PREPARED
    record.write_text(record.read_text().replace("clean-", "clean_"))
    with pytest.raises(DataError, match=r"prepared.json cannot be used.*maskwright prepare"):
        train_toy(tmp_path, corpus=tmp_path / "prepared", clean=())


class LostNodes(Executor):
    """Runs waiting calls in any order once a result is wanted, and a tenth of them twice."""

    def __init__(self) -> None:
        self.random = random.Random(0)
        self.waiting: list[Callable[[], None]] = []
        self.most_waiting = self.repeated = 0

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **_: Any) -> "Future[Any]":
        executor = self
        sent = pickle.dumps((function, arguments))

        class Result(Future[Any]):
            def run(self) -> None:
                for _ in range(again := 1 + (executor.random.random() < 0.1)):
                    function, arguments = pickle.loads(sent)
                    result = pickle.dumps(function(*arguments))
                executor.repeated += again - 1
                self.set_result(pickle.loads(result))

            def result(self, timeout: float | None = None) -> Any:
                while not self.done():
                    number = executor.random.randrange(len(executor.waiting))
                    executor.waiting.pop(number)()
                return super().result()

        future = Result()
        self.waiting.append(future.run)
        self.most_waiting = max(self.most_waiting, len(self.waiting))
        return future


@pytest.mark.slow
def test_512_workers_in_any_order_with_repeated_calls_give_the_bytes_of_one(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # takes most of the time
    monkeypatch.setattr(readers, "BLOCK_BYTES", 100)
    monkeypatch.setattr(deduplication, "STORED_BLOCK_BYTES", 1000)
    monkeypatch.setattr(deduplication, "PARTITION_BYTES", 3000)
    monkeypatch.setitem(tokenize_corpus.__kwdefaults__, "shard_tokens", 512)
    one = prepare_toy(tmp_path, tmp_path / "one", documents=600, clean=())
    nodes = LostNodes()
    assert prepare_toy(tmp_path, tmp_path / "many", documents=600, clean=(), engine=nodes, workers=512) == one
    assert nodes.most_waiting > 512
    assert nodes.repeated > 50


def test_engines_and_folders_give_the_same_bytes(tmp_path: Path, store: Any) -> None:
    digest = prepare_toy(tmp_path, tmp_path / "one")
    with ThreadPoolExecutor(2) as executor:
        assert prepare_toy(tmp_path, tmp_path / "other", engine=executor) == digest
    url = "memory://prepared/toy.v2"
    assert prepare_toy(tmp_path, url, cache=tmp_path / "cache") == digest
    shutil.rmtree(tmp_path / "cache")
    run = train_toy(tmp_path, corpus=url, clean=(), steps=1)
    assert run.finished
    # Downloaded once: what is in the store is not asked for again.
    for name in store.find("/prepared/toy.v2"):
        if not name.endswith(PREPARED):
            store.rm(name)
    assert train_toy(tmp_path, "again", corpus=url, clean=(), steps=1).finished
