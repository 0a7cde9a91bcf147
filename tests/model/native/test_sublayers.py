"""What stands between products, by our own code, is what plain modules compute, for any number of threads."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from maskwright.core.native.library import has_bf16
from maskwright.core.own_code import allowed
from maskwright.model.block import AttentionBlock, FeedForwardBlock
from maskwright.model.config import EncoderConfig
from maskwright.model.dropout import DropoutKey, dropout_add
from maskwright.model.encoder import Encoder
from maskwright.model.native import sublayer_calls, sublayers
from maskwright.model.native.sublayer_calls import CODE
from maskwright.model.native.sublayers import close_attention, feed_forward, joined_projections, takes
from tests.thread_counts import with_threads

KEY = DropoutKey.on(torch.device("cpu"), 20170612)
HALF = torch.bfloat16
PLAIN = {"gelu": F.gelu, "gelu_tanh": lambda values: F.gelu(values, approximate="tanh")}

needs_half = pytest.mark.skipif(not has_bf16(), reason="the processor does not multiply bfloat16")


@pytest.fixture(autouse=True)
def _ours() -> None:
    """Skip where there is no compiled code."""
    if CODE.library() is None:
        pytest.skip(str(CODE.problem()))


def layers_of(width: int, dtype: torch.dtype = torch.float32) -> nn.ModuleDict:
    """Draw the layers of both sublayers, biases and LayerNorm's weights as in a trained model."""
    torch.manual_seed(1)
    made = nn.ModuleDict(
        {
            "dense_in": nn.Linear(width, 2 * width),
            "dense_out": nn.Linear(2 * width, width),
            "norm": nn.LayerNorm(width, eps=1e-6),
            "output": nn.Linear(width, width),
            "query": nn.Linear(width, width),
            "key": nn.Linear(width, width),
        }
    )
    with torch.no_grad():
        for weights in made["norm"].parameters():
            weights.copy_(torch.randn(width) * 0.5 + 1)
    return made.to(dtype)


