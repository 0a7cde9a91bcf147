"""Output positions: their hidden states and all gradients are those of computing all tokens.

Only hidden dropout behind the last attention differs: see the last test.
"""

import torch
from packed_batches import SMALL, encoder, packed
from torch import Tensor

from maskwright.model.config import EncoderConfig

POSITIONS = torch.tensor([0, 3, 10, 11, 17, 20, 30, 44, 64, 67, 72, 77, 82, 87, 90])
ATTENTION_ONLY = SMALL.replace(hidden_dropout=0.0, attention_dropout=0.3)


def results(
    config: EncoderConfig, positions: Tensor | None, *, half: bool = False
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Hidden states at POSITIONS, pooled vectors and gradients, in training, with the dropout that the config has."""
    model = encoder(config)
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        output = model(packed(key=7), positions)
    wanted = output.hidden[POSITIONS]
    (wanted.float().square() * torch.arange(1, len(wanted) + 1)[:, None]).mean().backward()
    gradients = {name: each.grad for name, each in model.named_parameters() if each.grad is not None}
    return wanted.detach(), output.pooled.detach(), gradients


def test_attention_drops_the_same_in_training() -> None:
    actual, expected = (results(ATTENTION_ONLY, which) for which in (POSITIONS, None))
    for one, other in zip(actual[:2], expected[:2], strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)
    assert actual[2].keys() == expected[2].keys()
    for name, gradient in expected[2].items():
        torch.testing.assert_close(actual[2][name], gradient, atol=1e-5, rtol=1e-4, msg=name)


def test_half_precision_is_the_same_up_to_the_order_of_sums() -> None:
    some, everything = (results(ATTENTION_ONLY, which, half=True) for which in (POSITIONS, None))
    # The same rounded factors; sums over other numbers of rows may be taken in another order and round otherwise.
    torch.testing.assert_close(some[0], everything[0], atol=0.05, rtol=0)
    for name, gradient in everything[2].items():
        assert (some[2][name] - gradient).norm() <= 0.02 * gradient.norm() + 1e-5, name


def test_hidden_dropout_after_the_last_attention_is_keyed_by_the_index_among_the_output_positions() -> None:
    config = SMALL.replace(hidden_dropout=0.3, attention_dropout=0.0)
    model, batch = encoder(config), packed(key=7)
    first, again, whole = (model(batch, positions).hidden[POSITIONS] for positions in (POSITIONS, POSITIONS, None))
    assert torch.equal(first, again)
    assert not torch.allclose(first, whole, atol=1e-2)
    every = model(batch, torch.arange(len(batch.ids))).hidden[POSITIONS]
    assert torch.equal(every, whole)
