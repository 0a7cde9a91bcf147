import math
from dataclasses import replace

import pytest
import torch
from flat_batches import PACKED, SMALL, encoder, packed, without_filler
from torch.autograd.graph import saved_tensors_hooks

from maskwright.encoder import attention
from maskwright.encoder.attention import attend, choose_backend, plan_attention, run_offsets, share_of_pairs
from maskwright.encoder.dropout import DropoutKey, dropout_factors
from maskwright.encoder.native.attention import CODE, attend_runs

needs_native = pytest.mark.skipif(CODE.library() is None, reason="no C compiler, or not its processor")
WHOLE_HEADS = SMALL.replace(hidden_size=32, num_heads=2)
ONE_A_ROW = tuple((length,) for row in PACKED for length in row)
FULL = ((24,), (24,))


def _run(backend, batch, config=SMALL):
    model = encoder(config, backend)
    output = model(batch)
    real = batch.sequence_ids >= 0
    assert output.hidden.isfinite().all()
    (output.hidden[real] ** 3).mean().backward()
    return (
        output.hidden[real].detach(),
        output.pooled.detach(),
        {n: p.grad for n, p in model.named_parameters()},
    )


def _assert_same(found, expected):
    torch.testing.assert_close(found[0], expected[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(found[1], expected[1], atol=1e-5, rtol=0)
    for name, gradient in expected[2].items():
        if gradient is not None:
            torch.testing.assert_close(found[2][name], gradient, atol=1e-5, rtol=1e-4, msg=name)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("backend", ["rows", "sdpa", "jagged"])
@pytest.mark.parametrize("rows", [PACKED, ONE_A_ROW, FULL], ids=["packed", "one a row", "full rows"])
def test_backends_agree_with_the_reference(backend, rows):
    batch = packed(rows, 24)
    _assert_same(_run(backend, batch), _run("reference", batch))


@needs_native
@pytest.mark.parametrize("rows", [PACKED, ONE_A_ROW, FULL], ids=["packed", "one a row", "full rows"])
@pytest.mark.parametrize("key", [None, 99], ids=["nothing dropped", "dropout"])
def test_our_own_code_agrees_with_the_reference(rows, key):
    batch = packed(rows, 24, key=key)
    _assert_same(_run("native", batch, WHOLE_HEADS), _run("reference", batch, WHOLE_HEADS))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("backend", ["rows", "sdpa", "jagged", "reference", pytest.param("native", marks=needs_native)])
@pytest.mark.parametrize("rows", [PACKED, ONE_A_ROW, FULL], ids=["packed", "one a row", "full rows"])
@pytest.mark.parametrize(
    # PACKED has 91 tokens in rows of 96 slots: with five behind them the stream is as long as its rows, and is none.
    "behind",
    [0, 5, 30],
    ids=["nothing behind", "as long as the rows", "more than a row behind"],
)
def test_a_stream_without_the_filler_of_its_rows_gives_the_same(backend, rows, behind):
    batch = packed(rows, 24)
    found = _run(backend, without_filler(batch, behind), WHOLE_HEADS)
    _assert_same(found, _run("reference", batch, WHOLE_HEADS))


@pytest.mark.parametrize("backend", ["rows", "reference", pytest.param("native", marks=needs_native)])
@pytest.mark.parametrize("behind", [0, 3, 5])
def test_attention_drops_by_the_place_in_a_row_whether_or_not_filler_is_there(backend, behind):
    config = WHOLE_HEADS.replace(hidden_dropout=0.0, attention_dropout=0.3)
    batch = packed(PACKED, 24, key=99)
    _assert_same(_run(backend, without_filler(batch, behind), config), _run("rows", batch, config))


@pytest.mark.parametrize("backend", ["rows", pytest.param("native", marks=needs_native)])
def test_all_of_dropout_is_the_same_for_a_stream_without_filler(backend):
    batch = without_filler(packed(PACKED, 24, key=99), behind=3)
    _assert_same(_run(backend, batch, WHOLE_HEADS), _run("reference", batch, WHOLE_HEADS))


@pytest.mark.parametrize("backend", ["rows", "sdpa", "reference", pytest.param("native", marks=needs_native)])
def test_an_empty_stream_without_filler_gives_nothing(backend):
    empty = torch.zeros(0, dtype=torch.int64)
    batch = replace(
        packed(((24,),), 24),
        **dict.fromkeys(["ids", "position_ids", "segment_ids", "sequence_ids", "first_tokens", "row_slots"], empty),
        num_rows=0,
        num_tokens=0,
    )
    assert encoder(WHOLE_HEADS, backend)(batch).hidden.shape == (0, 32)


@needs_native
def test_our_own_code_takes_a_stream_that_is_not_cut_into_rows():
    _assert_same(_run("native", packed(PACKED, None), WHOLE_HEADS), _run("reference", packed(PACKED, 24), WHOLE_HEADS))


@needs_native
def test_our_own_code_computes_what_autocast_rounds():
    draws = torch.Generator().manual_seed(3)
    inputs = [torch.randn(24, 32, generator=draws) for _ in range(3)]
    plan = plan_attention(packed(((10, 14),), 24), "native", torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found = attend(*inputs, plan, num_heads=2)
    wanted = attend_runs(*(each.bfloat16() for each in inputs), plan.runs, num_heads=2)
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("backend", ["rows", "sdpa"])
def test_sequences_packed_into_a_row_never_attend_to_each_other(backend):
    _assert_same(_run(backend, packed(PACKED, 24)), _run(backend, packed(ONE_A_ROW, 24)))


@pytest.mark.parametrize("backend", ["rows", "sdpa"])
def test_a_stream_that_is_not_cut_into_rows_gives_the_same(backend):
    _assert_same(_run(backend, packed(PACKED, None)), _run(backend, packed(PACKED, 24)))


def test_changing_one_sequence_changes_no_other():
    batch = packed(PACKED, 24)
    model = encoder()
    changed = replace(batch, ids=torch.where(batch.sequence_ids == 1, 6, batch.ids))
    differs = (model(batch).hidden != model(changed).hidden).any(dim=1)
    assert torch.equal(differs, batch.sequence_ids == 1)


def test_rows_drop_what_the_reference_drops():
    batch = packed(PACKED, 24, key=99)
    dropped = _run("rows", batch)
    _assert_same(dropped, _run("reference", batch))
    assert (dropped[0] - _run("rows", packed(PACKED, 24))[0]).abs().max() > 0.1


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("backend", ["sdpa", "jagged"])
def test_fused_kernels_drop_by_the_key_and_put_the_generator_back(backend):
    config = SMALL.replace(hidden_dropout=0.0, attention_dropout=0.3)
    model = encoder(config, backend)
    before = torch.get_rng_state()
    with torch.no_grad():
        first, again, other, none = (model(packed(PACKED, 24, key=key)).hidden for key in (5, 5, 6, None))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(first, again)
    assert not torch.allclose(first, other, atol=1e-2)
    assert not torch.allclose(first, none, atol=1e-2)


def test_no_mask_is_made_when_every_row_is_one_full_sequence():
    assert plan_attention(packed(FULL, 24), "rows", torch.float32).mask is None
    assert plan_attention(packed(((23,), (24,)), 24), "rows", torch.float32).mask is not None
    assert plan_attention(packed(((12, 12),), 24), "rows", torch.float32).mask is not None


def test_run_offsets_end_runs_at_row_ends():
    offsets = run_offsets(torch.tensor([0, 0, 1, -1, -1, -1, 2, 2]), row_length=4)
    assert offsets.tolist() == [0, 2, 3, 4, 6, 8]


@pytest.mark.parametrize(
    ("row_length", "device", "dtype", "drops", "expected"),
    [
        (128, "cpu", torch.float32, False, "rows"),
        (512, "cpu", torch.float32, False, "sdpa"),
        (512, "cpu", torch.float32, True, "rows"),
        (128, "cuda", torch.bfloat16, True, "jagged"),
        (128, "cuda", torch.float32, True, "sdpa"),
    ],
)
def test_backend_is_chosen_by_what_can_be_done_fastest(row_length, device, dtype, drops, expected):
    assert choose_backend(row_length, device, dtype, drops=drops, head_size=24) == expected
    if device == "cuda":
        assert choose_backend(row_length, device, dtype, drops=drops, head_size=64) == expected


@pytest.mark.parametrize(
    ("row_length", "dtype", "drops", "pairs", "expected"),
    [
        (128, torch.float32, True, 1.0, "native"),
        (512, torch.float32, False, 1.0, "native"),
        (128, torch.bfloat16, True, 0.8, "native"),
        (128, torch.bfloat16, False, 0.6, "native"),
        (128, torch.bfloat16, False, 0.8, "rows"),
        (128, torch.bfloat16, True, 1.0, "rows"),
        (512, torch.bfloat16, False, 1.0, "native"),
        (128, torch.float64, False, 0.1, "rows"),
    ],
)
def test_our_own_code_is_chosen_where_it_is_faster(row_length, dtype, drops, pairs, expected, monkeypatch):
    monkeypatch.setattr(attention, "takes", lambda size, device, dtype: dtype != torch.float64)
    chosen = choose_backend(row_length, "cpu", dtype, drops=drops, head_size=64, pairs=pairs)
    assert chosen == expected


def test_share_of_pairs_counts_those_of_one_sequence():
    assert share_of_pairs(packed(FULL, 24), torch.bfloat16) == 1.0
    # Runs of 12, 12 and 6; filler is nobody's.
    runs = packed(((12, 12), (6,)), 24)
    assert share_of_pairs(without_filler(runs, 3), torch.bfloat16) == share_of_pairs(runs, torch.bfloat16)
    assert share_of_pairs(runs, torch.bfloat16) == (12**2 + 12**2 + 6**2) / (2 * 24**2)
    assert share_of_pairs(runs, torch.float32) == 1.0


@needs_native
def test_a_model_in_fp64_stays_in_it_under_autocast():
    model, batch = encoder(WHOLE_HEADS).double(), packed(PACKED, 24)
    expected = model(batch).hidden
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(model(batch).hidden, expected)


HEADS, WIDTH, ROW = 3, 12, 6
KEY = DropoutKey.on(torch.device("cpu"), 20170612)
MASKED, UNMASKED = ((2, 4), (5,)), ((6,), (6,))


def _inputs(dtype=torch.float32, scale=1.0):
    draws = torch.Generator().manual_seed(3)
    return [
        (torch.randn(2 * ROW, WIDTH, generator=draws, dtype=torch.float64) * scale).to(dtype).requires_grad_()
        for _ in range(3)
    ]


def _attend(inputs, rows, rate=0.0, backend="rows", dtype=None):
    plan = plan_attention(packed(rows, ROW), backend, dtype or inputs[0].dtype)
    return attend(*inputs, plan, num_heads=HEADS, dropout_rate=rate, dropout_key=KEY if rate else None, dropout_call=2)


def _plainly(inputs, rows, rate):
    """Attention of row after row and head after head, from the formula."""
    queries, keys, values = inputs
    shape = torch.Size((2, HEADS, ROW, ROW))
    factors = dropout_factors(shape, rate, KEY, 2).to(queries.dtype) if rate else torch.ones(shape).to(queries.dtype)
    sequences = packed(rows, ROW).sequence_ids.view(2, ROW)
    size = WIDTH // HEADS
    rows_mixed = []
    for row in range(2):
        tokens = slice(row * ROW, (row + 1) * ROW)
        apart = sequences[row][:, None] != sequences[row][None]
        heads_mixed = []
        for head in range(HEADS):
            part = slice(head * size, (head + 1) * size)
            scores = queries[tokens, part] @ keys[tokens, part].T / math.sqrt(size)
            probabilities = scores.masked_fill(apart, -math.inf).softmax(-1) * factors[row, head]
            heads_mixed.append(probabilities @ values[tokens, part])
        rows_mixed.append(torch.cat(heads_mixed, dim=1))
    return torch.cat(rows_mixed)


@pytest.mark.parametrize("rate", [0.0, 0.4])
@pytest.mark.parametrize("rows", [MASKED, UNMASKED], ids=["mask", "no mask"])
class TestRows:
    def test_attention_and_its_gradients_are_those_of_the_formula(self, rows, rate):
        inputs = _inputs(torch.float64)
        slope = torch.randn(2 * ROW, WIDTH, dtype=torch.float64)
        found, expected = _attend(inputs, rows, rate), _plainly(inputs, rows, rate)
        torch.testing.assert_close(found, expected, atol=1e-7, rtol=1e-7)
        gradients = torch.autograd.grad(expected, inputs, slope)
        for gradient, wanted in zip(torch.autograd.grad(found, inputs, slope), gradients, strict=True):
            torch.testing.assert_close(gradient, wanted, atol=1e-7, rtol=1e-7)

    def test_gradients_are_those_of_finite_differences(self, rows, rate):
        inputs = tuple(_inputs(torch.float64))
        assert torch.autograd.gradcheck(lambda *tensors: _attend(tensors, rows, rate), inputs, fast_mode=True)

    def test_every_choice_of_inputs_gets_the_gradients_that_all_get(self, rows, rate):
        inputs = _inputs()
        slope = torch.randn(2 * ROW, WIDTH)
        expected = torch.autograd.grad(_attend(inputs, rows, rate), inputs, slope)
        for choice in range(1, 8):
            chosen = [bool(choice >> place & 1) for place in range(3)]
            some = [tensor.detach().requires_grad_(wanted) for tensor, wanted in zip(inputs, chosen, strict=True)]
            _attend(some, rows, rate).backward(slope)
            for tensor, wanted, gradient in zip(some, chosen, expected, strict=True):
                assert torch.equal(tensor.grad, gradient) if wanted else tensor.grad is None

    def test_a_retained_graph_gives_the_same_gradients_again(self, rows, rate):
        inputs = _inputs()
        mixed = _attend(inputs, rows, rate)
        first = torch.autograd.grad(mixed.sum(), inputs, retain_graph=True)
        for gradient, again in zip(first, torch.autograd.grad(mixed.sum(), inputs), strict=True):
            assert torch.equal(gradient, again)

    def test_one_block_of_probabilities_is_kept_beside_the_heads(self, rows, rate):
        kept = []
        with saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
            _attend(_inputs(), rows, rate)
        assert sorted(tensor.nbytes for tensor in kept) == sorted([4 * 2 * HEADS * ROW**2] + [4 * 2 * ROW * WIDTH] * 3)

    @pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
    def test_nothing_is_kept_where_no_gradient_is_wanted(self, rows, rate, mode):
        inputs, kept = _inputs(), []
        expected = _attend(inputs, rows, rate)
        with saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
            with mode():
                mixed = _attend(inputs, rows, rate)
            frozen = _attend([tensor.detach() for tensor in inputs], rows, rate)
        assert not kept
        assert not mixed.requires_grad
        assert not frozen.requires_grad
        assert torch.equal(mixed, expected)
        assert torch.equal(frozen, expected)

    def test_autocast_halves_the_products_and_leaves_gradients_in_the_precision_of_the_inputs(self, rows, rate):
        inputs, slope = _inputs(), torch.randn(2 * ROW, WIDTH)
        halves = _inputs(torch.bfloat16)
        with torch.autocast("cpu", torch.bfloat16):
            mixed = _attend(inputs, rows, rate, dtype=torch.bfloat16)
        by_hand = _attend(halves, rows, rate)
        assert mixed.dtype == by_hand.dtype == torch.bfloat16
        assert torch.equal(mixed, by_hand)
        gradients = torch.autograd.grad(mixed, inputs, slope.bfloat16())
        for gradient, wanted in zip(gradients, torch.autograd.grad(by_hand, halves, slope.bfloat16()), strict=True):
            assert gradient.dtype == torch.float32
            assert torch.equal(gradient, wanted.float())

    def test_half_precision_stays_near_the_formula(self, rows, rate):
        halves = _inputs(torch.bfloat16)
        exact = [tensor.detach().double().requires_grad_() for tensor in halves]
        slope = torch.randn(2 * ROW, WIDTH).bfloat16()
        found, expected = _attend(halves, rows, rate), _plainly(exact, rows, rate)
        gradients = torch.autograd.grad(found, halves, slope)
        wanted = torch.autograd.grad(expected, exact, slope.double())
        for half, whole in zip((found, *gradients), (expected, *wanted), strict=True):
            # Numbers of 8 bits: a handful of roundings of 2**-9 each.
            assert (half.double() - whole).norm() < 2**-6 * whole.norm()


def test_rows_drop_the_same_in_every_precision():
    values = torch.ones(2 * ROW, WIDTH)
    found = []
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        queries, keys, _ = _inputs(dtype, scale=0.0)
        found.append(_attend([queries, keys, values.to(dtype)], UNMASKED, 0.4).double())
    # All probabilities are 1/R: what is mixed counts those that are kept.
    kept = (dropout_factors(torch.Size((2, HEADS, ROW, ROW)), 0.4, KEY, 2) > 0).sum(-1)
    counted = kept.transpose(1, 2).reshape(2 * ROW, HEADS).repeat_interleave(WIDTH // HEADS, dim=1)
    assert len(counted.unique()) > 3
    for mixed in found:
        assert torch.equal((mixed * 0.6 * ROW).round().long(), counted)


def test_rows_refuse_to_be_differentiated_twice():
    inputs = _inputs()
    (gradient,) = torch.autograd.grad(_attend(inputs, MASKED, 0.4).square().sum(), inputs[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()
