"""The contender of `torch.compile` computes what the kernel of LayerNorm computes."""

import pytest
import torch
from torch import nn

from maskwright.kernels import ops
from maskwright.kernels.dropout import DropoutKey


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")  # PyTorch's own.
@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_layer_norm_drops_the_same_values_and_gives_the_same_result(rate: float) -> None:
    """Uncompiled: the suite `gpu` compiles it on a GPU."""
    from benchmarks.compiled import dropout_add_norm  # Importing it imports the compiler.

    generator = torch.Generator().manual_seed(0)
    values, residual = (torch.randn(70, 48, generator=generator).bfloat16() for _ in range(2))
    norm, mask = nn.LayerNorm(48), DropoutKey(7, values.device).mask(3, rate)
    with torch.compiler.set_stance("force_eager"):
        actual = dropout_add_norm(values, residual, norm, mask)
    expected = ops.dropout_add_norm(values.float(), residual.float(), norm, mask)
    assert (actual - expected).abs().max() <= 0.02 * expected.abs().max()
