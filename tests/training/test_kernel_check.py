"""A run on a GPU compares native kernels with PyTorch on one batch before it uses them.

Kernels need a GPU: here the reference stands in for them.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from test_batches import step
from test_every_recipe import model_of, toy
from torch import Tensor
from toy_models import take_step
from toy_runs import killed_after, train_toy

from maskwright.core.errors import DeviceError
from maskwright.core.storage.files import read_json
from maskwright.kernels.setting import kernels_enabled
from maskwright.reporting.metrics import read_rows
from maskwright.training import pretrain as pretrain_module
from maskwright.training.ranks.device import Machine, prepare_machine
from maskwright.training.steps import kernel_check
from maskwright.training.steps.batches import StepBatch
from maskwright.training.steps.kernel_check import KernelCheck, _loss_and_gradients, check_kernels, with_samples
from maskwright.training.steps.model import PretrainingModel
from maskwright.training.steps.update_rules import build_optimizer
from recording import Recorder

HALF = torch.bfloat16
Results = tuple[float, dict[str, Tensor]]


def model_and_batch(name: str, count: int = 8) -> tuple[PretrainingModel, StepBatch]:
    recipe = toy(name)
    return model_of(recipe).train(), step(recipe, count=count)


class Kernels:
    """Stands in for kernels: the reference, its results changed as a test wishes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[bool, torch.dtype | None]] = []
        self.change: Callable[[Results], Results] = lambda results: results
        monkeypatch.setattr(kernel_check, "_loss_and_gradients", self.compute)

    def compute(self, model: PretrainingModel, batch: StepBatch, autocast: torch.dtype | None) -> Results:
        """Remember the setting, and change the results where kernels are enabled."""
        self.seen.append((kernels_enabled(), autocast))
        results = _loss_and_gradients(model, batch, autocast)
        return self.change(results) if kernels_enabled() else results


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Kernels:
    return Kernels(monkeypatch)


def rounding(loss: float, gradients: dict[str, Tensor]) -> Results:
    return loss * 1.0005, {name: each * 1.01 for name, each in gradients.items()}


@pytest.mark.parametrize("name", ["bert/tiny", "electra/tiny"])
def test_equal_results_up_to_rounding_pass(name: str, kernels: Kernels) -> None:
    kernels.change = lambda results: rounding(*results)
    model, batch = model_and_batch(name)
    check = check_kernels(model, batch, HALF)
    assert check.passed
    assert re.search(r"^kernels checked in \d+ s: loss \S+ and gradient of \S+ \S+ from fp32's", check.message)
    assert kernels.seen == [(False, None), (False, HALF), (True, HALF), (True, HALF)]
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda loss, gradients: (loss * 1.01, gradients), "loss 1e-02 and"),
        (lambda loss, gradients: (float("nan"), gradients), "loss nan"),
        (
            lambda loss, gradients: (loss, {**gradients, "encoder.word_embeddings.weight": torch.zeros(500, 32)}),
            "gradient of encoder.word_embeddings.weight 1e+00 from",
        ),
        (
            lambda loss, gradients: (loss, {name: each * float("inf") for name, each in gradients.items()}),
            "nan from fp32's",
        ),
        (lambda loss, gradients: (loss, dict([*gradients.items()][1:])), "other parameters have gradients"),
    ],
)
def test_different_results_disable_kernels(change: Callable[..., Results], why: str, kernels: Kernels) -> None:
    kernels.change = lambda results: change(*results)
    model, batch = model_and_batch("bert/tiny")
    check = check_kernels(model, batch, HALF)
    assert not check.passed
    assert check.message.startswith("kernels disabled: ")
    assert why in check.message


def test_a_failing_kernel_is_one_line_and_leaves_no_gradients(kernels: Kernels) -> None:
    def fail(results: Results) -> Results:
        for name, parameter in model.named_parameters():  # As when a backward pass breaks off.
            parameter.grad = results[1].get(name)
        raise torch.cuda.OutOfMemoryError("out of memory\nand more\nand more")

    kernels.change = fail
    model, batch = model_and_batch("electra/tiny")
    assert check_kernels(model, batch, HALF) == (False, "kernels disabled: OutOfMemoryError: out of memory and more")
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("error", [KeyboardInterrupt, KeyError])
def test_other_errors_are_raised(error: type[BaseException], kernels: Kernels) -> None:
    def fail(results: Results) -> Results:
        raise error

    kernels.change = fail
    with pytest.raises(error):
        check_kernels(*model_and_batch("bert/tiny"), HALF)


