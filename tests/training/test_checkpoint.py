"""Checkpoints, their timer, signals, and what can be saved."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest
import torch

from maskwright.core.errors import CheckpointError, ConversionError, DeviceError
from maskwright.data.tokenizers.spec import ByteBPE, Unigram, WordPiece
from maskwright.data.tokenizers.training import train_byte_bpe, train_unigram, train_wordpiece
from maskwright.fitting.budget import Spent
from maskwright.recipes.catalog import names, resolve
from maskwright.training.ranks import interrupt
from maskwright.training.ranks.interrupt import stop_on_signals
from maskwright.training.runs import checkpoint
from maskwright.training.runs.checkpoint import CheckpointTimer, check_savable


def save(folder: Path, step: int) -> Path:
    return checkpoint.save(folder, step, {"at": step}, {"w": torch.full((3,), float(step))}, {"m.w": torch.ones(3)})


def test_latest_reads_back_what_was_saved(tmp_path: Path) -> None:
    assert checkpoint.latest(tmp_path) == (None, [])
    save(tmp_path, 7)
    actual, damaged = checkpoint.latest(tmp_path)
    assert not damaged
    assert (actual.step, actual.state) == (7, {"at": 7})
    assert torch.equal(actual.weights["w"], torch.full((3,), 7.0))


def test_only_the_newest_two_are_kept_and_none_that_is_damaged_and_later(tmp_path: Path) -> None:
    for steps, kept in (((1, 2, 3), (2, 3)), ((5, 4), (3, 4))):  # 5 is damaged: the run resumed from 3.
        for step in steps:
            save(tmp_path, step)
        assert sorted(folder.name for folder in tmp_path.iterdir()) == [f"step-{step:09d}" for step in kept]


@pytest.mark.parametrize("name", ["weights.safetensors", "optimizer.safetensors", "state.json"])
def test_a_truncated_checkpoint_is_ignored_for_the_one_before(tmp_path: Path, name: str) -> None:
    save(tmp_path, 1)
    newest = save(tmp_path, 2)
    content = (newest / name).read_bytes()
    (newest / name).write_bytes(content[: len(content) // 2])
    actual, damaged = checkpoint.latest(tmp_path)
    assert actual.step == 1
    assert len(damaged) == 1
    assert "step-000000002" in damaged[0]
    assert not damaged[0].endswith(".")  # The message continues after it.


@pytest.mark.parametrize("harm", ["a cursor", "a weight", "no checksums", "a weight, no checksums"])
def test_an_edited_state_and_a_flipped_byte_are_noticed(tmp_path: Path, harm: str) -> None:
    path = save(tmp_path, 2) / "state.json"
    if harm == "a cursor":
        path.write_text(path.read_text().replace('"at": 2', '"at": 3'))
    if harm.endswith("no checksums"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"checksums": {}}))
    if harm.startswith("a weight"):
        weights = path.with_name("weights.safetensors")
        weights.write_bytes(weights.read_bytes()[:-1] + b"1")
    damaged = "weights.safetensors" if harm == "a weight" else "state.json"
    with pytest.raises(CheckpointError, match=f"no checkpoint is intact: .*{damaged} is damaged"):
        checkpoint.latest(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="limits the size of files")
def test_a_full_disk_keeps_the_old_checkpoint(tmp_path: Path) -> None:
    import resource

    save(tmp_path, 1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, limits[1]))
    try:
        with pytest.raises(DeviceError, match=r"cannot write .*step-000000002"):
            checkpoint.save(tmp_path, 2, {}, {"w": torch.zeros(1 << 14)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [folder.name for folder in tmp_path.iterdir()] == ["step-000000001"]
    actual, _ = checkpoint.latest(tmp_path)
    assert actual.step == 1


@pytest.mark.parametrize("seconds", [0.0, 1000.0])
def test_the_timer_waits_between_checkpoints_and_writes_each_step_once(seconds: float) -> None:
    written = list[int]()
    timer = CheckpointTimer(lambda: written.append(1), -1, 5.0, seconds)
    for _ in range(2):
        assert timer.is_due(6.0) == (seconds == 0)
        timer.save_step(Spent(3, seconds=6.0))
    assert len(written) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_requests_a_stop_and_only_another_interrupt_ends_at_once(number: signal.Signals) -> None:
    inherited = signal.getsignal(number)
    if inherited == signal.SIG_IGN:  # nohup ignores hangups.
        signal.signal(number, signal.SIG_DFL)
    before = signal.getsignal(number)
    with stop_on_signals() as stop:
        assert not stop
        os.kill(os.getpid(), number)
        assert stop
        assert stop.signal == number.name
        if number != signal.SIGINT:
            os.kill(os.getpid(), number)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        assert stop.signal == number.name
    assert signal.getsignal(number) == before
    signal.signal(number, inherited)


def test_a_hangup_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with stop_on_signals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_time_when_the_process_was_stopped_is_left_out() -> None:
    with stop_on_signals() as stop:
        assert [stop.running(now) for now in (100.0, 103.0)] == [100.0, 103.0]
        os.kill(os.getpid(), signal.SIGCONT)
        assert [stop.running(now) for now in (3600.0, 3601.0)] == [103.0, 104.0]


TEXTS = ["The cat watches the old captain.", "A dog follows the long road, and the river."] * 20


def test_the_padding_id_of_a_kind_is_that_of_a_vocabulary_learnt() -> None:
    learnt = (
        train_wordpiece(WordPiece(vocab_size=120), TEXTS, TEXTS),
        train_unigram(Unigram(vocab_size=120), TEXTS, TEXTS),
        train_byte_bpe(ByteBPE(vocab_size=300), TEXTS),
    )
    for kind, tokenizer in zip((WordPiece, Unigram, ByteBPE), learnt, strict=True):
        assert kind.pad == tokenizer.special_tokens.pad, kind


def test_every_recipe_can_be_saved() -> None:
    for recipe in map(resolve, names()):
        check_savable(recipe, recipe.tokenizer.pad)


def test_a_generator_must_be_savable_too() -> None:
    # ELECTRA's generator class has the exact GELU only.
    recipe = resolve("electra/tiny", ["encoder.hidden_activation=gelu_tanh"])
    with pytest.raises(ConversionError, match="hidden_activation gelu_tanh"):
        check_savable(recipe, 0)


def test_the_first_signal_after_another_process_asked_to_stop_does_not_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupt, "all_reduce_max", lambda value: 1.0)  # As if another process had received one.
    with stop_on_signals() as stop:
        assert stop.agree()
        signal.raise_signal(signal.SIGINT)
        assert stop.signal == "SIGINT"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
