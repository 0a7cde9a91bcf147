"""Our own kernels are proven on a batch before a run uses them; where they fail or differ, all computes as before.

Kernels need a GPU: here others stand in for them, and what stands around them is tested.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from test_batches import step
from test_every_recipe import model_of, toy
from test_pretrain import die_after
from torch import Tensor
from toy_runs import TOY, write_corpus

from maskwright.core.errors import DeviceError
from maskwright.core.files import read_json
from maskwright.kernels.setting import native_kernels_enabled, use_native_kernels
from maskwright.model.encoder import Encoder
from maskwright.training import compiling
from maskwright.training import pretrain as pretrain_module
from maskwright.training import session as session_module
from maskwright.training.batches import StepBatch
from maskwright.training.compiling import Compiling, _loss_and_gradients, compile_model, compiles_on
from maskwright.training.device import Machine
from maskwright.training.model import PretrainingModel
from maskwright.training.optimizer import Optimizer
from maskwright.training.pretrain import pretrain
from maskwright.training.reporting import Silent
from maskwright.training.step import take_step

HALF = torch.bfloat16
Found = tuple[float, dict[str, Tensor]]


def model_and_batch(name: str, count: int = 8) -> tuple[PretrainingModel, StepBatch]:
    recipe = toy(name)
    return model_of(recipe).train(), step(recipe, count=count)


def encoders_of(model: PretrainingModel) -> list[Encoder]:
    return [each for each in (model.encoder, model.generator) if each is not None]


def is_plain(model: PretrainingModel) -> bool:
    """Whether no gradient is left and no pass is captured."""
    no_passes = all(each.passes is None for each in encoders_of(model))
    return no_passes and all(parameter.grad is None for parameter in model.parameters())


class Kernels:
    """Stands in for kernels: the plain computation, its results changed as a test wishes; remembers what was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[str | None, bool, bool]] = []
        self.batches: list[StepBatch] = []
        self.change: Callable[[Found], Found] = lambda found: found
        monkeypatch.setattr(Encoder, "uses_native_kernels", lambda self, device, dtype: dtype == HALF)
        monkeypatch.setattr(compiling, "_loss_and_gradients", self.compute)

    def compute(self, model: PretrainingModel, batch: StepBatch, autocast: torch.dtype | None) -> Found:
        """Note how attention, our own code and captured passes stand, and compute by rows."""
        (backend,) = {each.backend for each in encoders_of(model)}
        (captures,) = {each.passes is not None for each in encoders_of(model)}
        self.seen.append((backend, native_kernels_enabled(), captures))
        self.batches.append(batch)
        passes = [each.passes for each in encoders_of(model)]
        for each in encoders_of(model):
            each.backend, each.passes = "rows", None
        with use_native_kernels(False):
            found = _loss_and_gradients(model, batch, autocast)
        for each, captured in zip(encoders_of(model), passes, strict=True):
            each.backend, each.passes = backend, captured  # type: ignore[assignment]
        return found if backend == "rows" else self.change(found)


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Kernels:
    return Kernels(monkeypatch)


# The proof.


def test_where_nothing_can_be_computed_by_kernels_that_is_said() -> None:
    model, batch = model_and_batch("electra/tiny")
    told = compile_model(model, batch, HALF)
    assert told.startswith("nothing: our kernels take products of bfloat16, GELU or ReLU, and widths that 16 divides")
    assert is_plain(model)
    assert {each.backend for each in encoders_of(model)} == {None}


def test_one_encoder_that_cannot_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = model_and_batch("electra/tiny")
    monkeypatch.setattr(Encoder, "uses_native_kernels", lambda self, device, dtype: self is model.encoder)
    assert compile_model(model, batch, HALF).startswith("nothing: our kernels take")
    assert is_plain(model)


def test_in_fp32_nothing_is_computed_by_kernels(kernels: Kernels) -> None:
    model, batch = model_and_batch("bert/tiny")
    assert compile_model(model, batch, None).startswith("nothing: our kernels take")
    assert not kernels.seen


@pytest.mark.parametrize("name", ["bert/tiny", "electra/tiny"])
def test_what_computes_the_same_is_used_and_its_passes_captured(name: str, kernels: Kernels) -> None:
    model, batch = model_and_batch(name)
    names = list(model.state_dict())
    told = compile_model(model, batch, HALF)
    assert told.startswith("layers, in ")
    assert re.search(r"; loss \S+ from that of fp32 and gradients \S+ on one batch$", told)
    # First by PyTorch's operations alone, in bf16 and in fp32; then until graphs are made and replayed.
    assert kernels.seen == [("rows", False, False)] * 2 + [(None, True, True)] * 3
    assert all(each.passes is not None for each in encoders_of(model))
    assert {each.backend for each in encoders_of(model)} == {None}
    assert list(model.state_dict()) == names
    assert all(parameter.grad is None for parameter in model.parameters())


