"""Compiled blocks compute what plain ones do; what cannot be compiled, or computes otherwise, is left as it was."""

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
from maskwright.encoder import compiled_blocks
from maskwright.encoder.compiled_blocks import compile_blocks
from maskwright.training import pretrain as pretrain_module
from maskwright.training import session as session_module
from maskwright.training.batches import StepBatch
from maskwright.training.compiling import Compiling, _loss_and_gradients, compile_model, compiles_on
from maskwright.training.model import PretrainingModel
from maskwright.training.optimizer import Optimizer
from maskwright.training.pretrain import pretrain
from maskwright.training.reporting import Silent
from maskwright.training.step import take_step

# What a compiler warns of is its own.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@pytest.fixture
def nothing_compiled() -> None:
    """Nothing that was compiled for another test serves this one."""
    torch.compiler.reset()


def model_and_batch(name: str, count: int = 8) -> tuple[PretrainingModel, StepBatch]:
    recipe = toy(name)
    return model_of(recipe).train(), step(recipe, count=count)


def is_plain(model: PretrainingModel) -> bool:
    return not any("forward" in module.__dict__ for module in model.modules())


@pytest.mark.parametrize(("name", "backend"), [("bert/tiny", "aot_eager"), ("electra/tiny", "eager")])
def test_compiled_blocks_have_the_same_losses_gradients_and_names(name: str, backend: str) -> None:
    model, batch = model_and_batch(name)
    assert model.config.hidden_dropout > 0
    assert batch.micro_batches[0].batch.dropout_key is not None
    names, weights = list(model.state_dict()), list(model.weights())
    plain = {count: _loss_and_gradients(model, step(toy(name), count=count), None) for count in (8, 13)}
    told = compile_model(model, batch, None, backend)
    assert told.startswith("blocks in ")
    assert not is_plain(model)
    assert (list(model.state_dict()), list(model.weights())) == (names, weights)
    assert all(parameter.grad is None for parameter in model.parameters())
    for count, (loss, gradients) in plain.items():  # Other numbers of tokens too.
        other_loss, others = _loss_and_gradients(model, step(toy(name), count=count), None)
        assert other_loss == pytest.approx(loss, rel=1e-6)
        assert others.keys() == gradients.keys()
        largest = max(float(gradient.abs().max()) for gradient in gradients.values())
        for each, gradient in gradients.items():
            torch.testing.assert_close(others[each], gradient, rtol=1e-4, atol=1e-6 * largest)


def test_blocks_of_many_layers_share_what_is_compiled() -> None:
    # A function that is compiled anew for each block is given up after eight.
    assert graphs_of(layers=3) == graphs_of(layers=12)


def graphs_of(layers: int) -> int:
    """How many graphs are compiled for a model and a batch."""
    torch.compiler.reset()
    recipe = toy("bert/tiny")
    model = model_of(recipe.replace(encoder=recipe.encoder.replace(num_layers=layers))).train()
    graphs = list[Any]()

    def count(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    compile_blocks(model.encoder, count)
    _loss_and_gradients(model, step(recipe, count=8), None)
    return len(graphs)


def broken(graph: Any, inputs: Any) -> Any:
    raise OSError("no compiler here\nand a long story")


@pytest.mark.usefixtures("nothing_compiled")
def test_without_gradients_nothing_compiled_runs() -> None:
    model, batch = model_and_batch("bert/tiny")
    plain = model.eval().losses(batch.micro_batches[0])["mlm"].total
    compile_blocks(model.encoder, broken)
    with torch.inference_mode():
        assert torch.equal(model.losses(batch.micro_batches[0])["mlm"].total, plain)


def test_steps_and_checkpoints_go_on_from_one_kind_to_the_other() -> None:
    model, batch = model_and_batch("bert/tiny")
    same, _ = model_and_batch("bert/tiny")
    compile_model(model, batch, None, "eager")
    losses = []
    for each in (model, same):
        optimizer = Optimizer(each.named_parameters(), toy("bert/tiny").training.optimizer)
        steps = [take_step(each, optimizer, batch, learning_rate=0.002, clip_norm=1.0, step=n) for n in range(3)]
        losses.append([result.loss for result in steps])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    same.load(model.weights(), "there")
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in same.state_dict().items())


def test_under_bf16_autocast_the_proof_holds_too() -> None:
    model, batch = model_and_batch("bert/tiny")
    assert compile_model(model, batch, torch.bfloat16, "aot_eager").startswith("blocks in ")


@pytest.mark.usefixtures("nothing_compiled")
def test_a_compiler_that_fails_is_one_line_and_the_model_as_before() -> None:
    model, batch = model_and_batch("bert/tiny")
    plain = _loss_and_gradients(model, batch, None)
    told = compile_model(model, batch, None, broken)
    assert told.startswith("no blocks, the run goes on without: ")
    assert "no compiler here" in told
    assert "\n" not in told
    assert is_plain(model)
    loss, gradients = _loss_and_gradients(model, batch, None)
    assert loss == plain[0]
    assert all(torch.equal(gradients[name], gradient) for name, gradient in plain[1].items())


@pytest.mark.usefixtures("nothing_compiled")
@pytest.mark.parametrize("factor", [1.01, float("nan")])
def test_what_computes_otherwise_is_not_used(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(block: Any, values: Tensor, residual: Tensor, bits: Tensor | None) -> Any:
        return block.norm(residual + values) * factor

    monkeypatch.setattr(compiled_blocks, "_added_and_normed", wrong)
    model, batch = model_and_batch("bert/tiny")
    told = compile_model(model, batch, None, "eager")
    assert "apart on one batch, allowed 1e-05 and 1e-04" in told
    assert is_plain(model)


def test_a_cpu_compiles_nothing_and_wishes_are_checked() -> None:
    assert [compiles_on(torch.device("cuda"), wish) for wish in ("auto", "no")] == [True, False]
    assert not compiles_on(torch.device("cpu"), "auto")
    with pytest.raises(DeviceError, match="unknown wish 'yes' for compiling"):
        compiles_on(torch.device("cpu"), "yes")  # type: ignore[arg-type]


@pytest.mark.parametrize("wish", ["auto", "no"])
def test_a_run_tells_what_came_of_compiling_and_can_be_resumed_without(
    wish: Compiling, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compiled(model: PretrainingModel, batch: StepBatch, autocast: torch.dtype | None) -> str:
        assert 0 < batch.num_sequences <= 8
        return compile_model(model, batch, autocast, "eager")

    # As if the processor were a GPU.
    monkeypatch.setattr(pretrain_module, "compiles_on", lambda device, wish: wish == "auto")
    monkeypatch.setattr(session_module, "compile_model", compiled)
    said = list[str]()

    class Hearing(Silent):
        def say(self, topic: str, text: str) -> None:
            if topic == "compiled":
                said.append(text)

    corpus = write_corpus(tmp_path / "corpus.txt")
    more: dict[str, Any] = {"set": TOY, "clean": ("deduplicate=none",), "workers": 1, "cache": tmp_path / "cache"}
    more |= {"recipe": "bert/tiny", "steps": 6, "out": tmp_path / "run", "reporter": Hearing()}
    with monkeypatch.context() as patch:
        die_after(3, patch)
        with pytest.raises(KeyboardInterrupt):
            pretrain(corpus, compile=wish, checkpoint_minutes=0.0, **more)
    assert [text.startswith("blocks in ") for text in said] == [True] * (wish == "auto")
    run = pretrain(corpus, compile="no", **more)
    assert run.finished
    assert run.steps == 6
    assert len(said) == (wish == "auto")