def test_gradients_that_are_compared_are_those_of_a_step() -> None:
    model, batch = model_and_batch("electra/tiny")
    assert len(batch.micro_batches) > 1
    batch = with_samples(model, batch)
    loss, gradients = _loss_and_gradients(model, batch, None)
    assert all(parameter.grad is None for parameter in model.parameters())
    optimizer = build_optimizer(model.named_parameters(), toy("electra/tiny").training.optimizer)
    result = take_step(model, optimizer, batch, learning_rate=0.0, clip_norm=0.0, step=0)
    assert loss == pytest.approx(result.loss, rel=1e-5)
    # Encoder and generator share their embeddings, of which each is counted once.
    assert float(torch.nn.utils.get_total_norm(gradients.values())) == pytest.approx(result.gradient_norm, rel=1e-5)


# Wishes, and runs.


GPU = Machine(torch.device("cuda"), "a GPU", 1, "default", HALF, "auto")


def test_a_cpu_checks_no_kernels_and_unknown_settings_are_refused() -> None:
    assert GPU.needs_kernel_check
    assert not replace(GPU, kernels="reference").needs_kernel_check
    assert not replace(GPU, device=torch.device("cpu")).needs_kernel_check
    with pytest.raises(DeviceError, match="unknown setting 'yes' of --kernels"):
        prepare_machine("cpu", kernels="yes")


@pytest.mark.slow
@pytest.mark.parametrize("wish", ["auto", "reference"])
def test_a_run_reports_the_result_of_the_check_and_can_be_resumed_without(wish, tmp_path, monkeypatch):
    def check(model: PretrainingModel, batch: StepBatch, autocast: torch.dtype | None) -> KernelCheck:
        assert 0 < batch.num_sequences <= 8
        assert model.training
        return check_kernels(model, batch, autocast)

    # As if the processor were a GPU.
    monkeypatch.setattr(Machine, "needs_kernel_check", property(lambda machine: machine.kernels == "auto"))
    monkeypatch.setattr(kernel_check, "check_kernels", check)
    recorder = Recorder()
    with killed_after(3):
        train_toy(tmp_path, steps=6, kernels=wish, checkpoint_minutes=0.0, reporter=recorder)
    assert [text.startswith("kernels checked in") for text in recorder.on("kernels")] == [True] * (wish == "auto")
    run = train_toy(tmp_path, steps=6, kernels="reference", reporter=recorder)
    assert (run.finished, run.steps) == (True, 6)
    assert len(recorder.on("kernels")) == (wish == "auto")


@pytest.mark.slow
def test_kernels_on_a_cpu_change_no_result_but_rounding(tmp_path: Path) -> None:
    losses = []
    for wish in ("auto", "reference"):
        run = train_toy(tmp_path, wish, steps=6, kernels=wish)
        record = read_json(run.folder / "run.json")
        assert record["machine"]["kernels"] == wish
        # It is not part of the request: a run can be resumed with the other.
        assert "kernels" not in record["request"]
        losses.append([row["loss"] for row in read_rows(run.folder / "metrics.jsonl") if "loss" in row])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize(
    ("machine", "wish", "computes"),
    [
        (GPU, "auto", ("auto", True, True)),
        (GPU, "reference", ("reference", False, False)),
        (replace(GPU, kernels="reference"), "auto", ("reference", False, False)),
        (replace(GPU, device=torch.device("cpu"), autocast=None), "auto", ("auto", False, True)),
        (replace(GPU, device=torch.device("cpu"), autocast=None), "reference", ("reference", False, False)),
    ],
)
def test_kernels_are_used_unless_they_are_off_or_unavailable(machine, wish, computes, tmp_path, monkeypatch):
    sessions = []

    def session(*args: Any) -> Any:
        sessions.append((args[4].kernels, args[4].needs_kernel_check, kernels_enabled()))
        raise KeyboardInterrupt

    def prepared(*args: Any) -> tuple[Machine, str]:
        return machine if args[-1] == "auto" else replace(machine, kernels="reference"), ""

    monkeypatch.setattr(pretrain_module, "restore_machine", prepared)
    monkeypatch.setattr(pretrain_module, "_prepare", lambda *_: (None, {}))
    monkeypatch.setattr(pretrain_module, "PretrainingRun", session)
    with pytest.raises(KeyboardInterrupt):
        train_toy(tmp_path, kernels=wish)
    assert sessions == [computes]
