"""Checkpoints, their timer, signals, and what can be saved."""

import os
import signal
from pathlib import Path

import pytest
import torch

from maskwright.core import tensor_files
from maskwright.core.errors import CheckpointError, ConversionError
from maskwright.data.tokenizers.spec import ByteBPE, Unigram, WordPiece
from maskwright.data.tokenizers.training import train_byte_bpe, train_unigram, train_wordpiece
from maskwright.recipes.catalog import names, resolve
from maskwright.training import checkpoint
from maskwright.training.checkpoint import CheckpointTimer, check_savable
from maskwright.training.interrupt import stop_on_signals


def save(folder: Path, step: int) -> Path:
    return checkpoint.save(folder, step, {"at": step}, {"w": torch.full((3,), float(step))}, {"m.w": torch.ones(3)})


def test_latest_reads_back_what_was_saved(tmp_path: Path) -> None:
    save(tmp_path, 7)
    found, damaged = checkpoint.latest(tmp_path)
    assert found is not None
    assert not damaged
    assert (found.step, found.state) == (7, {"at": 7})
    assert torch.equal(found.weights["w"], torch.full((3,), 7.0))


def test_only_the_newest_two_are_kept(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save(tmp_path, step)
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["step-000000002", "step-000000003"]


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert checkpoint.latest(tmp_path) == (None, [])


@pytest.mark.parametrize("name", ["weights.safetensors", "optimizer.safetensors", "state.json"])
def test_a_checkpoint_cut_short_is_passed_over_for_the_one_before(tmp_path: Path, name: str) -> None:
    save(tmp_path, 1)
    newest = save(tmp_path, 2)
    content = (newest / name).read_bytes()
    (newest / name).write_bytes(content[: len(content) // 2])
    found, damaged = checkpoint.latest(tmp_path)
    assert found is not None
    assert found.step == 1
    assert len(damaged) == 1
    assert "step-000000002" in damaged[0]
    assert not damaged[0].endswith(".")  # A sentence goes on after it.


def test_one_flipped_byte_is_noticed(tmp_path: Path) -> None:
    newest = save(tmp_path, 2)
    content = bytearray((newest / "weights.safetensors").read_bytes())
    content[-1] ^= 1
    (newest / "weights.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match="no checkpoint is intact"):
        checkpoint.latest(tmp_path)


def test_a_save_that_fails_leaves_the_old_one_and_no_remains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 1)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tensor_files, "save_file", full)
    with pytest.raises(Exception, match="disk is full"):
        save(tmp_path, 2)
    assert [folder.name for folder in tmp_path.iterdir()] == ["step-000000001"]


def test_the_timer_writes_each_step_once() -> None:
    written = list[int]()
    timer = CheckpointTimer(lambda: written.append(1), -1, seconds=0.0)
    assert timer.is_due()
    timer.keep(3)
    timer.keep(3)
    assert len(written) == 1
    assert timer.is_due()


def test_the_timer_waits_between_checkpoints() -> None:
    timer = CheckpointTimer(lambda: None, -1, seconds=1000.0)
    assert not timer.is_due()
    timer.keep(1)
    assert not timer.is_due()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_requests_a_stop_and_a_second_one_interrupts(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stop_on_signals() as stop:
        assert not stop
        os.kill(os.getpid(), number)
        assert stop
        assert stop.signal == number.name
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) == before


TEXTS = ["The cat watches the old captain.", "A dog follows the long road, and the river."] * 20


def test_the_padding_id_of_a_kind_is_that_of_a_vocabulary_learnt() -> None:
    learnt = (
        train_wordpiece(WordPiece(vocab_size=120), TEXTS, TEXTS),
        train_unigram(Unigram(vocab_size=120), TEXTS, TEXTS),
        train_byte_bpe(ByteBPE(vocab_size=300), TEXTS),
    )
    for kind, tokenizer in zip((WordPiece, Unigram, ByteBPE), learnt, strict=True):
        assert kind.pad == tokenizer.special_tokens.pad, kind


@pytest.mark.parametrize("name", names())
def test_every_recipe_can_be_saved(name: str) -> None:
    recipe = resolve(name)
    check_savable(recipe, recipe.tokenizer.pad)


def test_a_generator_must_be_savable_too() -> None:
    # ELECTRA's generator class has the exact GELU only.
    recipe = resolve("electra/tiny", ["encoder.hidden_activation=gelu_tanh"])
    with pytest.raises(ConversionError, match="hidden_activation gelu_tanh"):
        check_savable(recipe, 0)
