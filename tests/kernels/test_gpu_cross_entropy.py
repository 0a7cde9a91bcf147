"""The vocabulary's losses in bf16 on a GPU equal the plain cross entropy; without a GPU, the same code on a CPU."""

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch._inductor.runtime.cache_dir_utils import cache_dir
from torch.nn.functional import cross_entropy, linear

from maskwright.kernels import vocabulary_losses as module
from maskwright.kernels.cuda import cross_entropy as kernels
from maskwright.kernels.vocabulary_losses import Scores, summed_cross_entropy

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("_kernels")]


@pytest.fixture
def _kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the CPU compute as a GPU does."""
    monkeypatch.setattr(module, "has_kernels", lambda device: device.type == DEVICE)


def inputs(m: int, v: int, e: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return features, weight and bias that bf16 holds exactly, in fp32, and labels; the first ones are right."""
    generator = torch.Generator().manual_seed(m + v + e)
    shapes = ((m, e), (v, e), (v,))
    leaves = [torch.randn(*shape, generator=generator).bfloat16().float().to(DEVICE) for shape in shapes]
    labels = torch.randint(v, (m,), generator=generator).to(DEVICE)
    half = m // 2
    features, weight, bias = (leaf.requires_grad_() for leaf in leaves)
    labels[:half] = plain(features, weight, bias, labels)[1][:half]
    return features, weight, bias, labels


