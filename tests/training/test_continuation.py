"""Continued pretraining without a recipe: the model's own shape, a new head, and results before and after."""

import signal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy_models import LENGTH, save_toy
from toy_runs import Train, assert_same_files, killed_after, train_toy, write_corpus

from maskwright.checkpoints.checkpoint import read_checkpoint
from maskwright.checkpoints.sentence_folder import SentenceModules, read_sentence_modules
from maskwright.core.storage.files import read_json
from maskwright.core.types import AnnotatedTokens, Documents, SpecialTokens
from maskwright.fitting.budget import Budget
from maskwright.machine.contention import SpinControl
from maskwright.model.encoder import Encoder
from maskwright.pretext.replacement.base import VocabularyFacts
from maskwright.recipes import catalog
from maskwright.reporting.metrics import read_rows
from maskwright.reporting.reporter import Reporter
from maskwright.training.runs import checkpoint
from maskwright.training.runs.report import html
from maskwright.training.start.continuation import Quality, recipe_of, sentence_similarity, split_budget, verdict
from maskwright.training.start.existing import open_existing
from maskwright.training.steps.step import ObjectiveResult
from maskwright.training.steps.text import Text
from recording import Recorder


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("continuation")


@pytest.fixture(scope="module")
def train(shared: Path) -> Train:
    corpus = write_corpus(shared / "corpus.txt", documents=200)
    return partial(train_toy, shared, corpus=corpus, recipe=None, set=(), steps=10)


def test_a_sentence_embedder_keeps_its_length_pooling_and_normalization(train, embedder, tmp_path):
    recorder = Recorder()
    run = train(tmp_path / "run", init=embedder, reporter=recorder)
    assert run.finished
    assert read_sentence_modules(run.folder) == SentenceModules(pooling="first", normalize=True, max_length=LENGTH)
    assert read_json(run.folder / "tokenizer_config.json")["model_max_length"] == LENGTH
    before, after = read_checkpoint(embedder), read_checkpoint(run.folder)
    assert (after.config, after.heads, after.max_length) == (before.config, ("mlm",), LENGTH)
    assert "--train sentences.txt" in recorder.on("warning", "--task embedding")[0]
    assert recorder.on("head")
    assert "training the new head (steps) 1 of 1" in recorder.progress
    assert len(recorder.on("verdict")) == 2
    quality = read_json(run.folder / "run.json")["result"]["quality"]
    assert 0 <= quality["before"]["similarity"] <= 1
    assert quality["before"]["head_tokens"] > 0
    assert quality["after"]["held_out"]["mlm"] == read_json(run.folder / "run.json")["result"]["held_out"]["mlm"]
    page = html(run.folder)
    assert f"{100 * quality['before']['similarity']:.1f} %" in page


def test_a_new_head_is_trained_alone_first(train, embedder, tmp_path, monkeypatch):
    checks: list[SpinControl] = []
    monkeypatch.setattr(SpinControl, "check", lambda control: checks.append(control))
    # At a learning rate of nearly 0, the encoder of the run is the model's, and only the head has changed.
    still = ("training.learning_rate=1e-12",)
    run, other = (train(tmp_path / str(steps), init=embedder, steps=steps, set=still) for steps in (10, 30))
    state, source = read_checkpoint(run.folder).state, read_checkpoint(embedder).state
    for name, tensor in source.items():
        torch.testing.assert_close(state[name], tensor, rtol=0, atol=1e-9)
    head = "heads.mlm.dense.weight"
    assert (read_checkpoint(other.folder).state[head] - state[head]).abs().max() > 1e-4
    assert (run.steps, other.steps) == (9, 27)
    assert len(checks) == 40  # The load is checked after the head's 4 steps too.


