"""Our own attention computes what the formula says, forward and backward, bit for bit the same in any company."""

import math
import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from maskwright.core.native import library
from maskwright.core.own_code import allowed
from maskwright.model.attention import attend
from maskwright.model.attention_plan import AttentionPlan, run_offsets
from maskwright.model.dropout import DropoutKey
from maskwright.model.native import attention
from maskwright.model.native.attention import CODE, Runs, attend_read, attend_runs, takes
from tests.thread_counts import with_threads

KEY = DropoutKey.on(torch.device("cpu"), 20170612)
needs_bf16 = pytest.mark.skipif(not library.has_bf16(), reason="the processor does not multiply bfloat16")


@pytest.fixture(autouse=True)
def _ours() -> None:
    """Skip where there is no compiled code."""
    if CODE.library() is None:
        pytest.skip(str(CODE.problem()))


def runs_of(rows: list[list[int]], row_length: int) -> tuple[Runs, Tensor]:
    """Lay runs of these lengths into rows, filler behind them; return them, and which slots are tokens."""
    sequence_ids, number = [], 0
    for row in rows:
        for length in row:
            sequence_ids += [number] * length
            number += 1
        sequence_ids += [-1] * (row_length - sum(row))
    ids = torch.tensor(sequence_ids)
    offsets = run_offsets(ids, row_length)
    begins, longest = offsets[:-1], int(offsets.diff().max())
    runs = Runs(
        offsets=offsets,
        real=ids[begins] >= 0,
        slots=begins,
        row_length=row_length,
        num_rows=len(rows),
        longest=longest,
    )
    return runs, ids >= 0


def inputs_of(
    slots: int, width: int, seed: int, dtype: torch.dtype = torch.float32, scale: float = 1.0
) -> list[Tensor]:
    """Draw queries, keys and values, which lie side by side as a joined projection leaves them."""
    draws = torch.Generator().manual_seed(seed)
    joined = (torch.randn(slots, 3 * width, generator=draws) * scale).to(dtype).requires_grad_()
    return list(torch.split(joined, width, dim=1))


def formula(inputs: list[Tensor], runs: Runs, heads: int, rate: float) -> Tensor:
    """The reference backend in fp64: one run after the other."""
    plan = AttentionPlan("reference", runs.row_length, runs=runs)
    given = [each.double() for each in inputs]
    return attend(*given, plan, num_heads=heads, dropout_rate=rate, dropout_key=KEY if rate else None, dropout_call=2)


def ours(inputs: list[Tensor], runs: Runs, heads: int, rate: float = 0.0) -> Tensor:
    queries, keys, values = inputs
    key = KEY if rate else None
    return attend_runs(queries, keys, values, runs, num_heads=heads, dropout_rate=rate, dropout_key=key, dropout_call=2)


@st.composite
def rows_of_runs(draw: st.DrawFn) -> tuple[list[list[int]], int]:
    row_length = draw(st.integers(1, 150))
    rows = []
    for _ in range(draw(st.integers(1, 3))):
        row: list[int] = []
        while sum(row) < row_length and draw(st.integers(0, 5)):
            row.append(draw(st.integers(1, row_length - sum(row))))
        rows.append(row)
    return rows, row_length


@settings(max_examples=60, deadline=None)
@given(
    laid=rows_of_runs(),
    heads=st.integers(1, 3),
    registers=st.sampled_from([1, 2, 3, 4, 5, 8]),
    rate=st.sampled_from([0.0, 0.1, 0.5]),
    threads=st.sampled_from([1, 2]),
    seed=st.integers(0, 2**16),
)
def test_it_is_the_formula_and_so_are_its_gradients(
    laid: tuple[list[list[int]], int], heads: int, registers: int, rate: float, threads: int, seed: int
) -> None:
    runs, real = runs_of(*laid)
    inputs = inputs_of(len(real), 16 * registers * heads, seed)
    slope = torch.randn(inputs[0].shape, generator=torch.Generator().manual_seed(seed)) * real[:, None]
    with with_threads(threads):
        mixed = ours(inputs, runs, heads, rate)
        slopes = torch.autograd.grad(mixed, inputs, slope)
    wanted = formula(inputs, runs, heads, rate)
    wanted_slopes = torch.autograd.grad(wanted, inputs, slope.double())
    torch.testing.assert_close(mixed[real].double(), wanted[real], atol=1e-5, rtol=1e-5)
    assert (mixed[~real] == 0).all()
    for found, expected in zip(slopes, wanted_slopes, strict=True):
        torch.testing.assert_close(found[real], expected[real], atol=2e-5, rtol=1e-4)
        assert (found[~real] == 0).all()