def plain(features: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return loss and guesses in fp32 of products rounded once to bf16, whose gradients pass through the rounding."""
    products = linear(features, weight)
    logits = products + (products.bfloat16().float() - products).detach() + bias
    return cross_entropy(logits, labels, reduction="sum"), logits.argmax(dim=1)


def scored(features: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, block_elements: int | None = None) -> Scores:
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        return summed_cross_entropy(features, weight, bias, labels, block_elements)


@pytest.mark.parametrize(
    ("m", "v", "block_elements"),
    # The vocabularies are padded to 1024, 128 and 4224 columns.
    [(1, 1003, None), (17, 1003, 1024 * 16), (20, 128, 128 * 16), (17, 4200, None)],
)
def test_kernels_equal_the_plain_computation(m: int, v: int, block_elements: int | None) -> None:
    features, weight, bias, labels = inputs(m, v, 24)
    total, correct, _ = scored(features, weight, bias, labels, block_elements)
    expected, guesses = plain(features, weight, bias, labels)
    assert total.dtype == torch.float32
    torch.testing.assert_close(total, expected, rtol=1e-4, atol=1e-4)
    assert int(correct) == int((guesses == labels).sum()) >= m // 2
    ours = torch.autograd.grad(3 * total, (features, weight, bias))
    theirs = torch.autograd.grad(3 * expected, (features, weight, bias))
    for grad, other in zip(ours, theirs, strict=True):
        assert (grad.dtype, grad.shape) == (other.dtype, other.shape)
        assert (grad - other).norm() < 0.004 * other.norm()  # The gradients are rounded too, to 8 bits.


def test_features_in_bfloat16_get_their_gradient_in_it() -> None:
    features, weight, bias, labels = inputs(17, 100, 8)
    exact = torch.autograd.grad(scored(features, weight, bias, labels).total, features)[0]
    rounded = features.detach().bfloat16().requires_grad_()
    actual = torch.autograd.grad(scored(rounded, weight, bias, labels).total, rounded)[0]
    assert actual.dtype == torch.bfloat16
    torch.testing.assert_close(actual.float(), exact, rtol=0.01, atol=1e-5)


def test_of_equal_scores_the_first_is_the_guess() -> None:
    weight = torch.zeros(100, 8, device=DEVICE)
    weight[[20, 60]] = 1
    labels = torch.tensor([20, 60, 3], device=DEVICE)
    actual = scored(torch.ones(3, 8, device=DEVICE), weight, torch.zeros(100, device=DEVICE), labels)
    assert int(actual.correct) == 1


def test_without_gradients_the_loss_is_the_same() -> None:
    features, weight, bias, labels = inputs(17, 300, 8)
    with torch.no_grad():
        total, correct, _ = scored(features, weight, bias, labels)
    assert not total.requires_grad
    assert total.item() == scored(features, weight, bias, labels).total.item()
    assert int(correct) >= 7


def test_no_targets_give_a_zero_loss_and_zero_gradients() -> None:
    features, weight, bias, labels = inputs(0, 100, 8)
    total, correct, _ = scored(features, weight, bias, labels)
    assert total.item() == correct.item() == 0
    for gradient in torch.autograd.grad(total, (features, weight, bias)):
        assert not gradient.any()


def test_nan_shows_in_the_loss() -> None:
    features, weight, bias, labels = inputs(17, 100, 8)
    features.data[3, 2] = torch.nan
    assert not scored(features, weight, bias, labels).total.isfinite()


def test_a_second_backward_pass_is_refused() -> None:
    features, weight, bias, labels = inputs(3, 100, 8)
    total = scored(features, weight, bias, labels).total
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="scaled in place"):
        total.backward()


@pytest.mark.parametrize("block_elements", [128 * 16, None])
def test_tokens_are_sampled_from_logits_in_fp32(block_elements: int | None) -> None:
    features, weight, bias, labels = inputs(20, 100, 8)
    numbers = torch.rand(20, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    wanted = summed_cross_entropy(features, weight, bias, labels, sampling=numbers).sampled
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        actual = summed_cross_entropy(features, weight, bias, labels, block_elements, sampling=numbers)
    assert actual.sampled.tolist() == wanted.tolist()
    total, correct, _ = scored(features, weight, bias, labels)
    torch.testing.assert_close(actual.total, total)
    assert int(actual.correct) == int(correct)


def test_numbers_at_the_ends_give_tokens_that_have_a_probability() -> None:
    features, weight, bias, labels = inputs(4, 100, 8)
    bias.data[[0, 99]] = -torch.inf
    numbers = torch.tensor([0.0, 1 - 2**-24, 1.0, 0.5], device=DEVICE)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        sampled = summed_cross_entropy(features, weight, bias, labels, sampling=numbers).sampled
    assert sampled[0] == 1
    assert 0 < int(sampled.min()) <= int(sampled.max()) < 99


def test_many_tokens_are_sampled_as_often_as_they_are_likely() -> None:
    bias = torch.randn(300, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    numbers = ((torch.arange(20_000) + 0.5) / 20_000).to(DEVICE)
    features, weight = torch.zeros(len(numbers), 8, device=DEVICE), torch.zeros(300, 8, device=DEVICE)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        scores = summed_cross_entropy(features, weight, bias, torch.zeros_like(numbers).long(), sampling=numbers)
    assert scores.sampled is not None
    counts = torch.bincount(scores.sampled, minlength=300)
    assert (counts / 20_000 - bias.softmax(0)).abs().max() <= 1.5 / 20_000


def test_a_run_compiles_each_function_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of targets differ from batch to batch, some need several blocks, and evaluation is between them."""
    counter = CompileCounterWithBackend("eager")
    compiled = {
        function: torch.compile(function, dynamic=True, backend=counter)
        for function in (kernels._losses, kernels._gradients_in_place, kernels._samples)
    }
    monkeypatch.setattr(kernels, "_compiled", lambda function, _: compiled[function])
    for m, block_elements in ((17, None), (1, None), (300, None), (90, 128 * 32), (16, None), (33, 128 * 16)):
        features, weight, bias, labels = inputs(m, 100, 8)
        numbers = torch.linspace(0, 0.9, m, device=DEVICE)
        with torch.inference_mode(), torch.autocast(DEVICE, dtype=torch.bfloat16):
            summed_cross_entropy(features, weight, bias, labels, sampling=numbers)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            actual = summed_cross_entropy(features, weight, bias, labels, block_elements, sampling=numbers)
        torch.testing.assert_close(actual.total, plain(features, weight, bias, labels)[0], rtol=1e-4, atol=1e-4)
        actual.total.backward()
    assert counter.frame_count == 3


@pytest.mark.parametrize("chosen", [None, "elsewhere"])
def test_compiled_code_is_cached_in_the_cache_directory(chosen, tmp_path, monkeypatch):
    monkeypatch.setenv("MASKWRIGHT_CACHE", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "elsewhere"))
    if chosen is None:
        monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    monkeypatch.setattr(torch, "compile", lambda function, dynamic: function)
    kernels._on_gpu.__wrapped__(torch.relu)
    assert Path(cache_dir()) == tmp_path / (chosen or "torchinductor")