def test_a_resumed_run_of_a_model_s_own_recipe_is_the_same(train: Train, embedder: Path, tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", init=embedder)
    with killed_after(4):
        train(tmp_path / "killed", init=embedder, checkpoint_minutes=0.0)
    resumed = train(tmp_path / "killed", init=embedder)
    assert_same_files(whole, resumed)
    assert resumed.quality == whole.quality


@pytest.mark.parametrize(
    ("recipe", "objectives"),
    [
        ("bert/tiny", ("mlm", "nsp")),
        ("roberta/tiny", ("mlm",)),
        ("albert/tiny", ("mlm", "sop")),
        ("distilbert/tiny", ("mlm",)),
        ("macbert/tiny", ("mlm", "sop")),
        ("modernbert/tiny", ("mlm",)),
        ("electra/tiny", ("mlm",)),
    ],
)
def test_the_objectives_are_those_that_the_heads_can_serve(recipe, objectives, tmp_path):
    changes = ("encoder.position_offset=1",) if recipe == "roberta/tiny" else ()
    model = open_existing(str(save_toy(tmp_path, recipe, "tokenizer.vocab_size=300", *changes)))
    made = recipe_of(model)
    assert tuple(each.kind for each in made.objectives) == objectives
    assert (made.encoder, made.family, made.training.max_length) == (model.config, model.family, 32)
    assert made.provides.isdisjoint({"next_sentence_label", "order_label"}) != (len(objectives) == 2)


def test_a_run_continues_with_its_own_recipe(train: Train, tmp_path: Path) -> None:
    rate = ("masking.rate=0.3", 'training.phases=[{"share": 1.0, "max_length": 24}]')
    shape = ("encoder.hidden_size=32", "encoder.num_heads=2", "encoder.num_layers=1", "encoder.intermediate_size=64")
    first = train(tmp_path / "first", recipe="spanbert/tiny", set=(*rate, *shape, "tokenizer.vocab_size=300"), steps=2)
    made = recipe_of(open_existing(str(first.folder)))
    assert (made.masking.kind, made.masking.rate, made.training.max_length) == ("span", 0.3, 24)
    second = train(tmp_path / "second", init=first.folder, steps=2)
    assert read_json(second.folder / "run.json")["begun_with"]["new"] == []


@pytest.mark.parametrize(("unit", "amount", "head"), [("steps", 10, 1), ("steps", 4, 0), ("tokens", 50_000, 5_000)])
def test_the_head_s_part_and_the_rest_are_the_budget(unit: Any, amount: float, head: float) -> None:
    recipe, record = catalog.get("bert/tiny"), {"request": {"as_published": False}}
    assert split_budget(Budget(unit, amount), recipe, record) == (None, Budget(unit, amount))
    first, rest = split_budget(Budget(unit, amount), recipe, {**record, "begun_with": {"new": ["head 'mlm'"]}})
    assert (0 if first is None else first.amount, rest.amount) == (head, amount - head)


class Interrupting(Reporter):
    """Sends Ctrl-C when the new head has been trained for a step."""

    def stage(self, name: str, done: int, total: int | None) -> None:
        if "head" in name:
            signal.raise_signal(signal.SIGINT)


def test_a_stop_while_the_head_is_trained_alone_saves_nothing_and_is_repeated(train, embedder, tmp_path):
    arguments: dict[str, Any] = {"init": embedder, "steps": 20}
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "stopped", **arguments, reporter=Interrupting())
    assert not (tmp_path / "stopped" / "checkpoints").exists()
    stopped, whole = (train(tmp_path / name, **arguments) for name in ("stopped", "whole"))
    assert_same_files(whole, stopped)
    head = read_json(whole.folder / "run.json")["head"]
    assert head["tokens"] == whole.quality["before"]["head_tokens"] > 0
    saved, _ = checkpoint.latest(whole.folder / "checkpoints")
    assert whole.tokens == saved.state["spent"]["tokens"] + head["tokens"]
    assert whole.flops > head["flops"] > 0


