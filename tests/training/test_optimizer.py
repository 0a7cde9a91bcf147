import math

import pytest
import torch
from torch import Tensor, nn

from maskwright.core.errors import CheckpointError
from maskwright.recipes.optimization import AdamW, Lamb, OptimizerSpec
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


@pytest.mark.parametrize("constants", [AdamW(), Lamb()], ids=lambda constants: constants.kind)
def test_loaded_state_continues_bit_for_bit(constants: OptimizerSpec) -> None:
    net, other = model(), model()
    optimizer = Optimizer(net.named_parameters(), constants)
    for seed in range(3):
        backward(net, seed)
        optimizer.step(0.01)
    other.load_state_dict(net.state_dict())
    resumed = Optimizer(other.named_parameters(), constants)
    resumed.load_state({name: value.clone() for name, value in optimizer.state().items()}, 3)
    for part, trained in ((net, optimizer), (other, resumed)):
        backward(part, 9)
        trained.step(0.02)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("constants", [AdamW(), Lamb()], ids=lambda constants: constants.kind)
def test_state_of_another_model_is_refused(constants: OptimizerSpec) -> None:
    net = model()
    optimizer = Optimizer(net.named_parameters(), constants)
    with pytest.raises(CheckpointError, match=r"exp_avg of 0\.weight: found nothing"):
        optimizer.load_state({}, 1)


@pytest.mark.parametrize("constants", [AdamW(), Lamb()], ids=lambda constants: constants.kind)
def test_every_parameter_is_updated_once_a_step_and_tied_ones_count_once(constants: OptimizerSpec) -> None:
    net, other = model(), model()
    names = list(net.named_parameters())
    tied, plain = Optimizer([*names, ("tied", names[0][1])], constants), Optimizer(other.named_parameters(), constants)
    for part, optimizer in ((net, tied), (other, plain)):
        backward(part, 1)
        optimizer.step(0.01)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), other.parameters(), strict=True))
    assert tied.state().keys() == {f"{moment}.{name}" for moment in ("exp_avg", "exp_avg_sq") for name, _ in names}


def lamb_told_plainly(values: Tensor, gradients: list[Tensor], rates: list[float], c: Lamb) -> Tensor:
    """One parameter's values after some steps, by the written formula (lamb_optimizer.py:40-122)."""
    first, second = torch.zeros_like(values), torch.zeros_like(values)
    for gradient, rate in zip(gradients, rates, strict=True):
        first = c.betas[0] * first + (1 - c.betas[0]) * gradient
        second = c.betas[1] * second + (1 - c.betas[1]) * gradient**2
        update = first / (second.sqrt() + c.eps)
        ratio = 1.0
        if values.ndim > 1:
            update = update + c.weight_decay * values
            size, step = float(values.norm()), float(update.norm())
            ratio = size / step if size > 0 and step > 0 else 1.0
        values = values - rate * ratio * update
    return values


def test_lamb_equals_the_written_formula() -> None:
    constants = Lamb(weight_decay=0.1)
    net = model().double()
    optimizer = Optimizer(net.named_parameters(), constants)
    begun = {name: value.detach().clone() for name, value in net.named_parameters()}
    gradients: dict[str, list[Tensor]] = {name: [] for name in begun}
    rates = [0.01 * step for step in range(1, 8)]
    for step, rate in enumerate(rates):
        torch.manual_seed(step)
        net(torch.randn(5, 3, dtype=torch.float64)).square().sum().backward()
        for name, parameter in net.named_parameters():
            assert parameter.grad is not None
            gradients[name].append(parameter.grad.clone())
        optimizer.step(rate)
    for name, parameter in net.named_parameters():
        expected = lamb_told_plainly(begun[name], gradients[name], rates, constants)
        torch.testing.assert_close(parameter.detach(), expected, rtol=1e-12, atol=1e-14)


def test_lamb_moves_each_matrix_by_the_same_share_of_itself() -> None:
    small, large, bias = (nn.Parameter(values) for values in (torch.full((2, 3), 0.1), torch.ones(4, 5), torch.ones(3)))
    begun = [parameter.detach().clone() for parameter in (small, large, bias)]
    optimizer = Optimizer([("small", small), ("large", large), ("bias", bias)], Lamb())
    for parameter in (small, large, bias):
        parameter.grad = torch.full_like(parameter, 7.0)
    optimizer.step(0.125)
    moved = [(new.detach() - old).norm() / old.norm() for new, old in zip((small, large, bias), begun, strict=True)]
    torch.testing.assert_close(torch.stack(moved[:2]), torch.full((2,), 0.125))
    # A bias takes Adam's own step: .1 / sqrt(.001) of the learning rate in the first one, no decay.
    assert float(moved[2]) == pytest.approx(0.125 * 0.1 / math.sqrt(0.001), rel=1e-5)


@pytest.mark.parametrize(("value", "gradient"), [(0.0, 2.0), (0.0, 0.0), (3.0, 0.0)])
def test_lamb_s_ratio_is_one_where_weights_or_update_are_zero(value: float, gradient: float) -> None:
    weight = nn.Parameter(torch.full((2, 2), value, dtype=torch.float64))
    weight.grad = torch.full_like(weight, gradient)
    constants = Lamb(weight_decay=0.0)
    optimizer = Optimizer([("w", weight)], constants)
    optimizer.step(0.5)
    update = 0.1 * gradient / (math.sqrt(0.001) * gradient + constants.eps)
    torch.testing.assert_close(weight.detach(), torch.full((2, 2), value - 0.5 * update, dtype=torch.float64))


@pytest.mark.parametrize("constants", [AdamW(), Lamb()], ids=lambda constants: constants.kind)
def test_parameters_without_a_gradient_stay_and_are_saved_with_zero_moments(constants: OptimizerSpec) -> None:
    reached, unreached = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(3, 3))
    optimizer = Optimizer([("reached", reached), ("unreached", unreached)], constants)
    reached.grad = torch.ones(2, 2)
    optimizer.step(0.1)
    assert torch.equal(unreached.detach(), torch.ones(3, 3))
    assert not torch.equal(reached.detach(), torch.ones(2, 2))
    assert reached.grad is None
    assert torch.equal(optimizer.state()["exp_avg.unreached"], torch.zeros(3, 3))
