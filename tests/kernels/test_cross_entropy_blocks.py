"""Gradients gathered block by block are those of the whole, and no two blocks are held at once."""

import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from maskwright.kernels.cross_entropy import cast_weight_grad, in_blocks


@pytest.mark.parametrize("rows", [1, 3, 7, 100])
@pytest.mark.parametrize("count", [0, 6, 7])
def test_blocks_add_up_to_the_whole(rows: int, count: int) -> None:
    draws = torch.Generator().manual_seed(1)
    features, weight, grads = (
        torch.randn(*shape, generator=draws, dtype=torch.float64) for shape in ((9, 4), (5, 4), (9, 5))
    )
    grads[count:] = 0
    seen = list[int]()

    def grads_of(part: slice, block: Tensor) -> Tensor:
        assert torch.equal(block, features[part])
        seen.append(part.start)
        return grads[part]

    of_features, of_weight = in_blocks(features, weight, count, rows, grads_of)
    assert seen == list(range(0, count, rows))
    torch.testing.assert_close(of_features, grads @ weight)
    torch.testing.assert_close(cast_weight_grad(of_weight, weight), grads.T @ features)


def test_of_a_block_nothing_but_the_sum_is_there_when_the_next_one_begins() -> None:
    features, weight, products = torch.randn(8, 4), torch.randn(5, 4), _Products()
    left = list[int]()

    def grads_of(part: slice, block: Tensor) -> Tensor:
        left.append(products.alive())
        return block @ weight.T

    with products:
        in_blocks(features, weight, 8, 2, grads_of)
    assert left == [0, 1, 1, 1]


class _Products(TorchDispatchMode):
    """Says how many results of products of matrices are still in use."""

    def __init__(self) -> None:
        super().__init__()
        self._made = list[weakref.ref[Tensor]]()

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operation(*args, **kwargs or {})
        if operation is torch.ops.aten.mm.default:
            self._made.append(weakref.ref(result))
        return result

    def alive(self) -> int:
        return sum(each() is not None for each in self._made)


def test_bf16_is_summed_in_fp32_once_there_are_several_blocks() -> None:
    features, weight = torch.randn(8, 4).bfloat16(), torch.randn(5, 4).bfloat16()
    for rows, dtype in ((8, torch.bfloat16), (4, torch.float32)):
        _, total = in_blocks(features, weight, 8, rows, lambda _, block: block @ weight.T)
        assert total is not None
        assert total.dtype == dtype
        assert cast_weight_grad(total, weight).dtype == torch.bfloat16


def test_without_gradients_there_is_no_gradient_of_the_vocabulary() -> None:
    assert in_blocks(torch.randn(8, 4), torch.randn(5, 4), 8, 3, lambda *_: None)[1] is None
