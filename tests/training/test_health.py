"""Spikes are found, and a run that diverges is stopped with the last sound checkpoint."""

import json
import math
import re
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from toy_runs import TOY, train_toy

from maskwright.core.errors import TrainingError
from maskwright.core.storage.checksums import read_record
from maskwright.training import pretraining_run
from maskwright.training.runs import checkpoint
from maskwright.training.runs.monitor import Spikes
from maskwright.training.steps import loop
from maskwright.training.steps.evaluation import divergence
from maskwright.training.steps.sampler import Cursor, InstanceSampler
from recording import Recorder


def test_a_spike_is_seven_deviations_above_the_mean_of_at_least_a_hundred_steps() -> None:
    spikes, noise = Spikes(), np.random.default_rng(0).normal(5.0, 0.1, 2000)
    assert not spikes.find(0, {"loss": 5.0, "norm": 1.0}) + spikes.find(0, {"loss": 50.0})
    spikes = Spikes()
    assert not [spike for number in noise for spike in spikes.find(0, {"loss": number})]
    assert not spikes.find(0, {"loss": 5.0 + 6 * 0.1})
    (spike,) = spikes.find(0, {"loss": 5.9})
    assert re.match(r"loss 5\.9 \(mean of the last 1,000 steps: (5|5\.00\d|4\.99\d)\)", spike)
    assert not spikes.find(1, {"loss": 9.0}), "the first step of the next phase"


@pytest.mark.parametrize(
    ("loss", "first", "weight", "says"),
    [
        (19.9, 10.0, 1.0, ""),
        (20.1, 10.0, 1.0, "20.1.*first step it was 10"),
        (6.9, 1.0, 1.0, ""),  # Below the unigram baseline.
        (7.1, 1.0, 1.0, "7.1.*first step it was 1"),
        (math.nan, 10.0, 1.0, "loss is nan"),
        (1.0, 10.0, math.inf, "finite"),
    ],
)
def test_divergence_is_above_twice_the_first_loss_and_the_baseline_or_a_weight_not_finite(loss, first, weight, says):
    actual = divergence(loss, first, 7.0, [torch.ones(2), torch.tensor([1.0, weight])])
    assert re.search(says, actual) if says else not actual


@pytest.mark.parametrize("rate", [1e9, 10])
def test_a_diverged_run_is_an_error_and_keeps_the_last_finite_weights(tmp_path: Path, rate: float) -> None:
    with pytest.raises(TrainingError, match=r"diverged: after step \d+ .* checkpoint step-\d+ is kept.*learning rate"):
        train_toy(tmp_path, steps=40, set=(*TOY, f"training.learning_rate={rate}"), checkpoint_minutes=0.0)
    actual, damaged = checkpoint.latest(tmp_path / "run" / "checkpoints")
    assert not damaged
    assert all(weight.isfinite().all() for weight in actual.weights.values())
    assert "diverged" in read_record(tmp_path / "run" / "run.json")["problem"]


def test_an_error_in_preparation_is_the_one_that_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = TrainingError("step 0 has no prediction")  # as measuring the speed raises it
    monkeypatch.setattr(sys.modules["maskwright.training.pretrain"], "prepare", Mock(side_effect=error))
    with pytest.raises(TrainingError, match="has no prediction"):
        train_toy(tmp_path, steps=4)


def test_a_later_session_forgets_the_problem_and_keeps_the_first_loss(tmp_path: Path) -> None:
    failing = iter(["", "", "", "diverged"])  # After evaluating and before saving each step.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretraining_run, "divergence", lambda *_: next(failing))
        with pytest.raises(TrainingError):
            train_toy(tmp_path, steps=4, checkpoint_minutes=0.0)
    assert "diverged" in read_record(tmp_path / "run" / "run.json")["problem"]
    metrics = tmp_path / "run" / "metrics.jsonl"
    lines = metrics.read_text(encoding="utf-8").splitlines(keepends=True)
    changed = json.dumps({**json.loads(lines[0]), "loss": 0.1}) + "\n"
    metrics.write_text("".join([changed, *lines[1:]]), encoding="utf-8")  # Which no longer decides on divergence.
    train_toy(tmp_path, steps=4)
    assert "problem" not in read_record(tmp_path / "run" / "run.json")
    states = [read_record(path)["state"] for path in (tmp_path / "run").rglob("state.json")]
    first, last = (state["first_loss"] for state in states)
    assert first == last > 1


def test_a_stalled_reader_is_reported_and_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_slowly(self: InstanceSampler, cursor: Cursor, count: int) -> Any:
        time.sleep(0.3 * (cursor.num_read == count))  # The second batch.
        return read(self, cursor, count)

    recorder, read = Recorder(), InstanceSampler.read
    monkeypatch.setattr(loop, "STALL_SECONDS", 0.05)
    monkeypatch.setattr(InstanceSampler, "read", read_slowly)
    assert train_toy(tmp_path, steps=3, reporter=recorder).finished
    assert recorder.on("waiting", "after step 1:")
