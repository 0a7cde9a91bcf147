"""Scores, slopes and draws by our own code are what PyTorch's operations give, for any number of threads."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from maskwright.core.own_code import allowed
from maskwright.pretext.objectives import cross_entropy_native as native
from maskwright.pretext.objectives.cross_entropy import summed_cross_entropy
from tests.thread_counts import with_threads

HALF = torch.bfloat16
needs_half = pytest.mark.skipif(
    not torch.cpu.get_capabilities().get("avx512_bf16"), reason="the processor does not round to bfloat16"
)
dtypes = pytest.mark.parametrize("dtype", [torch.float32, pytest.param(HALF, marks=needs_half)])


@pytest.fixture(autouse=True)
def _ours() -> None:
    """Skip where there is no compiled code."""
    if native.CODE.library() is None:
        pytest.skip(str(native.CODE.problem()))


def block(rows: int, entries: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    """Draw logits, the vocabulary's bias and labels, a third of them the best."""
    draws = torch.Generator().manual_seed(rows + entries)
    logits = (3 * torch.randn(rows, entries, generator=draws)).to(dtype)
    bias = torch.randn(entries, generator=draws)
    labels = torch.randint(entries, (rows,), generator=draws)
    labels[::3] = (logits + bias).argmax(dim=1)[::3]
    return logits, bias, labels