def test_what_differs_by_rounding_is_used(kernels: Kernels) -> None:
    kernels.change = lambda found: (found[0] * 1.0005, {name: each * 1.01 for name, each in found[1].items()})
    model, batch = model_and_batch("bert/tiny")
    told = compile_model(model, batch, HALF)
    assert re.search(r"^layers, in .*; loss 5e-04 from that of fp32 and gradients 1e-02 on one batch$", told)


def without_one(gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return dict(list(gradients.items())[1:])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda loss, gradients: (loss * 1.01, gradients), "loss 1e-02 from that of fp32 and"),
        (lambda loss, gradients: (float("nan"), gradients), "loss nan"),
        (
            lambda loss, gradients: (loss, {**gradients, "encoder.word_embeddings.weight": torch.zeros(500, 32)}),
            "gradients 1e+00 (most: encoder.word_embeddings.weight), by PyTorch's operations",
        ),
        (
            lambda loss, gradients: (loss, {name: each * float("inf") for name, each in gradients.items()}),
            "from that of fp32 and gradients nan",
        ),
        (lambda loss, gradients: (loss, without_one(gradients)), "other weights have gradients"),
    ],
)
def test_what_computes_otherwise_is_not_used(change: Callable[..., Found], why: str, kernels: Kernels) -> None:
    kernels.change = lambda found: change(*found)
    model, batch = model_and_batch("bert/tiny")
    told = compile_model(model, batch, HALF)
    assert told.startswith("nothing, the run goes on without: ")
    assert why in told
    assert is_plain(model)
    assert {each.backend for each in encoders_of(model)} == {None}
    assert not any(each.native_kernels_verified for each in encoders_of(model))


def test_a_compiler_that_fails_is_one_line_and_the_model_as_before(kernels: Kernels) -> None:
    def fail(found: Found) -> Found:
        for name, parameter in model.named_parameters():  # As when a backward pass breaks off.
            parameter.grad = found[1].get(name)
        raise OSError("no compiler here\nand a long story\nwith an end")

    kernels.change = fail
    model, batch = model_and_batch("electra/tiny")
    weights = {name: each.clone() for name, each in model.state_dict().items()}
    told = compile_model(model, batch, HALF)
    assert told == "nothing, the run goes on without: OSError: no compiler here and a long story"
    assert is_plain(model)
    assert all(torch.equal(weights[name], each) for name, each in model.state_dict().items())


def test_an_interrupt_is_none_of_its_business(kernels: Kernels) -> None:
    def interrupt(found: Found) -> Found:
        raise KeyboardInterrupt

    kernels.change = interrupt
    model, batch = model_and_batch("bert/tiny")
    with pytest.raises(KeyboardInterrupt):
        compile_model(model, batch, HALF)


@pytest.mark.parametrize("takes", [True, False])
def test_masks_are_compared_only_where_both_ways_draw_the_same(
    takes: bool, kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "takes_own", lambda row_length, head_size: takes)
    model, batch = model_and_batch("bert/tiny")
    compile_model(model, batch, HALF)
    for each in kernels.batches:
        keys = [micro.batch.dropout_key for micro in each.micro_batches]
        assert keys == [micro.batch.dropout_key if takes else None for micro in batch.micro_batches]
    assert all(micro.batch.dropout_key is not None for micro in batch.micro_batches)


def test_gradients_that_are_compared_are_those_of_a_step() -> None:
    model, batch = model_and_batch("electra/tiny")
    assert len(batch.micro_batches) > 1
    loss, gradients = _loss_and_gradients(model, batch, None)
    assert all(parameter.grad is None for parameter in model.parameters())
    optimizer = Optimizer(model.named_parameters(), toy("electra/tiny").training.optimizer)
    result = take_step(model, optimizer, batch, learning_rate=0.0, clip_norm=0.0, step=0)
    assert loss == pytest.approx(result.loss, rel=1e-5)
    # Encoder and generator share their embeddings, of which each is counted once.
    assert float(torch.nn.utils.get_total_norm(gradients.values())) == pytest.approx(result.gradient_norm, rel=1e-5)


# Wishes, and runs.


