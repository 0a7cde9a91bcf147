"""AdamW, StableAdamW, LAMB, Muon, the gradient norm and clipping follow their written formulas."""

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from maskwright.core.errors import CheckpointError
from maskwright.recipes.optimization import AdamW, Lamb, Muon, OptimizerSpec, StableAdamW
from maskwright.training.steps.optimizer import MOMENTS, Clipping, Optimizer, clipping_scale, total_norm
from maskwright.training.steps.update_rules import build_optimizer, orthogonalize

INF, NAN = math.inf, math.nan
PEAK = 0.1
SIZES = st.lists(
    st.sampled_from([1, 2, 15, 16, 17, 31, 63, 64, 65, 255, 8191, 8192, 8193, 20_000]), min_size=1, max_size=6
)
MATRICES = [
    "encoder.attention_blocks.0.query.weight",
    "encoder.ffn_blocks.0.dense_in.weight",
    "generator.ffn_blocks.0.dense_out.weight",
]
MUON_SHAPES = dict(zip(MATRICES, [(6, 6), (12, 6), (6, 12)], strict=True)) | {
    "encoder.attention_blocks.1.query.weight": (6, 6),
    "encoder.attention_blocks.0.query.bias": (6,),
    "encoder.word_embeddings.weight": (20, 6),
    "heads.mlm.dense.weight": (6, 6),
}
every_rule = pytest.mark.parametrize("constants", [AdamW(), Lamb(), StableAdamW(), Muon()], ids=lambda each: each.kind)


def random_tensors(sizes: Sequence[int], seed: int, scale: float = 1.0) -> list[Tensor]:
    """Return tensors of several scales, every other one a matrix (which decays)."""
    generator = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(size, generator=generator) * scale * 4.0 ** (i % 3) for i, size in enumerate(sizes)]
    return [tensor.view(1, -1) if i % 2 else tensor for i, tensor in enumerate(tensors)]


def optimizer_of(parameters: Sequence[nn.Parameter], constants: OptimizerSpec) -> Optimizer:
    return build_optimizer([(f"encoder.{i}", each) for i, each in enumerate(parameters)], constants, peak=PEAK)


def take_step(parameters: Sequence[nn.Parameter], optimizer: Optimizer, step: int, clip_norm: float = 0.0) -> None:
    gradients = random_tensors([each.numel() for each in parameters], step)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.view(parameter.shape)
    optimizer.step(0.01 * step, gradient_scale=clipping_scale(float(total_norm(gradients)), clip_norm))


def trained(
    sizes: Sequence[int], constants: OptimizerSpec, steps: int, *, clip_norm: float = 0.0
) -> tuple[list[nn.Parameter], Optimizer]:
    parameters = [nn.Parameter(values) for values in random_tensors(sizes, 0)]
    optimizer = optimizer_of(parameters, constants)
    for step in range(1, steps + 1):
        take_step(parameters, optimizer, step, clip_norm)
    return parameters, optimizer


def values_of(parameters: Sequence[nn.Parameter], optimizer: Optimizer) -> list[list[Tensor]]:
    """Return the weights and moments of each parameter."""
    state = optimizer.state().items()
    return [
        [each.detach(), *(moment for name, moment in state if name.endswith(f".{i}"))]
        for i, each in enumerate(parameters)
    ]


def assert_equal(actual: list[list[Tensor]], expected: list[list[Tensor]]) -> None:
    for one, other in zip(actual, expected, strict=True):
        assert all(torch.equal(actual_tensor, right) for actual_tensor, right in zip(one, other, strict=True))


# --- AdamW


def written_adamw(
    sizes: Sequence[int], constants: AdamW, steps: int, clip_norm: float, *, of_sizes: bool = False
) -> list[list[Tensor]]:
    """Return weights and both moments after some steps, in fp64; with `of_sizes` every term is added by its size."""
    (beta1, beta2), results = constants.betas, []
    gradients = [[each.double() for each in random_tensors(sizes, step)] for step in range(1, steps + 1)]
    norms = [float(torch.cat([each.flatten() for each in of_step]).norm()) for of_step in gradients]
    for i, values in enumerate(random_tensors(sizes, 0)):
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
        results.append([weight, first, second])
    return results


