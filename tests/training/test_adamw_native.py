"""AdamW and the norm by our own code are what PyTorch and the written formula compute, for any number of threads."""

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from maskwright.core.own_code import allowed
from maskwright.recipes.optimization import AdamW, Lamb, OptimizerSpec
from maskwright.training import adamw_native
from maskwright.training.adamw_native import CODE, total_norm
from maskwright.training.optimizer import MOMENTS, Optimizer, clipping_scale
from tests.thread_counts import with_threads

INF, NAN = math.inf, math.nan
SIZES = st.lists(
    st.sampled_from([1, 2, 15, 16, 17, 31, 63, 64, 65, 255, 8191, 8192, 8193, 20_000]), min_size=1, max_size=6
)


@pytest.fixture(autouse=True, scope="module")
def _ours() -> None:
    """Skip where there is no compiled code."""
    if CODE.library() is None:
        pytest.skip(str(CODE.problem()))


def drawn(sizes: Sequence[int], seed: int, scale: float = 1.0) -> list[Tensor]:
    """Draw tensors, every other one a matrix (which decays); scales differ between them."""
    draws = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(size, generator=draws) * scale * 4.0 ** (i % 3) for i, size in enumerate(sizes)]
    return [tensor.view(1, -1) if i % 2 else tensor for i, tensor in enumerate(tensors)]


def optimizer_of(parameters: Sequence[nn.Parameter], constants: OptimizerSpec) -> Optimizer:
    return Optimizer([(str(i), each) for i, each in enumerate(parameters)], constants)


