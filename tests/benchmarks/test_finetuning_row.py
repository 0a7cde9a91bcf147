"""Both sides of the rows of fine-tuning compute the same, and made examples can be learnt. Nothing is timed."""

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import finetuning, finetuning_scores
from benchmarks.goals import GOALS, OWN, TRAINER, TRAINER_FLAG_GROUPED, TRAINER_GROUPED
from benchmarks.labelled import NAMES, Name, Prepared, labelled_set, prepare, spread, taken
from benchmarks.settings import Settings
from benchmarks.shapes import TINY, fitted
from benchmarks.tuning_sides import BATCH, OwnTuning, TrainerTuning, settings_of
from maskwright.finetuning.batching import units_of_step
from maskwright.training.device import Machine


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the second in which a machine's speed is measured, and leave this process's memory as it is."""
    machine = Machine(torch.device("cpu"), "a machine", 1, "default", 1e9, None)
    monkeypatch.setattr("benchmarks.tuning_sides.own_machine", lambda: machine)


@pytest.fixture
def quick(tmp_path: Path) -> Settings:
    return Settings(scratch=tmp_path, quick=True, rounds=2)


def prepared(name: Name, settings: Settings, train: int = 64, dev: int = 32) -> Prepared:
    return prepare(labelled_set(name, settings, train=train, dev=dev), fitted(TINY, settings), settings)


@pytest.mark.parametrize("name", NAMES)
def test_both_sides_compute_the_same(name: Name, quick: Settings) -> None:
    made = prepared(name, quick)
    own, peer = OwnTuning(made), TrainerTuning(made, quick.scratch)
    some = spread(made.train, 16)
    assert some.num_units == 16
    assert own.loss(some) == pytest.approx(peer.loss(some), rel=2e-6)
    assert finetuning._apart(own.score(some), peer.score(some)) <= 1e-4
    for side in (own, peer):
        assert 0.1 < side.fill(made.train) <= 1
    assert own.fill(made.train) > peer.fill(made.train)


@pytest.mark.parametrize("name", NAMES)
def test_both_sides_take_the_same_steps(name: Name, quick: Settings) -> None:
    labelled = labelled_set(name, quick, train=320, dev=32)
    made = prepare(labelled, fitted(TINY, quick), quick, dropout=0.0)
    some = made.train
    if name == "SQuAD":  # transformers lets padding compete for answers: here is none.
        some = taken(some, np.flatnonzero(np.diff(some.cu_seqlens) == labelled.length))
    some = spread(some, 5 * BATCH)
    assert some.num_units == 5 * BATCH
    own, peer = OwnTuning(made), TrainerTuning(made, quick.scratch)
    before = own.score(some)
    # Two passes of five steps, each with an order of its own. `Trainer` rounds warm-up to whole steps: here it is one.
    order = [units_of_step(5 * BATCH, BATCH, seed=0, step=step) for step in range(10)]
    own.train(some, settings_of(made, learning_rate=1e-3, epochs=2.0))
    peer.train(taken(some, np.concatenate(order)), settings_of(made, learning_rate=1e-3), sampling="sequential")
    assert finetuning._apart(own.score(some), before) > 0.05
    assert own.loss(some) == pytest.approx(peer.loss(some), rel=1e-4)
    for ours, theirs in zip(own.score(some), peer.score(some), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_training_moves_both_sides_alike(name: Name, quick: Settings) -> None:
    made = prepared(name, quick)
    own, peer = OwnTuning(made), TrainerTuning(made, quick.scratch)
    before = own.loss(made.train)
    asked = settings_of(made, learning_rate=1e-3, epochs=4.0)
    assert own.train(made.train, asked) > 0
    assert peer.train(made.train, asked) > 0
    ours, theirs = own.loss(made.train), peer.loss(made.train)
    assert ours < before
    assert theirs < before
    # Other orders and other masks of dropout: like, not equal.
    assert abs(ours - theirs) < 0.5 * (before - min(ours, theirs))


def test_made_texts_tell_their_class_and_made_answers_stand_where_they_say(quick: Settings) -> None:
    texts = labelled_set("SST-2", quick, train=400, dev=100)
    odd = {label: [] for label in ("0", "1")}
    for example in texts.train:
        odd[example.label] += [int(word[1:]) % 2 for word in example.texts[0].split()]
    assert np.mean(odd["1"]) - np.mean(odd["0"]) > 0.15
    questions = labelled_set("SQuAD", quick, train=50, dev=10)
    for example in questions.train:
        (answer,) = example.answers
        assert example.context[answer.start :].startswith(answer.text)
        asked = example.question.split()[-1]
        assert example.context[: answer.start].split()[-1] == asked
    assert labelled_set("SQuAD", quick, train=50, dev=10) == questions


def test_published_examples_are_read_from_their_folder(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "glue" / "SST-2"
    folder.mkdir(parents=True)
    for part, rows in (("train", 80), ("dev", 20)):
        lines = [f"{('bad', 'good')[number % 2]} film number {number}\t{number % 2}" for number in range(rows)]
        (folder / f"{part}.tsv").write_text("\n".join(["sentence\tlabel", *lines]) + "\n", encoding="utf-8")
    settings = Settings(scratch=tmp_path, quick=True, labelled=tmp_path / "data")
    found = labelled_set("SST-2", settings, train=40, dev=10)
    assert (len(found.train), len(found.dev), found.made) == (40, 10, False)
    made = prepare(found, fitted(TINY, settings), settings)
    own, peer = OwnTuning(made), TrainerTuning(made, tmp_path)
    assert own.loss(made.train) == pytest.approx(peer.loss(made.train), rel=2e-6)


def test_the_row_sets_goals_beside_the_trainer(quick: Settings) -> None:
    report = finetuning.run(quick)
    assert report.sound
    (table,) = report.tables
    assert [row[3] for row in table.rows] == [TRAINER, TRAINER_GROUPED, TRAINER_FLAG_GROUPED, OWN] * 4
    assert [row[7] for row in table.rows if row[3] == TRAINER] == ["2.5"] * 4
    assert len(GOALS["finetuning", TRAINER]) == 4
    assert {each["examples"] for each in report.measurements} == {2 * BATCH, BATCH}
    assert all(each["made"] for each in report.measurements)
    assert "Made texts" in report.notes[0]


def test_the_row_of_scores_tells_every_seed(quick: Settings) -> None:
    report = finetuning_scores.run(quick)
    (table,) = report.tables
    assert [row[2] for row in table.rows] == [TRAINER, OWN] * 2
    assert all(len(each["values"]) == 2 for each in report.measurements)
    assert len(report.checks) == 2


def test_units_are_taken_whole_and_in_the_order_asked(quick: Settings) -> None:
    whole = prepared("SQuAD", quick).train
    units = np.array([7, 0, 3])
    some = taken(whole, units)
    assert some.num_units == 3
    for place, unit in enumerate(units.tolist()):
        here, there = (slice(*each.cu_seqlens[at : at + 2]) for each, at in ((some, place), (whole, unit)))
        np.testing.assert_array_equal(some.ids[here], whole.ids[there])
        np.testing.assert_array_equal(some.segment_ids[here], whole.segment_ids[there])
        np.testing.assert_array_equal(some.labels[place], whole.labels[unit])
        assert some.examples[place] == whole.examples[unit]
    assert spread(whole, 10**6).num_units == whole.num_units
    np.testing.assert_array_equal(spread(whole, 2).ids, taken(whole, np.array([0, whole.num_units // 2])).ids)
