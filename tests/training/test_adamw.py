"""AdamW and the gradient norm follow the written formula."""

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from maskwright.recipes.optimization import AdamW, Lamb, OptimizerSpec
from maskwright.training.optimizer import MOMENTS, Optimizer, clipping_scale, total_norm

INF, NAN = math.inf, math.nan
SIZES = st.lists(
    st.sampled_from([1, 2, 15, 16, 17, 31, 63, 64, 65, 255, 8191, 8192, 8193, 20_000]), min_size=1, max_size=6
)


def drawn(sizes: Sequence[int], seed: int, scale: float = 1.0) -> list[Tensor]:
    """Draw tensors, every other one a matrix (which decays); scales differ between them."""
    draws = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(size, generator=draws) * scale * 4.0 ** (i % 3) for i, size in enumerate(sizes)]
    return [tensor.view(1, -1) if i % 2 else tensor for i, tensor in enumerate(tensors)]


def optimizer_of(parameters: Sequence[nn.Parameter], constants: OptimizerSpec) -> Optimizer:
    return Optimizer([(str(i), each) for i, each in enumerate(parameters)], constants)


def trained(
    sizes: Sequence[int], constants: AdamW, steps: int, *, clip_norm: float = 0.0
) -> tuple[list[nn.Parameter], Optimizer]:
    parameters = [nn.Parameter(values) for values in drawn(sizes, 0)]
    optimizer = optimizer_of(parameters, constants)
    for step in range(1, steps + 1):
        take_step(parameters, optimizer, step, clip_norm)
    return parameters, optimizer


def take_step(parameters: Sequence[nn.Parameter], optimizer: Optimizer, step: int, clip_norm: float = 0.0) -> None:
    gradients = drawn([each.numel() for each in parameters], step)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    optimizer.step(0.01 * step, gradient_scale=clipping_scale(float(total_norm(gradients)), clip_norm))


def written_formula(
    sizes: Sequence[int], constants: AdamW, steps: int, clip_norm: float, *, of_sizes: bool = False
) -> list[list[Tensor]]:
    """Return weights and both moments after some steps, in fp64; with `of_sizes` every term is added by its size."""
    (beta1, beta2), found = constants.betas, []
    gradients = [[each.double() for each in drawn(sizes, step)] for step in range(1, steps + 1)]
    norms = [float(torch.cat([each.flatten() for each in of_step]).norm()) for of_step in gradients]
    for i, values in enumerate(drawn(sizes, 0)):
        weight, first, second = values.double(), torch.zeros(()).double(), torch.zeros(()).double()
        weight, direction = (weight.abs(), -1) if of_sizes else (weight, 1)
        decay = constants.weight_decay if weight.ndim > 1 or constants.decayed == "all" else 0.0
        for step in range(1, steps + 1):
            gradient = gradients[step - 1][i].abs() if of_sizes else gradients[step - 1][i]
            if clip_norm and norms[step - 1] > clip_norm:
                gradient = gradient * clip_norm / (norms[step - 1] + 1e-6)
            first = beta1 * first + (1 - beta1) * gradient
            second = beta2 * second + (1 - beta2) * gradient**2
            m, v = first, second
            if constants.bias_correction:
                m, v = m / (1 - beta1**step), v / (1 - beta2**step)
            weight = weight - direction * 0.01 * step * (m / (v.sqrt() + constants.eps) + decay * weight)
        found.append([weight, first, second])
    return found


def values_of(parameters: Sequence[nn.Parameter], optimizer: Optimizer) -> list[list[Tensor]]:
    state = optimizer.state()
    return [[each.detach(), *(state[f"{moment}.{i}"] for moment in MOMENTS)] for i, each in enumerate(parameters)]


def assert_close(
    found: list[list[Tensor]], expected: list[list[Tensor]], terms: list[list[Tensor]] | None = None
) -> None:
    """Compare weights and moments; where terms cancel, what is left is as exact as the terms were."""
    for one, other, largest in zip(found, expected, terms or expected, strict=True):
        for mine, right, term in zip(one, other, largest, strict=True):
            apart = (mine.double() - right.double()).abs()
            assert (apart <= 2e-6 * torch.maximum(right.double().abs(), term.double().abs())).all()