@settings(max_examples=60)
@given(
    sizes=SIZES,
    clip_norm=st.sampled_from([0.0, 0.7]),
    decay=st.sampled_from([0.0, 0.1]),
    decayed=st.sampled_from(["matrices", "all"]),
    corrects=st.booleans(),
    betas=st.sampled_from([(0.9, 0.999), (0.9, 0.98), (0.0, 0.0)]),
)
def test_adamw_follows_the_written_formula(sizes, clip_norm, decay, decayed, corrects, betas):
    constants = AdamW(betas=betas, weight_decay=decay, decayed=decayed, bias_correction=corrects)
    actual = values_of(*trained(sizes, constants, 4, clip_norm=clip_norm))
    expected = written_adamw(sizes, constants, 4, clip_norm)
    # Where terms cancel, the rest is as exact as the terms were.
    terms = written_adamw(sizes, constants, 4, clip_norm, of_sizes=True)
    for one, other, largest in zip(actual, expected, terms, strict=True):
        for value, right, term in zip(one, other, largest, strict=True):
            limit = 2e-6 * torch.maximum(right.double().abs(), term.double().abs())
            assert ((value.double() - right.double()).abs() <= limit).all()


def test_first_step_of_bert_is_3_16_times_the_usual_size() -> None:
    weight = nn.Parameter(torch.zeros(2, 2))
    optimizer = build_optimizer([("w", weight)], AdamW(bias_correction=False, weight_decay=0.0, eps=1e-12))
    weight.grad = torch.tensor([[1.0, -2.0], [3.0, -4.0]])
    optimizer.step(1.0)
    torch.testing.assert_close(weight.detach().abs(), torch.full((2, 2), 0.1 / math.sqrt(0.001)), rtol=1e-5, atol=0)


def test_rates_of_parameters_are_scaled_by_name() -> None:
    full, half = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    optimizer = build_optimizer([("full", full), ("half", half)], AdamW(), lambda name: 0.5 if name == "half" else 1.0)
    full.grad, half.grad = torch.ones(3), torch.ones(3)
    optimizer.step(0.1)
    torch.testing.assert_close(1 - half.detach(), (1 - full.detach()) / 2)


# --- StableAdamW


def test_stable_adamw_follows_the_written_formula() -> None:
    constants, sizes = StableAdamW(weight_decay_per_step=0.3), [12, 35, 4, 8]
    (beta1, beta2), eps = constants.betas, constants.eps
    parameters = [nn.Parameter(values.double()) for values in random_tensors(sizes, 0)]
    expected = [each.detach().clone() for each in parameters]
    first, second = ([torch.zeros_like(each) for each in parameters] for _ in MOMENTS)
    optimizer, limited = optimizer_of(parameters, constants), set()
    for step in range(1, 8):
        # Gradients grow, so that the second moment is too small for them; one is always below eps.
        rate, gradients = 0.01 * step, [each.double() * 2**step for each in random_tensors(sizes, step)]
        gradients[3] *= 1e-9
        for i, gradient in enumerate(gradients):
            parameters[i].grad = gradient.clone()
            first[i] = beta1 * first[i] + (1 - beta1) * gradient
            second[i] = beta2 * second[i] + (1 - beta2) * gradient**2
            m, v = first[i] / (1 - beta1**step), second[i] / (1 - beta2**step)
            size = float((gradient**2 / v.clamp(min=eps**2)).mean().sqrt())
            limited.add(size > 1)
            if gradient.ndim > 1:
                expected[i] = expected[i] * (1 - 0.3 * rate / PEAK)
            expected[i] = expected[i] - rate / max(1.0, size) * m / (v.sqrt() + eps)
        optimizer.step(rate)
    assert limited == {False, True}
    for parameter, right in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter.detach(), right, rtol=1e-10, atol=1e-12)


# --- LAMB


def test_lamb_follows_the_written_formula() -> None:
    constants = Lamb(weight_decay=0.1)
    parameters = [nn.Parameter(values.double()) for values in random_tensors([12, 35, 4], 0)]
    expected = [each.detach().clone() for each in parameters]
    first, second = ([torch.zeros_like(each) for each in parameters] for _ in MOMENTS)
    optimizer = optimizer_of(parameters, constants)
    for step in range(1, 8):
        rate, gradients = 0.01 * step, [each.double() for each in random_tensors([12, 35, 4], step)]
        for i, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
            parameter.grad = gradient.clone()
            first[i] = constants.betas[0] * first[i] + (1 - constants.betas[0]) * gradient
            second[i] = constants.betas[1] * second[i] + (1 - constants.betas[1]) * gradient**2
            update, ratio = first[i] / (second[i].sqrt() + constants.eps), 1.0  # lamb_optimizer.py:40-122
            if gradient.ndim > 1:
                update = update + constants.weight_decay * expected[i]
                ratio = float(expected[i].norm() / update.norm())
            expected[i] = expected[i] - rate * ratio * update
        optimizer.step(rate)
    for parameter, right in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter.detach(), right, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("value", "gradient"), [(0.0, 2.0), (0.0, 0.0), (3.0, 0.0)])