def test_a_cpu_compiles_nothing_and_wishes_are_checked() -> None:
    assert [compiles_on(torch.device("cuda"), wish) for wish in ("auto", "no")] == [True, False]
    assert not compiles_on(torch.device("cpu"), "auto")
    with pytest.raises(DeviceError, match="unknown wish 'yes' for compiling"):
        compiles_on(torch.device("cpu"), "yes")  # type: ignore[arg-type]


class Hearing(Silent):
    """Remembers what was said of compiling."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def say(self, topic: str, text: str) -> None:
        """Keep what is told of compiling."""
        if topic == "compiled":
            self.said.append(text)


def settings(tmp_path: Path, reporter: Hearing, **more: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"recipe": "bert/tiny", "steps": 6, "set": TOY, "clean": ("deduplicate=none",)}
    given |= {"out": tmp_path / "run", "workers": 1, "cache": tmp_path / "cache", "reporter": reporter}
    return given | more


@pytest.mark.slow
@pytest.mark.parametrize("wish", ["auto", "no"])
def test_a_run_tells_what_came_of_compiling_and_can_be_resumed_without(
    wish: Compiling, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compiled(model: PretrainingModel, batch: StepBatch, autocast: torch.dtype | None) -> str:
        assert 0 < batch.num_sequences <= 8
        assert model.training
        return compile_model(model, batch, autocast)

    # As if the processor were a GPU.
    monkeypatch.setattr(pretrain_module, "compiles_on", lambda device, wish: wish == "auto")
    monkeypatch.setattr(session_module, "compile_model", compiled)
    prepare = pretrain_module.prepare_machine_again

    def prepared(*given: Any) -> tuple[Machine, str]:
        machine, said = prepare(*given)
        return replace(machine, kernels="auto"), said

    monkeypatch.setattr(pretrain_module, "prepare_machine_again", prepared)
    corpus, hearing = write_corpus(tmp_path / "corpus.txt"), Hearing()
    more = settings(tmp_path, hearing)
    with monkeypatch.context() as patch:
        die_after(3, patch)
        with pytest.raises(KeyboardInterrupt):
            pretrain(corpus, compile=wish, checkpoint_minutes=0.0, **more)
    assert [text.startswith("nothing: our kernels take") for text in hearing.said] == [True] * (wish == "auto")
    run = pretrain(corpus, compile="no", **more)
    assert run.finished
    assert run.steps == 6
    assert len(hearing.said) == (wish == "auto")


@pytest.mark.slow
def test_on_a_cpu_the_wish_changes_nothing(tmp_path: Path) -> None:
    corpus, hearing = write_corpus(tmp_path / "corpus.txt"), Hearing()
    kept = []
    for wish in ("auto", "no"):
        run = pretrain(corpus, compile=wish, **settings(tmp_path, hearing, out=tmp_path / wish))  # type: ignore[arg-type]
        kept.append(((run.folder / "metrics.jsonl").read_bytes(), read_json(run.folder / "run.json")["machine"]))
    assert kept[0] == kept[1]
    assert not hearing.said
    # It is no part of what was asked: a run goes on with another.
    assert "compile" not in read_json(run.folder / "run.json")["request"]


GPU = Machine(torch.device("cuda"), "a GPU", 1, "default", 1e12, HALF, "auto")


@pytest.mark.parametrize(
    ("machine", "wish", "computes"),
    [
        (GPU, "auto", ("auto", True, True)),
        (GPU, "no", ("reference", False, False)),
        (replace(GPU, kernels="reference"), "auto", ("reference", False, False)),
        (replace(GPU, device=torch.device("cpu"), autocast=None), "auto", ("auto", False, True)),
        (replace(GPU, device=torch.device("cpu"), autocast=None), "no", ("auto", False, True)),
    ],
)
def test_a_gpu_computes_by_kernels_unless_told_otherwise_or_it_cannot(
    machine: Machine,
    wish: Compiling,
    computes: tuple[str, bool, bool],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = []

    def open_session(request: Any, directory: Any, record: Any, machine: Machine, *rest: Any, compiles: bool) -> Any:
        found.append((machine.kernels, compiles, native_kernels_enabled()))
        raise KeyboardInterrupt

    monkeypatch.setattr(pretrain_module, "prepare_machine_again", lambda *_: (machine, ""))
    monkeypatch.setattr(pretrain_module, "_open_session", open_session)
    corpus = write_corpus(tmp_path / "corpus.txt")
    with pytest.raises(KeyboardInterrupt):
        pretrain(corpus, compile=wish, **settings(tmp_path, Hearing()))
    assert found == [computes]