def terms_of(sizes: Sequence[int], constants: AdamW, steps: int, clip_norm: float) -> list[list[Tensor]]:
    """Return weights and moments as they would be if no terms cancelled."""
    return written_formula(sizes, constants, steps, clip_norm, of_sizes=True)


@settings(max_examples=40, deadline=None)
@given(
    sizes=SIZES,
    clip_norm=st.sampled_from([0.0, 1.0, 1e6]),
    decay=st.sampled_from([0.0, 0.1]),
    decayed=st.sampled_from(["matrices", "all"]),
    corrects=st.booleans(),
    betas=st.sampled_from([(0.9, 0.999), (0.9, 0.98), (0.0, 0.0)]),
)
def test_updates_follow_the_written_formula(
    sizes: list[int], clip_norm: float, decay: float, decayed: str, corrects: bool, betas: tuple[float, float]
) -> None:
    constants = AdamW.model_validate(
        {"betas": betas, "weight_decay": decay, "decayed": decayed, "bias_correction": corrects}
    )
    ours, terms = (
        values_of(*trained(sizes, constants, 4, clip_norm=clip_norm)),
        terms_of(sizes, constants, 4, clip_norm),
    )
    assert_close(ours, written_formula(sizes, constants, 4, clip_norm), terms)


@settings(max_examples=40, deadline=None)
@given(sizes=SIZES, scale=st.sampled_from([1e-12, 1.0, 1e12]))
def test_norm_is_that_of_all_elements(sizes: list[int], scale: float) -> None:
    gradients = drawn(sizes, 3, scale)
    exact = float(torch.cat([each.flatten().double() for each in gradients]).norm())
    assert float(total_norm(gradients)) == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize("bad", [INF, -INF, NAN, 3e38])
@pytest.mark.parametrize("at", [0, 17, 8191, 8192, 20_000])
def test_norm_is_no_number_where_a_gradient_is_none_or_too_large(bad: float, at: int) -> None:
    gradients = [torch.ones(20_001), torch.ones(3)]
    gradients[0][at] = bad
    assert not math.isfinite(float(total_norm(gradients)))


def test_a_loaded_state_goes_on_bit_for_bit() -> None:
    sizes, constants = [17, 300, 8193], AdamW(weight_decay=0.1)
    parameters, optimizer = trained(sizes, constants, 3)
    others = [nn.Parameter(each.detach().clone()) for each in parameters]
    resumed = optimizer_of(others, constants)
    # Its moments have been elsewhere before: those that are loaded count.
    take_step(others, resumed, 9)
    with torch.no_grad():
        for other, each in zip(others, parameters, strict=True):
            other.copy_(each)
    state = {name: value.clone() for name, value in optimizer.state().items()}
    assert state.keys() == {f"{moment}.{i}" for moment in MOMENTS for i in range(3)}
    resumed.load_state(state, 3)
    for step in (4, 5):
        take_step(parameters, optimizer, step)
        take_step(others, resumed, step)
    for one, again in zip(values_of(parameters, optimizer), values_of(others, resumed), strict=True):
        assert all(torch.equal(mine, right) for mine, right in zip(one, again, strict=True))


def test_nothing_is_updated_where_no_gradient_is() -> None:
    weight = nn.Parameter(torch.ones(20))
    optimizer = optimizer_of([weight], AdamW())
    optimizer.step(0.1)
    assert torch.equal(weight.detach(), torch.ones(20))
    assert torch.equal(optimizer.state()["exp_avg.0"], torch.zeros(20))


@pytest.mark.parametrize("constants", [AdamW(), Lamb()], ids=lambda constants: constants.kind)
def test_gradients_are_scaled_first(constants: OptimizerSpec) -> None:
    values, gradient = torch.randn(5, 7), torch.randn(5, 7)
    found = []
    for factor, scale in ((1.0, 0.25), (0.25, 1.0)):
        weight = nn.Parameter(values.clone())
        optimizer = optimizer_of([weight], constants)
        weight.grad = gradient * factor
        optimizer.step(0.1, gradient_scale=scale)
        found.append(values_of([weight], optimizer)[0])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