def test_lamb_s_ratio_is_one_if_weights_or_update_are_zero(value: float, gradient: float) -> None:
    weight = nn.Parameter(torch.full((2, 2), value, dtype=torch.float64))
    weight.grad = torch.full_like(weight, gradient)
    constants = Lamb(weight_decay=0.0)
    build_optimizer([("w", weight)], constants).step(0.5)
    update = 0.1 * gradient / (math.sqrt(0.001) * gradient + constants.eps)
    torch.testing.assert_close(weight.detach(), torch.full((2, 2), value - 0.5 * update, dtype=torch.float64))


# --- Muon


def muon_parameters() -> dict[str, nn.Parameter]:
    tensors = random_tensors([math.prod(shape) for shape in MUON_SHAPES.values()], 0)
    return {
        name: nn.Parameter(each.view(shape).clone())
        for (name, shape), each in zip(MUON_SHAPES.items(), tensors, strict=True)
    }


def add_gradients(parameters: dict[str, nn.Parameter], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in parameters.values():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def test_muon_equals_torch_s_for_matrices_of_layers_and_adamw_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    # Torch's class computes in bfloat16 on every device.
    monkeypatch.setattr(Tensor, "bfloat16", Tensor.float)
    constants = Muon(matrix_learning_rate=0.2, weight_decay=0.1, momentum=0.9)
    ours, theirs = muon_parameters(), muon_parameters()
    optimizer = build_optimizer(ours.items(), constants, peak=0.05)
    matrices = [each for name, each in theirs.items() if "_blocks." in name and each.ndim == 2]
    rest = {name: each for name, each in theirs.items() if not any(each is matrix for matrix in matrices)}
    assert len(matrices) == 4
    reference = torch.optim.Muon(matrices, lr=0.2, weight_decay=0.1, momentum=0.9)
    adamw = build_optimizer(rest.items(), AdamW(weight_decay=0.1))
    for number, share in enumerate((0.5, 1.0, 0.3)):
        add_gradients(ours, number)
        add_gradients(theirs, number)
        optimizer.step(0.05 * share)
        reference.param_groups[0]["lr"] = 0.2 * share
        reference.step()
        adamw.step(0.05 * share)
    for name, parameter in ours.items():
        torch.testing.assert_close(parameter, theirs[name], rtol=1e-5, atol=1e-5)
    assert {f"momentum.{name}" for name in MATRICES} < optimizer.state().keys()
    assert {"exp_avg.heads.mlm.dense.weight", "exp_avg_sq.encoder.word_embeddings.weight"} < optimizer.state().keys()


def test_orthogonalized_matrices_keep_their_singular_vectors() -> None:
    matrices = torch.randn(3, 8, 5, generator=torch.Generator().manual_seed(0))
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    inner = left.mT @ orthogonalize(matrices) @ right.mT
    values = inner.diagonal(dim1=1, dim2=2)
    assert ((values > 0.5) & (values < 1.3)).all()
    torch.testing.assert_close(inner, torch.diag_embed(values), rtol=0, atol=1e-5)


# --- every rule


@every_rule
def test_a_loaded_state_continues_bit_for_bit(constants: OptimizerSpec) -> None:
    parameters, optimizer = trained([17, 300, 8193], constants, 3)
    others = [nn.Parameter(each.detach().clone()) for each in parameters]
    resumed = optimizer_of(others, constants)
    take_step(others, resumed, 9)  # Its own moments are replaced.
    with torch.no_grad():
        for other, each in zip(others, parameters, strict=True):
            other.copy_(each)
    resumed.load_state({name: value.clone() for name, value in optimizer.state().items()}, 3)
    for step in (4, 5):
        take_step(parameters, optimizer, step)
        take_step(others, resumed, step)
    assert_equal(values_of(parameters, optimizer), values_of(others, resumed))


@every_rule
def test_state_of_another_model_is_refused(constants: OptimizerSpec) -> None:
    with pytest.raises(CheckpointError, match=r"exp_avg of encoder.0: found nothing"):
        trained([3, 4], constants, 0)[1].load_state({}, 1)


@every_rule
def test_a_tied_parameter_is_updated_once(constants: OptimizerSpec) -> None:
    one, other = ([nn.Parameter(values) for values in random_tensors([6, 8], 0)] for _ in range(2))
    names = ("encoder.0", "encoder.1", "tied")
    tied = build_optimizer(zip(names, (*one, one[0]), strict=True), constants, peak=PEAK)
    plain = optimizer_of(other, constants)
    for parameters, optimizer in ((one, tied), (other, plain)):
        take_step(parameters, optimizer, 1)
    assert_equal(values_of(one, tied), values_of(other, plain))
    assert tied.state().keys() == plain.state().keys()


@every_rule
def test_parameters_without_a_gradient_stay_and_are_saved_with_zero_moments(constants: OptimizerSpec) -> None:
    reached, unreached = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(3, 3))
    optimizer = build_optimizer([("reached", reached), ("unreached", unreached)], constants, peak=PEAK)
    reached.grad = torch.ones(2, 2)
    optimizer.step(0.1)
    assert torch.equal(unreached.detach(), torch.ones(3, 3))
    assert not torch.equal(reached.detach(), torch.ones(2, 2))
    assert reached.grad is None
    assert torch.equal(optimizer.state()["exp_avg.unreached"], torch.zeros(3, 3))


