import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_batches import recipe, toy_text, workload
from toy_runs import CLEAN, TOY, train_toy, write_corpus

from maskwright.core.errors import CheckpointError, RecipeError
from maskwright.core.storage.files import read_json
from maskwright.core.types import Documents
from maskwright.fitting.budget import Budget
from maskwright.recipes.catalog import get
from maskwright.reporting.reporter import Reporter
from maskwright.training.pretrain import request_of
from maskwright.training.start.preparation import restore_prepared
from maskwright.training.steps.text import split
from maskwright.training.steps.transfer import map_tensors
from maskwright.training.steps.workload import build_workload
from recording import Recorder


def corpus(sentences_a_document: list[int], tokens: int = 10) -> Documents:
    last = np.cumsum(sentences_a_document)
    return Documents(np.arange(1, last[-1] + 1) * tokens, last - sentences_a_document, last)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=400), st.integers(0, 5))
def test_split_is_a_partition_of_all_sentences(sizes: list[int], seed: int) -> None:
    documents = corpus(sizes)
    parts = split(documents, seed)
    covered = np.zeros(sum(sizes), dtype=int)
    for part in (parts.train, parts.held_out):
        for first, last in zip(part.first, part.last, strict=True):
            covered[first:last] += 1
    assert (covered == 1).all()
    assert (parts.train.first < parts.train.last).all()
    assert parts.held_out.num_tokens <= 0.05 * documents.num_tokens


def test_a_single_long_document_still_gives_held_out_text() -> None:
    parts = split(corpus([5000]), 0)
    assert 0 < parts.held_out.num_tokens <= 2500
    assert parts.train.num_tokens + parts.held_out.num_tokens == 50_000


def test_held_out_text_is_bounded_and_keyed_by_the_seed() -> None:
    documents = corpus([20] * 5000)
    first, again, other = (split(documents, seed, max_tokens=4000) for seed in (1, 1, 2))
    assert 3000 <= first.held_out.num_tokens <= 4000
    assert np.array_equal(first.held_out.first, again.held_out.first)
    assert not np.array_equal(first.held_out.first, other.held_out.first)


def test_long_documents_give_their_beginnings_from_many_of_them() -> None:
    documents = corpus([3000] * 100)
    parts = split(documents, 0, max_tokens=16_000)
    assert len(parts.held_out) >= 16
    assert 14_000 <= parts.held_out.num_tokens <= 16_000
    assert len(parts.train) == 100


@pytest.mark.parametrize("name", ["bert/tiny", "electra/tiny", "spanbert/tiny", "macbert/tiny"])
def test_no_held_out_target_is_left_to_be_copied(name: str) -> None:
    seen = copied = 0
    for batch in workload(recipe(name=name), 4096, held_out_tokens=200).held_out:
        for micro in batch.micro_batches:
            wanted = micro.targets["mlm"]
            copied += int((micro.batch.ids[wanted.positions] == wanted.labels).sum())
            seen += len(wanted.labels)
    assert seen > 20
    # What is drawn at random may happen to be the original.
    assert copied <= 0.05 * seen


def test_held_out_batches_wait_on_the_cpu_and_training_batches_are_on_the_device() -> None:
    built = workload(recipe(name="electra/tiny"), 4096, held_out_tokens=200, device=torch.device("meta"))
    (phase,) = built.phases
    rows, _ = phase.sampler.read(phase.sampler.start(), 8)
    for batches, device in ((built.held_out, "cpu"), ([phase.collator.collate(rows, 0)], "meta")):
        tensors: list[torch.Tensor] = []
        for batch in batches:
            map_tensors(batch.micro_batches[0], tensors.append)
        assert {tensor.device.type for tensor in tensors} == {device}


def test_given_held_out_text_is_measured_whatever_the_seed_and_all_of_the_corpus_is_trained_on() -> None:
    text, other = toy_text(), toy_text()
    built = [
        build_workload(
            recipe(), replace(text, held_out=other), seed=seed, held_out_tokens=10_000, tokens_per_microbatch=128
        )
        for seed in (1, 2)
    ]
    assert built[0].held_out_documents.num_tokens == built[1].held_out_documents.num_tokens > 0
    for one, two in zip(built[0].held_out, built[1].held_out, strict=True):
        assert torch.equal(one.micro_batches[0].batch.ids, two.micro_batches[0].batch.ids)
    (sources,) = built[0].phases[0].sampler.sources
    assert sources.num_tokens == text.documents.num_tokens


@pytest.mark.slow
def test_a_run_is_measured_on_the_held_out_file_and_not_resumed_with_another(tmp_path: Path) -> None:
    texts = write_corpus(tmp_path / "texts.txt", documents=8, seed=5).read_text(encoding="utf-8").split("\n\n")
    (held_out := tmp_path / "held_out.jsonl").write_text("\n".join(json.dumps({"comment": text}) for text in texts))
    run = train_toy(tmp_path, held_out=held_out, steps=2, reporter=(recorder := Recorder()))
    assert "held_out.jsonl: texts from the column 'comment'" in recorder.on("held out")
    assert run.held_out["mlm"].count > 0
    with pytest.raises(CheckpointError, match="held_out"):
        train_toy(tmp_path, held_out=tmp_path / "corpus.txt", steps=2)
    assert not recorder.on("warning")
    train_toy(tmp_path, "seen", held_out=tmp_path / "corpus.txt", steps=2, reporter=(recorder := Recorder()))
    [warning] = recorder.on("warning")
    assert warning.startswith(f"{tmp_path / 'corpus.txt'}: given as held-out text, but also part of the training text")
    record = read_json(tmp_path / "run" / "run.json")
    held_out.write_text('{"comment": "Another text, which is not the one that was measured before."}', encoding="utf-8")
    with pytest.raises(RecipeError, match="the held-out text has changed"):
        restore_prepared(
            request_of(
                tmp_path / "corpus.txt",
                recipe="bert/tiny",
                budget=Budget("steps", 2),
                set=TOY,
                clean=CLEAN,
                held_out=held_out,
                workers=1,
            ),
            get("bert/tiny"),
            tmp_path / "run",
            record,
            Reporter(),
        )
