"""Weights of layers in the precision of products, rounded once a pass by one operation for all of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from maskwright.kernels.cuda.runs import GpuRuns

_HALF = torch.bfloat16


@dataclass(frozen=True, slots=True)
class Joined:
    """Dense layers of one input, side by side, in bfloat16.

    Attributes:
        weight: Shape (sum of outputs, inputs).
        bias: Shape (sum of outputs,); None where a kernel adds it in fp32.
    """

    weight: Tensor
    bias: Tensor | None


@dataclass(frozen=True, slots=True)
class OnGpu:
    """What all layers of one pass by our own kernels share.

    Attributes:
        runs: Who may look at whom.
        weights: Each block's, as its `products` orders them.
    """

    runs: GpuRuns
    weights: Mapping[nn.Module, Sequence[Joined]]


@torch.no_grad()
def rounded(layers: Iterable[Sequence[nn.Linear]]) -> list[Joined]:
    """Round the weights of many layers at once.

    Args:
        layers: Layers of one input each; where there are several they are laid side by side, their biases too.
    """
    made, targets, sources = list[Joined](), list[Tensor](), list[Tensor]()
    for together in layers:
        first, sizes = together[0].weight, [each.out_features for each in together]
        weight = first.new_empty(sum(sizes), together[0].in_features, dtype=_HALF)
        bias = first.new_empty(sum(sizes), dtype=_HALF) if len(together) > 1 else None
        targets += torch.split(weight, sizes)
        sources += [each.weight for each in together]
        if bias is not None:
            targets += torch.split(bias, sizes)
            sources += [each.bias for each in together]
        made.append(Joined(weight, bias))
    torch._foreach_copy_(targets, sources)
    return made