# --- the gradient norm and clipping


@settings(max_examples=40)
@given(sizes=SIZES, scale=st.sampled_from([1e-12, 1.0, 1e12]))
def test_norm_is_that_of_all_elements(sizes: list[int], scale: float) -> None:
    gradients = random_tensors(sizes, 3, scale)
    exact = float(torch.cat([each.flatten().double() for each in gradients]).norm())
    assert float(total_norm(gradients)) == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize("bad", [INF, -INF, NAN, 3e38])
def test_norm_is_not_finite_if_a_gradient_is_not_or_overflows(bad: float) -> None:
    for at in (0, 17, 8191, 8192, 20_000):
        gradients = [torch.ones(20_001), torch.ones(3)]
        gradients[0][at] = bad
        assert not math.isfinite(float(total_norm(gradients))), at


@pytest.mark.parametrize(
    ("norm", "most", "divisor"), [(0.5, 1.0, 1.0), (1.0, 1.0, 1.0), (4.0, 1.0, 4.0), (3.0, 0.5, 6.0), (3.0, 0.0, 1.0)]
)
def test_gradients_are_scaled_down_to_the_largest_norm(norm: float, most: float, divisor: float) -> None:
    clipping = Clipping.of(torch.tensor(norm), torch.tensor(2.0, dtype=torch.float64), most)
    assert float(clipping.grad_scale) == pytest.approx(divisor, rel=1e-5)
    assert clipping_scale(norm, most) == pytest.approx(1 / divisor, rel=1e-5)
    assert float(clipping.found_inf) == 0
    # As torch's kernels read them.
    assert [(each.dtype, each.shape) for each in (clipping.grad_scale, clipping.found_inf)] == [(torch.float32, ())] * 2


@pytest.mark.parametrize(("norm", "loss"), [(INF, 1.0), (NAN, 1.0), (1.0, NAN), (1.0, -INF), (NAN, INF)])
def test_non_finite_values_are_found(norm: float, loss: float) -> None:
    for most in (0.0, 1.0):
        assert float(Clipping.of(torch.tensor(norm), torch.tensor(loss), most).found_inf) == 1


@pytest.mark.parametrize(
    "constants",
    [AdamW(weight_decay=0.1), AdamW(bias_correction=False, weight_decay=0.1), Lamb(), StableAdamW(), Muon()],
    ids=str,
)
def test_an_update_clipped_on_the_device_equals_one_clipped_by_the_host(constants: OptimizerSpec) -> None:
    loss = torch.tensor(1.0)
    on_device, by_host = ([nn.Parameter(values) for values in random_tensors([15, 4], 0)] for _ in range(2))
    first, second = optimizer_of(on_device, constants), optimizer_of(by_host, constants)
    # Too large, small enough, and not clipped at all.
    for step, (size, most) in enumerate(((3.0, 1.0), (0.01, 1.0), (2.0, 0.0), (7.0, 0.5)), start=1):
        gradients = random_tensors([15, 4], step, size)
        norm = total_norm(gradients)
        for parameters in (on_device, by_host):
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient.clone()
        first.step(0.01, Clipping.of(norm, loss, most))
        second.step(0.01, gradient_scale=clipping_scale(float(norm), most))
    for one, other in zip(on_device, by_host, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)
    for name, moment in first.state().items():
        torch.testing.assert_close(moment, second.state()[name], rtol=1e-5, atol=1e-9)


@every_rule
@pytest.mark.parametrize(("norm", "loss"), [(INF, 1.0), (NAN, 1.0), (1.0, NAN)])
def test_a_skipped_update_changes_neither_weights_nor_moments(norm, loss, constants):
    parameters, optimizer = trained([15, 4], constants, 1)
    before = [[value.clone() for value in values] for values in values_of(parameters, optimizer)]
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, norm)
    optimizer.step(0.01, Clipping.of(torch.tensor(norm), torch.tensor(loss), 1.0))
    assert_equal(values_of(parameters, optimizer), before)
    assert all(each.grad is None for each in parameters)
    take_step(parameters, optimizer, 2)  # The next step is not skipped.
    assert not any(torch.equal(each.detach(), old[0]) for each, old in zip(parameters, before, strict=True))
