"""Both halves of a layer against plain modules, one after the other: results and every gradient."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from maskwright.kernels.activated_linear import keeps_less
from maskwright.kernels.attention import AttentionPlan, attend
from maskwright.kernels.dropout import DropoutKey, dropout_add
from maskwright.model.config import EncoderConfig
from maskwright.model.layer import AttentionBlock, FeedForwardBlock

TOKENS, ROW = 24, 12
KEY = DropoutKey.on(torch.device("cpu"), 7)
ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_tanh": lambda values: F.gelu(values, approximate="tanh"),
    "relu": torch.relu,
}


def _config(width: int, name: str = "gelu") -> EncoderConfig:
    return EncoderConfig(
        hidden_size=width,
        num_layers=1,
        num_heads=width // 16,
        intermediate_size=2 * width,
        hidden_activation=name,
        hidden_dropout=0.1,
        attention_dropout=0.1,
    )


def _hidden(width: int) -> Tensor:
    return torch.randn(TOKENS, width, generator=torch.Generator().manual_seed(3))


def _gradients(run, block: nn.Module, hidden: Tensor) -> list[Tensor]:
    given = hidden.clone().requires_grad_()
    result = run(given)
    weights = torch.linspace(-1, 1, result.numel()).view(result.shape)
    found = torch.autograd.grad((result.float() * weights).sum(), [given, *block.parameters()])
    return [result.detach(), *found]


def _same(ours: list[Tensor], plain: list[Tensor], tolerance: float) -> None:
    # Of the largest number of each tensor: a query's bias gradient, say, is a sum of many that cancel.
    for mine, theirs in zip(ours, plain, strict=True):
        assert mine.dtype == theirs.dtype
        assert (mine - theirs).abs().max() <= tolerance * max(1, theirs.abs().max())


@pytest.mark.parametrize("key", [None, KEY], ids=["whole", "dropped"])
@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("width", [64, 512], ids=["narrow", "wide"])
def test_feed_forward_is_the_plain_modules(width, name, key):
    torch.manual_seed(0)
    block, hidden = FeedForwardBlock(_config(width, name)), _hidden(width)

    def plain(given: Tensor) -> Tensor:
        outer = block.dense_out(ACTIVATIONS[name](block.dense_in(given)))
        return block.norm(dropout_add(outer, given, 0.1, key, 2))

    _same(_gradients(lambda given: block(given, key, 2), block, hidden), _gradients(plain, block, hidden), 1e-5)
    with torch.no_grad():
        assert (block(hidden, key, 2) - plain(hidden)).abs().max() < 1e-5
    with torch.autocast("cpu", torch.bfloat16):
        halves = [_gradients(run, block, hidden) for run in (lambda given: block(given, key, 2), plain)]
    # Two roundings to eight bits more or less, of the output and of the slope.
    _same(*halves, 2**-7)


# The fused kernels draw no masks on a CPU.
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize(
    ("backend", "key"),
    [("rows", None), ("rows", KEY), ("sdpa", None), ("jagged", None), ("reference", None), ("reference", KEY)],
)
def test_attention_is_three_products(backend, key):
    torch.manual_seed(0)
    block, hidden = AttentionBlock(_config(64)), _hidden(64)
    plan = AttentionPlan(backend, torch.arange(0, TOKENS + 1, ROW), ROW, num_rows=TOKENS // ROW)

    def plain(given: Tensor) -> Tensor:
        projected = (layer(given) for layer in (block.query, block.key, block.value))
        mixed = attend(*projected, plan, num_heads=4, dropout_rate=0.1, dropout_key=key, dropout_call=1)
        return block.norm(dropout_add(block.output(mixed), given, 0.1, key, 2))

    ours, theirs = (_gradients(run, block, hidden) for run in (lambda given: block(given, plan, key, 1), plain))
    _same(ours, theirs, 1e-5)
    with torch.no_grad():
        assert torch.equal(block(hidden, plan, key, 1), plain(hidden))


def test_attention_under_autocast_is_three_products():
    torch.manual_seed(0)
    block, hidden = AttentionBlock(_config(64)), _hidden(64)
    plan = AttentionPlan("rows", torch.arange(0, TOKENS + 1, ROW), ROW)

    def plain(given: Tensor) -> Tensor:
        projected = (layer(given) for layer in (block.query, block.key, block.value))
        mixed = attend(*projected, plan, num_heads=4, dropout_rate=0.1, dropout_key=KEY, dropout_call=1)
        return block.norm(dropout_add(block.output(mixed), given, 0.1, KEY, 2))

    with torch.autocast("cpu", torch.bfloat16):
        ours, theirs = (_gradients(run, block, hidden) for run in (lambda given: block(given, plan, KEY, 1), plain))
    _same(ours, theirs, 2**-7)


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh"])
def test_a_wide_feed_forward_keeps_one_inner_tensor(name):
    def inner_tensors(width: int) -> int:
        block, kept = FeedForwardBlock(_config(width, name)), {}

        def keep(tensor: Tensor) -> Tensor:
            if tensor.shape == (TOKENS, 2 * width):
                kept[tensor.data_ptr()] = tensor
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            block(_hidden(width), None, 0).sum()
        return len(kept)

    assert inner_tensors(512) == 1
    assert inner_tensors(64) == 2


def test_the_plain_modules_serve_where_precisions_differ_or_nothing_is_learnt():
    layer, values = nn.Linear(8, 512), torch.ones(2, 8)
    assert keeps_less("gelu", values, layer)
    assert not keeps_less("relu", values, layer)
    assert not keeps_less("gelu", values.bfloat16(), layer)
    assert not keeps_less("gelu", values, nn.Linear(8, 8))
    with torch.no_grad():
        assert not keeps_less("gelu", values, layer)
    with torch.autocast("cpu", torch.bfloat16):
        assert not keeps_less("gelu", values, layer)
