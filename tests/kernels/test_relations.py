"""Relation divergence over packed sequences against the same computed sequence by sequence."""

import pytest
import torch
from torch import Tensor

from maskwright.kernels import ops
from maskwright.kernels.divergences import summed_relation_divergence


def states(tokens: int, width: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(tokens, width, dtype=dtype, generator=generator)


def sequences_of(*lengths: int) -> ops.Sequences:
    bounds = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    return ops.Sequences(bounds, max(lengths))


def plain(student: Tensor, teacher: Tensor, lengths: tuple[int, ...], heads: int) -> Tensor:
    """Compute each sequence alone, by PyTorch's own loss."""
    total = student.new_zeros(())
    for ours, wanted in zip(student.split(lengths), teacher.split(lengths), strict=True):
        logs, wanted_logs = (
            (each @ each.mT / each.shape[-1] ** 0.5).log_softmax(-1)
            for each in (part.unflatten(1, (heads, -1)).transpose(0, 1) for part in (ours, wanted))
        )
        total = total + torch.nn.functional.kl_div(logs, wanted_logs, reduction="sum", log_target=True) / heads
    return total


@pytest.mark.parametrize("lengths", [(5, 1, 9, 3, 2), (4, 4, 4), (7,)])
@pytest.mark.parametrize("block_elements", [1, 200, 1 << 22])
def test_divergence_and_gradient_equal_those_of_each_sequence_alone(lengths, block_elements):
    student, teacher = states(sum(lengths), 12, 0).requires_grad_(), states(sum(lengths), 24, 1)
    total = summed_relation_divergence(student, teacher, sequences_of(*lengths), 3, block_elements)
    expected = plain(student, teacher, lengths, 3)
    assert total.item() == pytest.approx(expected.item(), rel=1e-12)
    (ours,), (theirs,) = (torch.autograd.grad(3 * each, student) for each in (total, expected))
    assert (ours - theirs).abs().max() < 1e-12


def test_equal_relations_have_no_divergence_whatever_the_width() -> None:
    teacher = states(8, 16, 0)
    # Orthonormal columns: the same dot products in twice the width, which the scale of the scores undoes.
    turn = torch.linalg.qr(states(32, 16, 1))[0]
    student = (teacher @ turn.T * 2**0.25).requires_grad_()
    total = summed_relation_divergence(student, teacher, sequences_of(5, 3), 1)
    assert abs(total.item()) < 1e-12
    assert torch.autograd.grad(total, student)[0].abs().max() < 1e-12


def test_the_teacher_gets_no_gradient_and_nothing_is_kept_without_one() -> None:
    teacher = states(4, 8, 0).requires_grad_()
    total = summed_relation_divergence(states(4, 8, 1), teacher, sequences_of(4), 2)
    assert not total.requires_grad


def test_matmuls_follow_autocast_and_sums_stay_in_fp32() -> None:
    student, teacher = states(20, 16, 0, torch.float32).requires_grad_(), states(20, 16, 1, torch.float32)
    exact = summed_relation_divergence(student, teacher, sequences_of(12, 8), 4)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = summed_relation_divergence(student, teacher, sequences_of(12, 8), 4)
    assert rounded.dtype == torch.float32
    assert rounded.item() == pytest.approx(exact.item(), rel=0.05)
    assert torch.autograd.grad(rounded, student)[0].dtype == torch.float32