@pytest.mark.slow
def test_a_run_with_a_new_head_is_extended_from_its_constant_part(train: Train, embedder: Path, tmp_path: Path) -> None:
    # Of 18 steps after 2 of the head alone, the last begins after 90 % and ends at 90 % of all 20.
    schedule = ("training.schedule=warmup_stable_decay", "training.decay_share=0.1", "training.warmup_steps=1")
    arguments: dict[str, Any] = {"init": embedder, "set": schedule, "checkpoint_minutes": 0.0}
    first = train(tmp_path / "run", steps=20, **arguments)
    before = read_json(first.folder / "run.json")
    recorder = Recorder()
    train(tmp_path / "run", steps=40, **arguments, reporter=recorder)
    assert recorder.on("resuming", "step 17")
    record = read_json(first.folder / "run.json")
    assert record["first_expected_tokens"] == pytest.approx(0.9 * before["expected_tokens"])


def test_a_stopped_run_is_judged_by_its_last_step(train: Train, embedder: Path, tmp_path: Path) -> None:
    save = checkpoint.save

    def save_and_stop(folder: Path, step: int, *rest: Any) -> Path:
        if step == 4:
            signal.raise_signal(signal.SIGINT)
        return save(folder, step, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "save", save_and_stop)
        stopped = train(tmp_path / "run", init=embedder, steps=44, checkpoint_minutes=0.0)
    rows = [row for row in read_rows(stopped.folder / "metrics.jsonl") if "held_out_mlm_loss" in row]
    assert (stopped.steps, rows[-1]["step"]) == (5, 4)
    assert stopped.held_out["mlm"].loss != rows[-1]["held_out_mlm_loss"]


def test_similarity_separates_neighbors_from_random_sentences() -> None:
    # Ten documents of six sentences; each document has its own token, which the encoder's embeddings show.
    special = SpecialTokens(pad=0, unk=1, cls=2, sep=3, mask=4, vocab_size=20, names=("a", "b", "c", "d", "e"))
    lengths = np.full(60, 6)
    ids = np.repeat(np.arange(10) + 5, 36).astype(np.int32)
    shuffled = np.random.default_rng(0).permutation(ids)

    def text(tokens: Any) -> Text:
        def gather(starts: Any, stops: Any) -> AnnotatedTokens:
            chosen = np.concatenate([tokens[a:b] for a, b in zip(starts, stops, strict=True)])
            return AnnotatedTokens(chosen, np.ones(len(chosen), dtype=np.bool_))

        return Text(
            documents=documents,
            sources=np.zeros(10, dtype=np.int64),
            weights=None,
            document_ends=np.arange(1, 11) * 36,
            gather=gather,
            vocabulary=VocabularyFacts(special_tokens=special, token_counts=None),
        )

    documents = Documents(np.cumsum(lengths), np.arange(10) * 6, np.arange(1, 11) * 6)
    torch.manual_seed(0)
    shape = catalog.resolve("bert/tiny").encoder.replace(
        hidden_size=32, num_heads=2, num_layers=1, intermediate_size=64
    )
    encoder = Encoder(shape, 20)
    apart = sentence_similarity(encoder, text(ids), documents, "mean")
    alike = sentence_similarity(encoder, text(shuffled), documents, "mean")
    assert apart > 0.95
    assert 0.3 < alike < 0.7
    assert sentence_similarity(encoder, text(ids), documents.pick(np.array([0])), "mean") is None


def test_the_verdict_states_both_losses_and_what_got_worse() -> None:
    before = Quality(held_out={"mlm": ObjectiveResult(6.0, 0.1, 50)}, similarity=0.95, head_tokens=100)
    after = Quality(held_out={"mlm": ObjectiveResult(4.0, 0.3, 50)}, similarity=0.9)
    loss, vectors = verdict(before, after)
    assert all(part in loss for part in ("6.000", "4.000", "improved"))
    assert all(part in vectors for part in ("95.0%", "90.0%", "--task embedding", "--train sentences.txt"))
    assert Quality.from_json(before.to_json()) == before