def values_of(tokens: int, width: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    drawn = torch.randn(tokens, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (3 * drawn).to(dtype).requires_grad_()


def ours(name: str, layers: nn.ModuleDict, given: list[Tensor], activation: str, rate: float) -> Tensor:
    if name == "feed_forward":
        parts = (layers["dense_in"], layers["dense_out"], layers["norm"])
        return feed_forward(given[0], *parts, activation=activation, rate=rate, key=KEY, call=3)
    if name == "close_attention":
        return close_attention(*given, layers["output"], layers["norm"], rate=rate, key=KEY, call=3)
    return joined_projections(given[0], layers["query"], layers["key"])


def plain(name: str, layers: nn.ModuleDict, given: list[Tensor], activation: str, rate: float) -> Tensor:
    if name == "feed_forward":
        outer = layers["dense_out"](PLAIN[activation](layers["dense_in"](given[0])))
        return layers["norm"](dropout_add(outer, given[0], rate, KEY, 3))
    if name == "close_attention":
        return layers["norm"](dropout_add(layers["output"](given[0]), given[1], rate, KEY, 3))
    return torch.cat([layers["query"](given[0]), layers["key"](given[0])], dim=1)


def all_of(run: Callable[[], Tensor], layers: nn.ModuleDict, given: list[Tensor]) -> list[Tensor]:
    """Return a result and the gradients of what came in and of all weights, 0 where there is none."""
    result = run()
    slopes = torch.randn(result.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    found = torch.autograd.grad(
        (result * slopes.to(result.dtype)).sum(), [*given, *layers.parameters()], allow_unused=True
    )
    return [result.detach(), *(each for each in found if each is not None)]


NAMES = ("feed_forward", "close_attention", "joined_projections")


@pytest.mark.parametrize("rate", [0.0, 0.1])
@pytest.mark.parametrize("activation", PLAIN)
@pytest.mark.parametrize(("tokens", "width"), [(1, 16), (70, 64), (200, 528)])
@pytest.mark.parametrize("name", NAMES)
def test_is_the_plain_modules_in_twice_the_precision(name, tokens, width, activation, rate):
    layers, exact = layers_of(width), layers_of(width, torch.float64)
    given = [values_of(tokens, width, seed) for seed in range(1 + (name == "close_attention"))]
    precise = [each.detach().double().requires_grad_() for each in given]
    assert takes(given[0], *layers.values())
    mine = all_of(lambda: ours(name, layers, given, activation, rate), layers, given)
    theirs = all_of(lambda: plain(name, exact, precise, activation, rate), exact, precise)
    assert len(mine) == len(theirs)
    for found, wanted in zip(mine, theirs, strict=True):
        assert found.dtype == torch.float32
        assert (found - wanted).abs().max() <= 1e-5 * max(1, wanted.abs().max())


@needs_half
@pytest.mark.parametrize("rate", [0.0, 0.1])
@pytest.mark.parametrize("activation", PLAIN)
@pytest.mark.parametrize("width", [64, 528])
@pytest.mark.parametrize("name", NAMES)
def test_under_autocast_it_differs_from_exact_results_no_more_than_plain_modules(name, width, activation, rate):
    layers, exact = layers_of(width), layers_of(width, torch.float64)
    given = [values_of(150, width, seed) for seed in range(1 + (name == "close_attention"))]
    precise = [each.detach().double().requires_grad_() for each in given]
    with torch.autocast("cpu", HALF):
        assert takes(given[0], *layers.values())
        mine = all_of(lambda: ours(name, layers, given, activation, rate), layers, given)
        theirs = all_of(lambda: plain(name, layers, given, activation, rate), layers, given)
    wanted = all_of(lambda: plain(name, exact, precise, activation, rate), exact, precise)
    for found, other, right in zip(mine, theirs, wanted, strict=True):
        assert found.dtype == other.dtype
        error, usual = ((each.double() - right).square().mean().sqrt() for each in (found, other))
        assert error <= 1.1 * usual + 1e-6 * right.abs().max()


@pytest.mark.parametrize("name", NAMES)
def test_a_result_does_not_depend_on_the_number_of_threads(name):
    layers = layers_of(64)
    given = [values_of(333, 64, seed) for seed in range(1 + (name == "close_attention"))]
    found = []
    for threads in (1, 2, 3):
        with with_threads(threads):
            found.append(all_of(lambda: ours(name, layers, given, "gelu", 0.1), layers, given))
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("half", [False, pytest.param(True, marks=needs_half)])
@pytest.mark.parametrize("activation", PLAIN)
def test_gelu_is_right_from_end_to_end(activation, half):
    dtype = HALF if half else torch.float32
    values = torch.cat([torch.linspace(-30, 30, 6400 - 16), torch.tensor([0.0, -0.0, 1e-30, -1e-30] * 4)])
    values = values.to(dtype).view(100, 64)
    result, slopes, to_bias = torch.empty_like(values), torch.ones_like(values), torch.empty(64)
    room, bias = sublayer_calls.room(100, 64), torch.zeros(64)
    call = sublayer_calls.Gelu(
        values=values.data_ptr(),
        slope=slopes.data_ptr(),
        bias=bias.data_ptr(),
        result=result.data_ptr(),
        to_values=slopes.data_ptr(),
        to_bias=to_bias.data_ptr(),
        room=room.data_ptr(),
        kind=sublayers.ACTIVATIONS[activation],
    )
    sublayer_calls.gelu_pass(call, values, backward=True)
    exact = values.double().requires_grad_()
    wanted = PLAIN[activation](exact)
    (slope,) = torch.autograd.grad(wanted.sum(), exact)
    tolerance = 2.0**-8 if half else 2e-7
    for found, right in ((result, wanted), (slopes, slope)):
        assert ((found.double() - right).abs() <= tolerance * right.abs().clamp_min(1)).all()
    torch.testing.assert_close(to_bias.double(), slope.sum(0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("activation", PLAIN)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_number_stays_none_and_the_infinite_is_not_hidden(name, activation):
    layers = layers_of(16)
    given = [values_of(4, 16, seed) for seed in range(1 + (name == "close_attention"))]
    with torch.no_grad():
        given[0][1, 3], given[0][2, 5] = torch.nan, torch.inf
    result = ours(name, layers, given, activation, 0.0)
    assert not result[1].isfinite().any()
    assert not result[2].isfinite().any()
    assert result[[0, 3]].isfinite().all()
    slopes = torch.autograd.grad(result.sum(), [given[0], layers["norm"].weight], allow_unused=True)
    if name != "joined_projections":
        assert not slopes[0][1:3].isfinite().any()
        assert not slopes[1].isfinite().any()
        assert slopes[0][[0, 3]].isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_a_backward_pass_can_be_repeated_and_not_continued(name):
    layers, given = layers_of(32), [values_of(9, 32, seed) for seed in range(1 + (name == "close_attention"))]
    result = ours(name, layers, given, "gelu", 0.1)
    of = [given[0], *(each for each in layers.parameters())]
    first, again = (
        torch.autograd.grad(result.square().sum(), of, retain_graph=True, allow_unused=True) for _ in range(2)
    )
    assert all(one is other is None or torch.equal(one, other) for one, other in zip(first, again, strict=True))
    slope = torch.ones_like(result, requires_grad=True)
    (continued,) = torch.autograd.grad(result, given[:1], slope, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        continued.sum().backward()


@needs_half
@pytest.mark.parametrize("name", NAMES)
def test_a_backward_pass_under_autocast_computes_in_what_was_saved(name):
    layers, given = layers_of(64), [values_of(70, 64, seed) for seed in range(1 + (name == "close_attention"))]
    wanted = all_of(lambda: ours(name, layers, given, "gelu", 0.1), layers, given)
    result = ours(name, layers, given, "gelu", 0.1)
    with torch.autocast("cpu", HALF):
        found = all_of(lambda: result, layers, given)
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_frozen_has_no_gradient_and_changes_no_other(name):
    layers, given = layers_of(32), [values_of(9, 32, seed) for seed in range(1 + (name == "close_attention"))]

    def slopes() -> dict[str, Tensor]:
        layers.zero_grad()
        ours(name, layers, given, "gelu", 0.1).square().sum().backward()
        return {key: each.grad.clone() for key, each in layers.named_parameters() if each.grad is not None}

    whole = slopes()
    for key in whole:
        layers.get_parameter(key).requires_grad_(False)
        found = slopes()
        assert found.keys() == whole.keys() - {key}
        assert all(torch.equal(found[other], whole[other]) for other in found)
        layers.get_parameter(key).requires_grad_(True)
    given[0].requires_grad_(False)
    assert all(torch.equal(found, whole[key]) for key, found in slopes().items())


@pytest.mark.parametrize("name", NAMES)
def test_values_and_slopes_may_lie_anyhow(name):
    layers, given = layers_of(32), [values_of(9, 32, seed) for seed in range(1 + (name == "close_attention"))]
    turned = [each.detach().t().contiguous().t().requires_grad_() for each in given]
    assert not turned[0].is_contiguous()
    one, other = (ours(name, layers, each, "gelu", 0.1) for each in (given, turned))
    assert torch.equal(one, other)
    (found,) = torch.autograd.grad(other.sum(), turned[:1])  # An expanded slope: one number for all.
    (wanted,) = torch.autograd.grad(one, given[:1], torch.ones_like(one))
    assert torch.equal(found, wanted)


def test_only_training_in_fp32_or_bf16_is_taken():
    layers = list(layers_of(64).values())
    values = values_of(8, 64, 0)
    assert takes(values, *layers)
    assert not takes(values.double(), *layers)
    assert not takes(values[:0], *layers)
    strided = layers_of(64)["norm"]
    strided.weight = nn.Parameter(torch.ones(128)[::2])
    assert not takes(values, strided)
    assert not takes(values, *layers_of(24).values())
    assert not takes(values, *layers_of(64, torch.float64).values())
    with torch.no_grad():
        assert not takes(values, *layers)
    with allowed(False):
        assert not takes(values, *layers)
    with torch.autocast("cpu", torch.float16):
        assert not takes(values, *layers)


@needs_half
@pytest.mark.parametrize(("sharing", "own"), [("none", True), ("all", False)])
def test_blocks_that_layers_share_round_their_weights_once(monkeypatch, sharing, own):
    config = EncoderConfig(
        hidden_size=32, num_layers=2, num_heads=2, intermediate_size=64, sharing=sharing, max_positions=16
    )
    encoder = Encoder(config, 20)
    assert {block._is_shared for block in (*encoder.attention_blocks, *encoder.ffn_blocks)} == {not own}
    asked = []
    monkeypatch.setattr(sublayers, "feed_forward", lambda hidden, *_, **__: asked.append(1) or hidden)
    block, hidden = encoder.ffn_blocks[0], values_of(8, 32, 0)
    assert isinstance(block, FeedForwardBlock)
    assert isinstance(encoder.attention_blocks[0], AttentionBlock)
    block(hidden, None, 0)
    with torch.autocast("cpu", HALF):
        block(hidden, None, 0)
    assert len(asked) == 1 + own
