"""The whole encoder through other products: oneDNN's in fp32, and bfloat16's, forwards and backwards."""

import pytest
import torch
from packed_batches import SMALL, encoder, packed
from torch import Tensor

from maskwright.training.ranks.device import use_matmul_library


def outcome(*, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Real hidden states, a loss and all gradients, dropout off."""
    model, batch = encoder(SMALL.replace(initializer_range=0.05)).eval(), packed()
    target = torch.randn(len(batch.ids), SMALL.hidden_size, generator=torch.Generator().manual_seed(5))
    with torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None):
        output = model(batch)
    hidden = output.hidden.float()
    loss = (hidden - target).square().mean() + output.pooled.float().square().mean()
    loss.backward()
    return (
        hidden.detach(),
        loss.detach(),
        {name: each.grad for name, each in model.named_parameters() if each.grad is not None},
    )


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="PyTorch was built without oneDNN")
def test_onednn_s_fp32_matmul_setting_give_the_same() -> None:
    plain = outcome()
    with use_matmul_library("onednn"):
        other = outcome()
    torch.testing.assert_close(other[0], plain[0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(other[1], plain[1], atol=0, rtol=1e-5)
    for name, gradient in plain[2].items():
        assert (other[2][name] - gradient).norm() <= 1e-5 * gradient.norm() + 1e-7, name


def test_gradients_in_bfloat16_point_where_those_in_fp32_point() -> None:
    (hidden, loss, exact), (rough_hidden, rough_loss, rough) = outcome(), outcome(dtype=torch.bfloat16)
    assert abs(float(rough_loss / loss) - 1) < 1e-3
    assert (rough_hidden - hidden).norm() < 0.01 * hidden.norm()
    assert rough.keys() == exact.keys()
    largest = max(float(gradient.norm()) for gradient in exact.values())
    gradients_of = {}
    for name, gradient in exact.items():
        assert rough[name].dtype == torch.float32
        if gradient.norm() < 1e-4 * largest:  # A key's bias has no gradient but rounding.
            continue
        cosine = float(torch.cosine_similarity(rough[name].flatten(), gradient.flatten(), dim=0))
        gradients_of[name] = (cosine, float((rough[name] - gradient).norm() / gradient.norm()))
    # Measured: .99996 and .009 at worst. A step of bfloat16 is 2**-8 = .004.
    assert min(cosine for cosine, _ in gradients_of.values()) > 0.9998, gradients_of
    assert max(apart for _, apart in gradients_of.values()) < 0.02, gradients_of
