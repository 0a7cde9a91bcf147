"""A run with a stable learning rate is extended to a larger budget."""

import shutil
from functools import partial
from pathlib import Path

import pytest
from toy_runs import TOY, Train, killed_after, train_toy

from maskwright.core.errors import CheckpointError
from maskwright.core.storage.files import read_json
from maskwright.reporting.metrics import read_rows
from maskwright.training.pretrain import RunResult

STABLE_PART = (
    *TOY,
    "training.schedule=warmup_stable_decay",
    "training.decay_share=0.5",
    "training.warmup_steps=1",
    'training.phases=[{"share": 1.0, "max_length": 16}]',
)


@pytest.fixture
def train(tmp_path: Path) -> Train:
    return partial(train_toy, tmp_path, set=STABLE_PART, recipe="roberta/tiny")


def assert_same(one: RunResult, other: RunResult) -> None:
    """Compare two runs, except for the steps at which they were evaluated."""
    for name in ("recipe.json", "model.safetensors"):
        assert (one.folder / name).read_bytes() == (other.folder / name).read_bytes(), name
    assert one.held_out == other.held_out
    left, right = ([row for row in read_rows(run.folder / "metrics.jsonl") if "loss" in row] for run in (one, other))
    assert left == right
    assert [row["step"] for row in left] == list(range(1, one.steps + 1))


def test_an_extended_run_equals_one_of_the_larger_budget(train: Train) -> None:
    long = train("long", steps=24)
    whole, killed = (partial(train, name, checkpoint_minutes=0.0) for name in ("whole", "killed"))
    assert whole(steps=12).finished
    with killed_after(4):
        killed(steps=12)
    for short in (whole, killed):
        extended = short(steps=24)
        assert extended.steps == 24
        assert_same(long, extended)
        assert [path.name for path in (extended.folder / "stable").iterdir()] == ["step-000000012"]  # Where it decays
        record = read_json(extended.folder / "run.json")
        assert record["extended_from"] == [{"steps": 12}]
        assert record["expected_tokens"] == pytest.approx(2 * record["first_expected_tokens"])
        assert short(steps=24) == extended


@pytest.mark.slow
def test_an_extension_can_be_killed_and_extended_again(train: Train) -> None:
    long = train("long", steps=48)
    short = partial(train, "short", checkpoint_minutes=0.0)
    short(steps=12)
    with killed_after(8):
        short(steps=24)
    short(steps=24)
    extended = short(steps=48)
    assert_same(long, extended)
    with pytest.raises(CheckpointError, match=r"has a budget of 48 steps, now 24 steps.*or more steps"):
        short(steps=24)


def test_a_kill_within_the_extension_leaves_a_run_that_both_commands_find(train, monkeypatch):
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    done = train(steps=12)
    with monkeypatch.context() as patch:
        patch.setattr("maskwright.training.extension.write_record", killed)
        with pytest.raises(KeyboardInterrupt):
            train(steps=24)
    assert train(steps=12) == done
    assert train(steps=24).steps == 24


def test_a_budget_of_a_schedule_without_a_constant_part_is_refused(train: Train) -> None:
    train("linear", set=TOY)
    with pytest.raises(CheckpointError, match=r"is finished.*12 steps, now 24.*warmup_stable_decay") as caught:
        train("linear", set=TOY, steps=24)
    assert "--init" in str(caught.value)
    with killed_after(3):
        train("begun", set=TOY, checkpoint_minutes=0.0)
    with pytest.raises(CheckpointError, match=r"has begun.*12 steps, now 24.*Repeat the old command"):
        train("begun", set=TOY, steps=24)


def test_a_run_without_its_checkpoint_of_the_constant_part_is_refused(train: Train) -> None:
    run = train()
    shutil.rmtree(run.folder / "stable")
    with pytest.raises(CheckpointError, match="no checkpoint of its constant part was kept"):
        train(steps=24)
    assert train() == run
    with pytest.raises(CheckpointError, match=r"budget of 12 steps, now 4,?000 tokens"):
        train(steps=None, tokens=4000)
