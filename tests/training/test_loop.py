"""Preparing batches and launching gradients ahead change no result, also where a phase ends."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from toy_runs import assert_same_files, train_toy

from maskwright.fitting.budget import Spent
from maskwright.training.steps import loop
from maskwright.training.steps.batches import StepBatch
from maskwright.training.steps.loop import Batches, BatchKey, Phase, Position
from maskwright.training.steps.sampler import Cursor


class Numbers:
    """A sampler of consecutive numbers, and a collator that records what it collates."""

    def __init__(self) -> None:
        self.collated: list[tuple[int, int]] = []

    def start(self) -> Cursor:
        return Cursor(0, ())

    def next_epoch(self, cursor: Cursor) -> Cursor:
        return Cursor(100 + cursor.num_read, ())

    def read(self, cursor: Cursor, count: int) -> tuple[Any, Cursor]:
        after = Cursor(cursor.num_read + count, ())
        return SimpleNamespace(first=cursor.num_read, count=count, epochs=0.0), after

    def collate(self, rows: Any, step: int, share: slice = slice(None)) -> StepBatch:
        self.collated.append((step, rows.first))
        return StepBatch((), {"mlm": rows.count}, rows.count, rows.count, 0, f"step {step}")


def test_the_next_batch_is_prepared_once_and_again_in_another_phase() -> None:
    short, long = Numbers(), Numbers()
    batches = Batches([Phase(0.5, short, short, 4), Phase(1.0, long, long, 2)], lambda step: None)
    first = batches.prepare(BatchKey(0, Cursor(0, ()), 0))
    second = batches.prepare(first.next_key)
    other = batches.prepare(BatchKey(1, Cursor(8, ()), 2))
    batches.close()
    assert [each.batch.num_sequences for each in (first, second, other)] == [4, 4, 2]
    assert short.collated == [(0, 0), (1, 4), (2, 8)]  # The last one is not used.
    assert long.collated == [(2, 8), (3, 10)]


def test_another_length_begins_an_epoch_and_another_masking_does_not() -> None:
    short, long = Numbers(), Numbers()
    phases = [Phase(0.25, short, short, 4), Phase(0.5, short, short, 8), Phase(1.0, long, long, 8)]
    position = Position(Spent(steps=3), 0, Cursor(12, ()))
    assert position.at_progress(0.2, phases) == position
    assert position.at_progress(0.25, phases) == replace(position, phase=1)
    assert position.at_progress(0.75, phases) == replace(position, phase=2, cursor=Cursor(112, ()))


@pytest.mark.slow
def test_gradients_launched_ahead_of_another_length_are_dropped(tmp_path, monkeypatch):
    plain = train_toy(tmp_path, "plain", steps=4)
    monkeypatch.setattr(loop, "skips_on_device", lambda *_: True)  # As on a GPU.
    assert_same_files(plain, train_toy(tmp_path, "ahead", steps=4))
