"""Gradients summed over ranks in buckets."""

import pytest
import torch
from torch import Tensor, nn

from maskwright.core.errors import DeviceError
from maskwright.training.ranks import gradients
from maskwright.training.ranks.gradients import GradientReducer, gradient_dtype


class DoublingSum:
    """The sum over two ranks with equal tensors."""

    begun: list[Tensor]

    def __init__(self, tensor: Tensor) -> None:
        self._sum = tensor * 2
        self.begun.append(tensor)

    def wait(self) -> Tensor:
        return self._sum


class Tied(nn.Module):
    """Layers of 6 by 6, whose output has the weight of the input; one parameter is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.ones(6))
        self.tied = nn.Parameter(torch.eye(6))
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = inputs @ self.tied
        for layer in self.layers:
            hidden = layer(hidden).tanh()
        return hidden @ self.tied.T


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Record the exchanged tensors, in order; buckets have at most 42 numbers."""
    monkeypatch.setattr(gradients, "world_size", lambda: 2)
    monkeypatch.setattr(gradients, "RankSum", DoublingSum)
    monkeypatch.setattr(gradients, "_BUCKET_NUMBERS", 42)
    DoublingSum.begun = []
    return DoublingSum.begun


def compute(model: Tied, reducer: GradientReducer, begun: list[Tensor], *, overlaps: bool = True) -> int:
    """Compute two micro-batches; return how many sums had begun when the backward pass reached the inputs."""
    model.zero_grad()
    first, last = (torch.arange(12.0).view(2, 6).sin().add(number).requires_grad_() for number in range(2))
    model(first).square().sum().backward()
    reached: list[int] = []
    last.register_hook(lambda _: reached.append(len(begun)))
    loss = model(last).square().sum()
    with reducer.last_backward(overlaps=overlaps):
        loss.backward()
    return reached[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_gradients_of_all_micro_batches_are_summed_over_ranks(dtype: torch.dtype, begun: list[Tensor]) -> None:
    model = Tied()
    compute(model, GradientReducer([]), begun)
    expected = {name: each.grad for name, each in model.named_parameters()}
    reducer = GradientReducer(model.parameters(), dtype)
    for _ in range(2):
        compute(model, reducer, begun)
        reducer.wait()
        assert {each.dtype for each in begun} == {dtype}
        for name, parameter in model.named_parameters():
            own = expected[name]
            if own is None:
                assert parameter.grad is None
                assert name == "unused"
                continue
            assert torch.equal(parameter.grad, 2 * own.to(dtype).float())


def test_sums_begin_during_the_backward_pass_from_the_second_step_on(begun: list[Tensor]) -> None:
    model = Tied()
    reducer = GradientReducer(model.parameters())
    for step in range(3):
        begun.clear()
        # The tied weight, which the backward pass reaches last too, is the fourth bucket.
        assert compute(model, reducer, begun) == (0 if step == 0 else 3)
        assert [each.numel() for each in begun] == [42, 42, 42, 36]
        reducer.wait()


def test_ranks_sum_the_same_buckets_when_further_parameters_get_gradients(begun: list[Tensor]) -> None:
    sizes = []
    for is_reached in (True, False):  # Whether a rank's last micro-batch reaches the parameters, or only the first one.
        model = Tied()
        reducer = GradientReducer(model.parameters())
        compute(model, reducer, begun)
        reducer.wait()
        begun.clear()
        model(torch.ones(2, 6)).square().sum().add(model.unused.sum()).backward()
        with reducer.last_backward():
            if is_reached:
                model(torch.ones(2, 6)).square().sum().backward()
        sizes.append([each.numel() for each in begun])
    assert sizes[0] == sizes[1]
    assert sum(sizes[0]) == 3 * 42 + 36 + 6


def test_sums_begin_after_the_backward_pass_of_a_graph(begun: list[Tensor]) -> None:
    model = Tied()
    reducer = GradientReducer(model.parameters())
    for _ in range(2):
        begun.clear()
        assert compute(model, reducer, begun, overlaps=False) == 0
        assert sum(each.numel() for each in begun) == 3 * 42 + 36
        reducer.wait()


def test_bf16_gradients_need_processes_that_exchange_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    assert gradient_dtype("fp32") == torch.float32
    with pytest.raises(DeviceError, match="one process"):
        gradient_dtype("bf16")
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):  # torchrun with one process, for now.
        monkeypatch.setenv(name, "1")
    assert gradient_dtype("bf16") == torch.bfloat16
    with pytest.raises(DeviceError, match="unknown precision"):
        gradient_dtype("fp16")