@pytest.mark.parametrize("rate", [0.0, 0.1])
@pytest.mark.parametrize("length", [1, 63, 64, 65, 128, 129, 500, 700])
def test_runs_longer_than_what_lies_in_a_cache(length: int, rate: float) -> None:
    runs, _ = runs_of([[length]], length)
    inputs = inputs_of(length, 64, length)
    slope = torch.randn(length, 64, generator=torch.Generator().manual_seed(1))
    mixed, wanted = ours(inputs, runs, 1, rate), formula(inputs, runs, 1, rate)
    torch.testing.assert_close(mixed.double(), wanted, atol=1e-5, rtol=1e-5)
    for found, expected in zip(
        torch.autograd.grad(mixed, inputs, slope), torch.autograd.grad(wanted, inputs, slope.double()), strict=True
    ):
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)


@settings(max_examples=30, deadline=None)
@given(laid=rows_of_runs(), rate=st.sampled_from([0.0, 0.3]), seed=st.integers(0, 2**16))
def test_bfloat16_is_rounded_once_at_the_end(laid: tuple[list[list[int]], int], rate: float, seed: int) -> None:
    runs, real = runs_of(*laid)
    inputs = inputs_of(len(real), 64, seed, torch.bfloat16)
    slope = (torch.randn(len(real), 64, generator=torch.Generator().manual_seed(seed)) * real[:, None]).bfloat16()
    mixed = ours(inputs, runs, 2, rate)
    slopes = torch.autograd.grad(mixed, inputs, slope)
    given = [each.float().detach().requires_grad_() for each in inputs]
    wanted = ours(given, runs, 2, rate)
    wanted_slopes = torch.autograd.grad(wanted, given, slope.float())
    assert mixed.dtype == torch.bfloat16
    assert torch.equal(mixed, wanted.bfloat16())
    for found, expected in zip(slopes, wanted_slopes, strict=True):
        assert torch.equal(found, expected.bfloat16())


