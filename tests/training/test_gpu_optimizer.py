"""Optimizers on a GPU update as on a CPU, and clip and skip without waiting for the GPU."""

import math

import pytest
import torch
from torch import Tensor, nn

from maskwright.recipes.optimization import AdamW, Muon, OptimizerSpec, StableAdamW
from maskwright.training.steps.optimizer import Clipping, total_norm
from maskwright.training.steps.update_rules import build_optimizer

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

SHAPES = {
    "encoder.word_embeddings.weight": (100, 32),
    "encoder.attention_blocks.0.query.weight": (32, 32),
    "encoder.attention_blocks.1.query.weight": (32, 32),
    "encoder.ffn_blocks.0.dense_in.weight": (64, 32),
    "encoder.ffn_blocks.0.dense_in.bias": (64,),
    "heads.mlm.dense.weight": (32, 32),
}
KINDS = pytest.mark.parametrize("constants", [AdamW(), Muon(), StableAdamW()], ids=lambda constants: constants.kind)


def parameters_on(device: str) -> dict[str, nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return {name: nn.Parameter(torch.randn(shape, generator=generator).to(device)) for name, shape in SHAPES.items()}


def add_gradients(parameters: dict[str, nn.Parameter], seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    gradients = [torch.randn(each.shape, generator=generator).to(each.device) for each in parameters.values()]
    for parameter, gradient in zip(parameters.values(), gradients, strict=True):
        parameter.grad = gradient
    return gradients


# PyTorch warns that this mode does not see every operation that waits.
@pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning")
@KINDS
def test_updates_on_a_gpu_are_those_of_a_cpu_and_wait_for_nothing(constants: OptimizerSpec) -> None:
    on_gpu, on_cpu = parameters_on("cuda"), parameters_on("cpu")
    before = {name: each.detach().clone() for name, each in on_cpu.items()}
    for parameters in (on_gpu, on_cpu):
        optimizer = build_optimizer(parameters.items(), constants, peak=0.01)
        for step in range(3):
            norm = total_norm(add_gradients(parameters, step))
            clipping = Clipping.of(norm, torch.ones_like(norm), 1.0)
            torch.cuda.set_sync_debug_mode("error" if step else "default")
            try:
                optimizer.step(0.01, clipping)
            finally:
                torch.cuda.set_sync_debug_mode("default")
    for name, each in on_gpu.items():
        moved, expected = each.detach().cpu() - before[name], on_cpu[name].detach() - before[name]
        # Muon computes in bfloat16 on a GPU.
        limit = 0.05 if constants.kind == "muon" else 1e-4
        assert float((moved - expected).norm()) < limit * float(expected.norm()), name


@KINDS
def test_a_skipped_update_on_a_gpu_changes_nothing(constants: OptimizerSpec) -> None:
    parameters = parameters_on("cuda")
    optimizer = build_optimizer(parameters.items(), constants, peak=0.01)
    one = torch.ones((), device="cuda")
    for step, loss in enumerate((one, math.nan * one)):
        norm = total_norm(add_gradients(parameters, step))
        weights = {name: each.detach().clone() for name, each in parameters.items()}
        moments = {name: each.clone() for name, each in optimizer.state().items()}
        optimizer.step(0.01, Clipping.of(norm, loss, 1.0))
    assert all(torch.equal(each, weights[name]) for name, each in parameters.items())
    assert all(torch.equal(each, moments[name]) for name, each in optimizer.state().items())
