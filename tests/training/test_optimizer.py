import math

import pytest
import torch
from torch import nn

from maskwright.core.errors import CheckpointError
from maskwright.recipes.optimization import AdamW
from maskwright.training.optimizer import Optimizer


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))


def backward(net: nn.Module, seed: int) -> None:
    torch.manual_seed(seed)
    net(torch.randn(5, 3)).square().sum().backward()


def reference_step(
    values: torch.Tensor,
    gradient: torch.Tensor,
    moments: list[torch.Tensor],
    step: int,
    c: AdamW,
    lr: float,
    decay: float,
) -> torch.Tensor:
    beta1, beta2 = c.betas
    moments[0] = beta1 * moments[0] + (1 - beta1) * gradient
    moments[1] = beta2 * moments[1] + (1 - beta2) * gradient**2
    first, second = moments
    if c.bias_correction:
        first, second = first / (1 - beta1**step), second / (1 - beta2**step)
    return values - lr * (first / (second.sqrt() + c.eps) + decay * values)


@pytest.mark.parametrize("bias_correction", [False, True])
@pytest.mark.parametrize("decayed", ["matrices", "all"])
def test_optimizer_equals_the_written_formula(bias_correction: bool, decayed: str) -> None:
    constants = AdamW(bias_correction=bias_correction, decayed=decayed, weight_decay=0.1)  # type: ignore[arg-type]
    net = model().double()
    optimizer = Optimizer(net.named_parameters(), constants)
    expected = {name: value.detach().clone() for name, value in net.named_parameters()}
    moments = {name: [torch.zeros_like(value)] * 2 for name, value in expected.items()}
    for step in range(1, 8):
        torch.manual_seed(step)
        net(torch.randn(5, 3, dtype=torch.float64)).square().sum().backward()
        for name, parameter in net.named_parameters():
            assert parameter.grad is not None
            decay = 0.1 if decayed == "all" or parameter.ndim > 1 else 0.0
            expected[name] = reference_step(
                expected[name], parameter.grad.clone(), moments[name], step, constants, 0.01 * step, decay
            )
        optimizer.step(0.01 * step)
    for name, parameter in net.named_parameters():
        torch.testing.assert_close(parameter.detach(), expected[name], rtol=1e-9, atol=1e-10)


def test_first_step_of_bert_is_3_16_times_the_usual_size() -> None:
    weight = nn.Parameter(torch.zeros(2, 2))
    optimizer = Optimizer([("w", weight)], AdamW(bias_correction=False, weight_decay=0.0, eps=1e-12))
    weight.grad = torch.tensor([[1.0, -2.0], [3.0, -4.0]])
    optimizer.step(1.0)
    torch.testing.assert_close(weight.detach().abs(), torch.full((2, 2), 0.1 / math.sqrt(0.001)), rtol=1e-5, atol=0)


def test_a_zero_learning_rate_changes_nothing() -> None:
    net = model()
    before = [parameter.detach().clone() for parameter in net.parameters()]
    backward(net, 1)
    Optimizer(net.named_parameters(), AdamW(bias_correction=False)).step(0.0)
    assert all(torch.equal(old, new.detach()) for old, new in zip(before, net.parameters(), strict=True))


def test_loaded_state_continues_bit_for_bit() -> None:
    net, other = model(), model()
    optimizer = Optimizer(net.named_parameters(), AdamW())
    for seed in range(3):
        backward(net, seed)
        optimizer.step(0.01)
    other.load_state_dict(net.state_dict())
    resumed = Optimizer(other.named_parameters(), AdamW())
    resumed.load_state({name: value.clone() for name, value in optimizer.state().items()}, 3)
    for part, trained in ((net, optimizer), (other, resumed)):
        backward(part, 9)
        trained.step(0.02)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), other.parameters(), strict=True))


def test_state_of_another_model_is_refused() -> None:
    net = model()
    optimizer = Optimizer(net.named_parameters(), AdamW())
    with pytest.raises(CheckpointError, match=r"exp_avg of 0\.weight: found nothing"):
        optimizer.load_state({}, 1)


def test_every_parameter_is_in_exactly_one_group_and_tied_ones_count_once() -> None:
    net = model()
    names = list(net.named_parameters())
    optimizer = Optimizer([*names, ("tied", names[0][1])], AdamW())
    grouped = [p for group in optimizer._torch.param_groups for p in group["params"]]
    assert len(grouped) == len(names)
    assert {id(p) for p in grouped} == {id(p) for _, p in names}