@needs_bf16
@settings(max_examples=60, deadline=None)
@given(
    laid=rows_of_runs() | st.sampled_from([([[500]], 500), ([[300, 211]], 520)]),
    registers=st.sampled_from([1, 2, 3, 4, 6, 8]),
    rate=st.sampled_from([0.0, 0.3]),
    scale=st.sampled_from([1.0, 0.01, 5.0]),
    seed=st.integers(0, 2**16),
)
def test_processors_that_multiply_bfloat16_find_the_same_bits(
    laid: tuple[list[list[int]], int], registers: int, rate: float, scale: float, seed: int
) -> None:
    runs, real = runs_of(*laid)
    width = 16 * registers * 2
    inputs = inputs_of(len(real), width, seed, torch.bfloat16, scale)
    slope = (torch.randn(len(real), width, generator=torch.Generator().manual_seed(seed)) * real[:, None]).bfloat16()
    found = []
    for multiplies in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(attention, "has_bf16", lambda multiplies=multiplies: multiplies)
            mixed = ours(inputs, runs, 2, rate)
            found.append((mixed, *torch.autograd.grad(mixed, inputs, slope)))
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("multiplies", [False, pytest.param(True, marks=needs_bf16)])
def test_bfloat16_that_is_no_number_stays_in_its_run(multiplies: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "has_bf16", lambda: multiplies)
    runs, _ = runs_of([[20, 30]], 50)
    for place in range(3):
        inputs = [each.detach().clone().requires_grad_() for each in inputs_of(50, 64, 2, torch.bfloat16)]
        with torch.no_grad():
            inputs[place][25] = math.nan
        mixed = ours(inputs, runs, 2)
        slopes = torch.autograd.grad(mixed, inputs, torch.ones_like(mixed))
        assert mixed[:20].isfinite().all()
        assert mixed[25].isnan().all()
        assert all(slope[:20].isfinite().all() for slope in slopes)
        assert any(slope[20:].isnan().any() for slope in slopes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_neither_company_nor_threads_change_a_bit(dtype: torch.dtype) -> None:
    lengths = [17, 1, 40, 33]
    runs, real = runs_of([lengths], 100)
    inputs = inputs_of(100, 96, 5, dtype)
    slope = torch.randn(100, 96).to(dtype)
    found = []
    for threads in (1, 2, 5):
        with with_threads(threads):
            mixed = ours(inputs, runs, 3)
            found.append((mixed, *torch.autograd.grad(mixed, inputs, slope)))
    for each in found[1:]:
        assert all(map(torch.equal, each, found[0]))
    start = 0
    for length in lengths:
        its = slice(start, start + length)
        alone, _ = runs_of([[length]], length)
        assert torch.equal(ours([each[its] for each in inputs], alone, 3), found[0][0][its])
        start += length
    assert real[:start].all()


@settings(max_examples=30, deadline=None)
@given(data=st.data(), dtype=st.sampled_from([torch.float32, torch.bfloat16]))
def test_what_is_read_is_what_all_would_be(data: st.DataObject, dtype: torch.dtype) -> None:
    runs, real = runs_of(*data.draw(rows_of_runs()))
    slots = len(real)
    read = torch.tensor(data.draw(st.lists(st.integers(-slots, slots - 1), max_size=2 * slots)), dtype=torch.int64)
    with torch.inference_mode():
        queries, keys, values = inputs_of(slots, 64, slots, dtype)
        every = attend_runs(queries, keys, values, runs, num_heads=2)
        found = attend_read(queries[read], keys, values, runs, read, num_heads=2)
    assert torch.equal(found, every[read])


def test_only_what_is_looked_at_is_remembered() -> None:
    runs, _ = runs_of([[60]], 60)
    inputs = inputs_of(60, 64, 1)
    saved: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor) or tensor, lambda tensor: tensor):
        ours(inputs, runs, 4)
    # Queries, keys and values where they lie, and of each query and head two numbers.
    assert sorted(each.numel() for each in saved) == [60 * 4 * 2, 60 * 64, 60 * 64, 60 * 64]
    with torch.no_grad():
        assert torch.equal(ours(inputs, runs, 4), ours(inputs, runs, 4))


@pytest.mark.parametrize("scale", [1e-20, 30.0, 1e4])
def test_scores_of_any_size(scale: float) -> None:
    runs, _ = runs_of([[50, 30]], 80)
    inputs = inputs_of(80, 32, 2, scale=math.sqrt(scale))
    mixed, wanted = ours(inputs, runs, 2), formula(inputs, runs, 2, 0.0)
    assert mixed.isfinite().all()
    # Scores of tens of thousands are rounded to a few thousandths in fp32, and shares with them.
    largest = float(wanted.detach().abs().max())
    torch.testing.assert_close(mixed.double(), wanted, atol=(3e-4 if scale < 1e4 else 0.05) * largest, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [16, 32, 96])
@pytest.mark.parametrize("scale", [1e10, 1e20, 1e30])
def test_huge_scores_choose_one_token(scale: float, size: int, dtype: torch.dtype) -> None:
    """Beside the highest of such scores no other counts, however the root of a head's size is rounded."""
    runs, _ = runs_of([[50, 30]], 80)
    for seed in range(10):
        inputs = inputs_of(80, 2 * size, seed, dtype, scale=math.sqrt(scale))
        mixed = ours(inputs, runs, 2)
        slopes = torch.autograd.grad(mixed, inputs, torch.ones_like(mixed))
        wanted = formula([each.float() for each in inputs], runs, 2, 0.0).detach()
        largest = float(wanted.abs().max())
        torch.testing.assert_close(mixed.double(), wanted, atol=5e-3 * largest, rtol=0)
        assert all(slope.isfinite().all() for slope in slopes)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_is_no_number_stays_in_its_run(place: int) -> None:
    runs, _ = runs_of([[20, 30]], 50)
    inputs = [each.detach().clone().requires_grad_() for each in inputs_of(50, 32, 2)]
    with torch.no_grad():
        inputs[place][25] = math.nan
    mixed = ours(inputs, runs, 2)
    slopes = torch.autograd.grad(mixed, inputs, torch.ones(50, 32))
    assert mixed[:20].isfinite().all()
    assert mixed[25].isnan().all()
    assert all(slope[:20].isfinite().all() for slope in slopes)
    assert any(slope[20:].isnan().any() for slope in slopes)