def exact_scores(logits: Tensor, bias: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the summed cross entropy and its slopes in fp64."""
    precise = (logits + bias).double().requires_grad_()
    loss = F.cross_entropy(precise, labels, reduction="sum")
    return loss.detach(), torch.autograd.grad(loss, precise)[0]


@dtypes
@pytest.mark.parametrize("rows", [1, 4, 39])
@pytest.mark.parametrize("entries", [1, 2, 15, 16, 17, 255, 256, 273, 1000])
def test_a_block_is_what_twice_the_precision_gives(entries, rows, dtype):
    logits, bias, labels = block(rows, entries, dtype)
    loss, slopes = exact_scores(logits, bias, labels)
    correct = int(((logits + bias).argmax(dim=1) == labels).sum())
    alone = native.score(logits.clone(), bias, labels)
    to_bias = torch.ones(entries)
    scores = native.score(logits, bias, labels, to_bias)
    for found in (alone, scores):
        assert found.loss == pytest.approx(loss.item(), rel=1e-7, abs=1e-6)
        assert found.correct == correct
        assert found.drawn is None
    tolerance = 2.0**-8 if dtype == HALF else 1e-6
    assert ((logits.double() - slopes).abs() <= tolerance * slopes.abs() + 1e-7).all()
    torch.testing.assert_close(to_bias.double(), slopes.sum(dim=0) + 1, rtol=1e-6, atol=1e-5)


@dtypes
@pytest.mark.parametrize("added", [1, 5, 40])
def test_rows_behind_the_labels_count_for_nothing(added, dtype):
    logits, bias, labels = block(21, 50, dtype)
    more = torch.cat([logits, torch.full((added, 50), torch.nan, dtype=dtype)])
    sums, sums_of_more = torch.zeros(50), torch.zeros(50)
    numbers = torch.linspace(0, 0.99, 21)
    one, other = (
        native.score(logits, bias, labels, sums, numbers),
        native.score(more, bias, labels, sums_of_more, numbers),
    )
    assert one[:2] == other[:2]
    assert torch.equal(one.drawn, other.drawn)
    assert torch.equal(more[:21], logits)
    assert not more[21:].any()
    assert torch.equal(sums, sums_of_more)


@dtypes
def test_nothing_depends_on_the_number_of_threads(dtype):
    logits, bias, labels = block(77, 1500, dtype)
    numbers, found = torch.rand(77), []
    for threads in (1, 2, 3):
        with with_threads(threads):
            slopes, sums = logits.clone(), torch.zeros(1500)
            scores = native.score(slopes, bias, labels, sums, numbers)
            found.append((scores, slopes, sums, native.draw(logits, bias, numbers)))
    (first, slopes, sums, drawn), *others = found
    for scores, *tensors in others:
        assert scores[:2] == first[:2]
        assert torch.equal(scores.drawn, first.drawn)
        assert all(torch.equal(one, other) for one, other in zip(tensors, (slopes, sums, drawn), strict=True))


def test_a_loss_is_as_exact_as_pytorch_s():
    logits, bias, labels = block(400, 30522)
    loss, _ = exact_scores(logits, bias, labels)
    plain = F.cross_entropy(logits + bias, labels, reduction="sum")
    found = native.score(logits, bias, labels).loss
    assert abs(found - loss) <= max(abs(plain - loss), 1e-7 * loss)


@dtypes
@pytest.mark.parametrize("answer", [0, 20, 299])
@pytest.mark.parametrize("place", [3, 20, 298])
@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_what_is_infinite_or_no_number_gives_what_pytorch_gives(value, place, answer, dtype):
    logits, bias, _ = block(1, 300, dtype)
    logits[0, place] = value
    labels = torch.tensor([answer])
    wanted = F.cross_entropy((logits + bias).double(), labels, reduction="sum")
    slopes, to_bias = logits.clone(), torch.zeros(300)
    found = native.score(slopes, bias, labels, to_bias, torch.tensor([0.5]))
    assert torch.allclose(torch.tensor(found.loss).double(), wanted, rtol=1e-6, equal_nan=True)
    assert slopes.isfinite().all() == to_bias.isfinite().all() == (value == -torch.inf)
    assert 0 <= int(found.drawn) < 300


@dtypes
def test_no_row_of_infinite_logits_alone_has_a_loss(dtype):
    for value in (torch.inf, -torch.inf, torch.nan):
        logits = torch.full((2, 40), value, dtype=dtype)
        found = native.score(logits, torch.zeros(40), torch.tensor([0, 30]), torch.zeros(40), torch.rand(2))
        assert found.loss != found.loss
        assert logits.isnan().all()
        assert ((found.drawn >= 0) & (found.drawn < 40)).all()


@dtypes
def test_far_and_equal_logits_have_exact_losses(dtype):
    logits = torch.zeros(3, 1024, dtype=dtype)
    logits[1], logits[2] = torch.linspace(-1000, 1000, 1024), 1000
    labels = torch.tensor([0, 0, 1023])
    wanted, _ = exact_scores(logits, torch.zeros(1024), labels)
    found = native.score(logits, torch.zeros(1024), labels, torch.zeros(1024))
    assert found.loss == pytest.approx(wanted.item(), rel=1e-7)
    assert found.correct == 1  # The first of equals.
    assert logits.isfinite().all()
    assert logits[2, 0] == 1 / 1024
    assert logits[2, 1023] == torch.tensor(1 / 1024 - 1).to(dtype)


@dtypes
@pytest.mark.parametrize("entries", [1, 16, 17, 256, 300, 5000])
def test_a_token_is_drawn_where_the_running_sum_passes_the_number(entries, dtype):
    logits, bias, labels = block(64, entries, dtype)
    numbers = torch.rand(64, generator=torch.Generator().manual_seed(1))
    drawn = native.draw(logits, bias, numbers)
    assert torch.equal(drawn, native.score(logits.clone(), bias, labels, None, numbers).drawn)
    assert torch.equal(drawn, native.score(logits.clone(), bias, labels, torch.zeros(entries), numbers).drawn)
    running = (logits + bias).double().softmax(dim=1).cumsum(dim=1)
    after = running.gather(1, drawn[:, None]).squeeze(1)
    before = torch.where(drawn > 0, running.gather(1, (drawn - 1).clamp_min(0)[:, None]).squeeze(1), 0)
    assert (after > numbers - 1e-6).all()
    assert (before <= numbers + 1e-6).all()


@dtypes
def test_what_has_no_probability_is_never_drawn(dtype):
    logits = torch.full((6, 1000), -torch.inf, dtype=dtype)
    logits[:3], logits[4, :], logits[:, 300:303] = -200.0, -120.0, 0.0
    logits[5, 600] = 5
    numbers = torch.tensor([0.0, 0.5, 1 - 2.0**-24, 1 - 2.0**-24, 0.0, 1 - 2.0**-24])
    assert native.draw(logits, torch.zeros(1000), numbers).tolist() == [300, 301, 302, 302, 300, 600]
    # A finer number that fp32 rounds to 1.
    assert native.draw(logits[:1], torch.zeros(1000), torch.tensor([1 - 2.0**-30], dtype=torch.float64)).item() == 302


def test_draws_have_the_distribution():
    logits, bias, _ = block(1, 50)
    numbers = torch.rand(100_000, generator=torch.Generator().manual_seed(2))
    drawn = native.draw(logits.expand(len(numbers), -1).contiguous(), bias, numbers)
    wanted = (logits + bias).softmax(dim=1)[0]
    shares = drawn.bincount(minlength=50) / len(numbers)
    assert ((shares - wanted).abs() <= 5 * (wanted / len(numbers)).sqrt() + 1e-5).all()


@needs_half
@pytest.mark.parametrize("count", [1, 16, 3001])
def test_gradients_are_scaled_as_they_get_their_own_precision(count):
    gradient = torch.randn(1, count).to(HALF)
    assert torch.equal(native.scaled(gradient, 0.3, torch.float32), gradient.float() * 0.3)
    assert native.scaled(gradient, 1.0, HALF) is gradient
    plain = torch.randn(1, count)
    assert torch.equal(native.scaled(plain.clone(), 0.3, torch.float32), plain * 0.3)
    assert native.scaled(plain, 1.0, torch.float32) is plain


@pytest.mark.parametrize("label", [-100, -1, 48])
def test_labels_that_are_no_entries_are_refused(label):
    *leaves, labels = factors(3, 48, 8)
    labels[1] = label
    with pytest.raises(IndexError, match="for a vocabulary of 48 entries"):
        summed_cross_entropy(*leaves, labels)


def test_labels_of_another_type_are_the_same_labels():
    *leaves, labels = factors(6, 48, 8)
    assert torch.equal(summed_cross_entropy(*leaves, labels.int()).total, summed_cross_entropy(*leaves, labels).total)


def test_what_does_not_fit_the_logits_is_refused():
    logits, bias, labels = block(4, 48)
    with pytest.raises(ValueError, match="4 rows of logits for 8 targets"):
        native.score(logits, bias, labels.repeat(2))
    with pytest.raises(ValueError, match="4 rows of logits for 4 targets and 3 numbers"):
        native.score(logits, bias, labels, numbers=torch.rand(3))
    for wrong in (bias[:47], bias.double()):
        with pytest.raises(ValueError, match="with biases"):
            native.score(logits, wrong, labels)
    with pytest.raises(ValueError, match="with biases"):
        native.score(logits.t().contiguous().t(), bias, labels)
    with pytest.raises(ValueError, match="with biases"):
        native.score(logits, bias, labels, torch.zeros(96)[::2])


def factors(targets: int, entries: int, width: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    draws = torch.Generator().manual_seed(targets + entries + width)
    features, weight, bias = (
        torch.randn(*shape, generator=draws).requires_grad_()
        for shape in ((targets, width), (entries, width), (entries,))
    )
    return features, weight, bias, torch.randint(entries, (targets,), generator=draws)


@pytest.mark.parametrize("half", [False, pytest.param(True, marks=needs_half)])
@pytest.mark.parametrize("block_elements", [700, 30 * 700, None])
def test_the_whole_differs_from_exact_results_no_more_than_pytorch_s_operations(block_elements, half):
    *leaves, labels = factors(90, 700, 24)
    numbers = torch.rand(90)
    labels = labels[:83]  # Added rows.

    def found(own: bool) -> list[Tensor]:
        with allowed(own), torch.autocast("cpu", HALF, enabled=half):
            scores = summed_cross_entropy(*leaves, labels, block_elements, numbers[:83])
        return [scores.total.detach(), *torch.autograd.grad(scores.total / 83, leaves), scores.correct, scores.sampled]

    logits = F.linear(*(each.double() for each in leaves))[:83]
    loss = F.cross_entropy(logits, labels, reduction="sum")
    wanted = [loss.detach(), *torch.autograd.grad(loss / 83, leaves)]
    ours, plain = found(True), found(False)
    assert torch.equal(ours[-1], plain[-1])
    assert half or ours[-2] == plain[-2]  # In bf16 logits as good as equal are others.
    for one, other, right in zip(ours, plain, wanted, strict=False):
        assert one.dtype == other.dtype
        error, usual = ((each.double() - right).square().mean().sqrt() for each in (one, other))
        assert error <= 1.1 * usual + 1e-6 * right.abs().max()
    assert not ours[1][83:].any()


def test_factors_may_lie_anyhow():
    features, weight, bias, labels = factors(20, 48, 8)
    numbers = torch.rand(40)
    turned = [each.detach().t().contiguous().t().requires_grad_() for each in (features, weight)]
    strided = bias.detach().repeat_interleave(2)[::2].requires_grad_()
    one = summed_cross_entropy(features, weight, bias, labels, sampling=numbers[::2].contiguous())
    other = summed_cross_entropy(*turned, strided, labels.repeat_interleave(2)[::2], sampling=numbers[::2])
    assert torch.allclose(one.total, other.total, rtol=1e-6)
    assert torch.equal(one.sampled, other.sampled)
    gradients = zip(
        torch.autograd.grad(one.total, (features, weight, bias)),
        torch.autograd.grad(other.total, (*turned, strided)),
        strict=True,
    )
    assert all(torch.allclose(mine, theirs, rtol=1e-4, atol=1e-6) for mine, theirs in gradients)


def test_only_fp32_and_bf16_on_a_processor_are_taken():
    *leaves, _ = factors(3, 48, 8)
    assert native.takes(torch.float32, *leaves)
    assert not native.takes(torch.float16, *leaves)
    assert not native.takes(torch.float64, *leaves)
    assert not native.takes(torch.float32, leaves[0].double(), *leaves[1:])
    assert not native.takes(torch.float32, leaves[0].to("meta"), *leaves[1:])
    with allowed(False):
        assert not native.takes(torch.float32, *leaves)


def test_bf16_is_left_to_pytorch_where_the_processor_does_not_round(monkeypatch):
    *leaves, labels = factors(3, 48, 8)
    monkeypatch.setattr(native, "has_bf16", lambda: False)
    assert native.takes(torch.float32, *leaves)
    assert not native.takes(HALF, *leaves)
    with torch.autocast("cpu", HALF):
        assert summed_cross_entropy(*leaves, labels).total.isfinite()