def trained(
    sizes: Sequence[int], constants: AdamW, steps: int, *, clip_norm: float = 0.0, own: bool = True
) -> tuple[list[nn.Parameter], Optimizer]:
    parameters = [nn.Parameter(values) for values in drawn(sizes, 0)]
    optimizer = optimizer_of(parameters, constants)
    with allowed(own):
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
def test_updates_are_torch_s_and_the_written_formula_s(
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
    assert_close(ours, values_of(*trained(sizes, constants, 4, clip_norm=clip_norm, own=False)), terms)


@settings(max_examples=20, deadline=None)
@given(sizes=SIZES, threads=st.integers(2, 5))
def test_no_result_depends_on_the_number_of_threads(sizes: list[int], threads: int) -> None:
    # Enough elements for all threads.
    sizes, constants = [*sizes, 100_001], AdamW()
    with with_threads(1):
        alone, norm = values_of(*trained(sizes, constants, 2, clip_norm=1.0)), total_norm(drawn(sizes, 9))
    with with_threads(threads):
        shared, again = values_of(*trained(sizes, constants, 2, clip_norm=1.0)), total_norm(drawn(sizes, 9))
    assert torch.equal(norm, again)
    for one, other in zip(alone, shared, strict=True):
        assert all(torch.equal(mine, right) for mine, right in zip(one, other, strict=True))


@settings(max_examples=40, deadline=None)
@given(sizes=SIZES, scale=st.sampled_from([1e-12, 1.0, 1e12]))
def test_norm_is_that_of_all_elements(sizes: list[int], scale: float) -> None:
    gradients = drawn(sizes, 3, scale)
    exact = float(torch.cat([each.flatten().double() for each in gradients]).norm())
    assert float(total_norm(gradients)) == pytest.approx(exact, rel=1e-6)
    assert float(torch.nn.utils.get_total_norm(gradients)) == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize("bad", [INF, -INF, NAN, 3e38])
@pytest.mark.parametrize("at", [0, 17, 8191, 8192, 20_000])
def test_norm_is_no_number_where_a_gradient_is_none_or_too_large(bad: float, at: int) -> None:
    gradients = [torch.ones(20_001), torch.ones(3)]
    gradients[0][at] = bad
    assert not math.isfinite(float(total_norm(gradients)))
    assert not math.isfinite(float(torch.nn.utils.get_total_norm(gradients)))


def test_norm_of_nothing_and_of_what_our_code_does_not_read() -> None:
    assert float(total_norm([])) == 0
    values = torch.arange(6.0).view(2, 3)
    for tensors in ([values.double()], [values.t()], [values.bfloat16()], [values, values.double()[:0]]):
        assert float(total_norm(tensors)) == pytest.approx(math.sqrt(55), rel=1e-2)
    with allowed(False):
        assert torch.equal(total_norm([values]), torch.nn.utils.get_total_norm([values]))


@pytest.mark.parametrize("begun_with_own", [False, True])
@pytest.mark.parametrize("corrects", [False, True])
def test_a_run_goes_on_with_the_other_code(begun_with_own: bool, corrects: bool) -> None:
    sizes, constants = [17, 300, 8193], AdamW(bias_correction=corrects, weight_decay=0.1)
    mixed, optimizer = trained(sizes, constants, 3, own=begun_with_own)
    with allowed(not begun_with_own):
        for step in (4, 5):
            take_step(mixed, optimizer, step)
    assert_close(
        values_of(mixed, optimizer), written_formula(sizes, constants, 5, 0.0), terms_of(sizes, constants, 5, 0.0)
    )


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


def test_parameters_that_a_gradient_reaches_later_count_their_own_updates() -> None:
    constants, found = AdamW(weight_decay=0.1), []
    for own in (True, False):
        early, late = (nn.Parameter(values) for values in drawn([40, 50], 0))
        optimizer = optimizer_of([early, late], constants)
        with allowed(own):
            for step, reached in enumerate(([early], [early], [early, late], [late], [early, late]), start=1):
                for i, each in enumerate(reached):
                    each.grad = drawn([each.numel()], 10 * step + i)[0].view_as(each)
                optimizer.step(0.01)
        found.append(values_of([early, late], optimizer))
    assert_close(*found)


def count_of_updates(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return what our code answered each time that it was asked, from now on."""
    answers: list[bool] = []
    update = adamw_native.NativeUpdate.update

    def told(self: adamw_native.NativeUpdate, step: adamw_native.Step) -> bool:
        answers.append(update(self, step))
        return answers[-1]

    monkeypatch.setattr(adamw_native.NativeUpdate, "update", told)
    return answers


def test_what_our_code_cannot_read_is_torch_s(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = count_of_updates(monkeypatch)
    whole, turned = nn.Parameter(torch.ones(4, 3)), nn.Parameter(torch.ones(3, 4).t())
    for parameters, gradients in (
        ([whole], [torch.ones(4, 3)]),
        ([whole], [torch.ones(3, 4).t()]),
        ([whole, turned], [torch.ones(4, 3), torch.ones(4, 3)]),
        ([whole, nn.Parameter(torch.ones(2).double())], [torch.ones(4, 3), torch.ones(2).double()]),
        ([nn.Parameter(torch.ones(4, 3).bfloat16())], [torch.ones(4, 3).bfloat16()]),
    ):
        before = [each.detach().clone() for each in parameters]
        optimizer = optimizer_of(parameters, AdamW())
        for each, gradient in zip(parameters, gradients, strict=True):
            each.grad = gradient
        optimizer.step(0.1, gradient_scale=0.5)
        assert not any(torch.equal(old, each.detach()) for old, each in zip(before, parameters, strict=True))
        torch.testing.assert_close(optimizer.state()["exp_avg.0"].float(), torch.full((4, 3), 0.05), rtol=1e-2, atol=0)
    assert answers == [True, False, False, False, False]


def test_moved_weights_are_found_and_nothing_is_done_where_own_code_is_not_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = count_of_updates(monkeypatch)
    weight = nn.Parameter(torch.ones(20))
    optimizer = optimizer_of([weight], AdamW(weight_decay=0.0))
    kept = weight.data
    for number, own in enumerate((True, True, False), start=1):
        with allowed(own):
            weight.grad = torch.ones(20)
            optimizer.step(0.125)
        torch.testing.assert_close(weight.detach(), torch.full((20,), 1 - 0.125 * number))
        weight.data = weight.data.clone()
    assert answers == [True, True, False]
    torch.testing.assert_close(kept, torch.full((20,), 0.875))


def test_nothing_is_updated_where_no_gradient_is() -> None:
    weight = nn.Parameter(torch.ones(20))
    optimizer = optimizer_of([weight], AdamW())
    optimizer.step(0.1)
    assert torch.equal(weight.detach(), torch.ones(20))
    assert torch.equal(optimizer.state()["exp_avg.0"], torch.zeros(20))


def test_autograd_knows_that_weights_have_changed() -> None:
    weight = nn.Parameter(torch.ones(20))
    loss = (weight * weight).sum()
    weight.grad = torch.ones(20)
    optimizer_of([weight], AdamW()).step(0.1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("constants", [AdamW(), Lamb()], ids=lambda constants: constants.kind)
def test_gradients_are_scaled_first(constants: OptimizerSpec, own: bool) -> None:
    values, gradient = torch.randn(5, 7), torch.randn(5, 7)
    found = []
    for factor, scale in ((1.0, 0.25), (0.25, 1.0)):
        weight = nn.Parameter(values.clone())
        optimizer = optimizer_of([weight], constants)
        weight.grad = gradient * factor
        with allowed(own):
            optimizer.step(0.1, gradient_scale=scale)
        found.append(values_of([weight], optimizer)[0])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize(
    ("norm", "most", "scale"), [(4.0, 1.0, 0.25), (0.5, 1.0, 1.0), (1.0, 1.0, 1.0), (9.0, 0.0, 1.0), (3.0, 6.0, 1.0)]
)
def test_gradients_are_scaled_down_to_the_norm_allowed(norm: float, most: float, scale: float) -> None:
    assert clipping_scale(norm, most) == pytest.approx(scale, rel=1e-5)