def test_numbers_may_lie_otherwise() -> None:
    runs, _ = runs_of([[20, 30]], 50)
    inputs = inputs_of(50, 32, 2)
    turned = [each.detach().T.contiguous().T for each in inputs]
    assert torch.equal(ours(turned, runs, 2), ours(inputs, runs, 2))
    every_other = [torch.stack([each.detach(), torch.zeros(50, 32)], 1)[:, 0] for each in inputs]
    assert torch.equal(ours(every_other, runs, 2), ours(inputs, runs, 2))


def test_types_that_pytorch_takes_by_itself_change_nothing() -> None:
    runs, _ = runs_of([[20, 30]], 50)
    inputs = inputs_of(50, 32, 2)
    wanted = ours(inputs, runs, 2)
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(ours(inputs, runs, 2), wanted)
    finally:
        torch.set_default_dtype(torch.float32)


def test_it_is_done_without_where_pytorch_has_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "thread_library", lambda: [])
    found = CODE.look()
    assert "GNU's threads" in str(found)
    monkeypatch.setattr(CODE, "_found", found)
    assert not takes(64, "cpu", torch.float32)
    assert CODE.problem() is found


def test_a_run_may_do_without() -> None:
    with allowed(False):
        assert not takes(64, "cpu", torch.float32)
        with allowed(True):
            assert takes(64, "cpu", torch.float32)
    assert takes(64, "cpu", torch.float32)


def test_what_it_does_not_take_is_refused() -> None:
    runs, _ = runs_of([[20]], 20)
    inputs = [each.detach() for each in inputs_of(20, 48, 1)]
    for others in (
        [each.double() for each in inputs],
        [each.half() for each in inputs],
        [inputs[0].bfloat16(), *inputs[1:]],
    ):
        with pytest.raises(ValueError, match="fp32 or bf16 alike"):
            attend_runs(*others, runs, num_heads=3)
    with pytest.raises(ValueError, match="heads of 24"):
        attend_runs(*inputs, runs, num_heads=2)


def test_some_gradients_are_asked_for_and_again() -> None:
    runs, _ = runs_of([[20, 30]], 50)
    inputs = inputs_of(50, 32, 2)
    every = torch.autograd.grad(ours(inputs, runs, 2, 0.1).sum(), inputs)
    for place in range(3):
        some = [each.detach().requires_grad_(number == place) for number, each in enumerate(inputs)]
        mixed = ours(some, runs, 2, 0.1).sum()
        for _ in range(2):
            (found,) = torch.autograd.grad(mixed, some[place], retain_graph=True)
            assert torch.equal(found, every[place])
    (once,) = torch.autograd.grad(ours(inputs, runs, 2).square().sum(), inputs[0], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        once.sum().backward()


def test_nothing_in_gives_nothing() -> None:
    none = torch.zeros(0, dtype=torch.int64)
    runs = Runs(
        offsets=torch.zeros(1, dtype=torch.int64),
        real=none.bool(),
        slots=none,
        row_length=8,
        num_rows=0,
        longest=0,
    )
    assert attend_runs(*(torch.zeros(0, 32) for _ in range(3)), runs, num_heads=2).shape == (0, 32)
    runs, _ = runs_of([[5]], 8)
    inputs = [each.detach() for each in inputs_of(8, 32, 1)]
    assert attend_read(inputs[0][none], *inputs[1:], runs, none, num_heads=2).shape == (0, 32)
    with pytest.raises(IndexError):
        attend_read(inputs[0][:1], *inputs[1:], runs, torch.tensor([8]), num_heads=2)


def test_it_is_there_where_it_can_be() -> None:
    capabilities = torch.cpu.get_capabilities()
    if all(capabilities.get(name) for name in library.AVX512) and shutil.which("gcc") and library.thread_library():
        assert CODE.problem() is None


def test_what_it_takes() -> None:
    assert takes(64, "cpu", torch.float32)
    assert takes(16, "cpu", torch.bfloat16)
    assert not takes(24, "cpu", torch.float32)
    assert not takes(64, "cpu", torch.float64)
    assert not takes(64, "cuda", torch.float32)
