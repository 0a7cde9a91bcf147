"""What stands around captured passes and needs no GPU: sizes, the places that graphs read, gradients, stand-ins."""

from dataclasses import replace
from typing import cast

import pytest
import torch
from hypothesis import event, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from maskwright.core.row_counts import rounded_up
from maskwright.core.tensors import FlatBatch
from maskwright.kernels.cuda.pass_sizes import PassSize
from maskwright.kernels.cuda.passes import CapturedPasses, _fill, _Pair, _room, _stand_ins
from maskwright.kernels.cuda.runs import runs_of
from maskwright.kernels.dropout import DropoutKey

CPU = torch.device("cpu")
KEY = DropoutKey.on(CPU, 5)
LENGTH = 16
BATCHES = st.lists(st.integers(1, LENGTH), min_size=1, max_size=100)


def batch_of(lengths: list[int], row_length: int = LENGTH) -> FlatBatch:
    """Sequences of random ids, one behind the other, laid into rows in their order."""
    num_tokens = sum(lengths)
    size, slots, first_tokens, row, filled = rounded_up(num_tokens), list[int](), list[int](), 0, 0
    for length in lengths:
        if filled + length > row_length:
            row, filled = row + 1, 0
        first_tokens.append(len(slots))
        slots += range(row * row_length + filled, row * row_length + filled + length)
        filled += length
    draws = torch.Generator().manual_seed(num_tokens)
    ids, positions, segments = (torch.randint(1, 99, (size,), generator=draws) for _ in range(3))
    return FlatBatch(
        ids=ids,
        position_ids=positions,
        segment_ids=segments,
        sequence_ids=torch.zeros(size, dtype=torch.int64),
        first_tokens=torch.tensor(first_tokens),
        row_length=row_length,
        num_tokens=num_tokens,
        row_slots=torch.tensor(slots),
        num_rows=row + 1,
    )


def read_of(batch: FlatBatch, share: float | None) -> Tensor | None:
    """As many tokens as are usually read, spread evenly; None for all."""
    if share is None:
        return None
    return torch.linspace(0, batch.num_tokens - 1, max(1, int(share * batch.num_tokens))).long().unique()


# What a graph is made for, and what may come to it.


@settings(deadline=None)
@given(
    lengths=BATCHES,
    times=st.integers(1, 60),
    share=st.sampled_from([None, 0.1, 0.15, 0.5, 0.75]),
    drops=st.booleans(),
)
def test_a_graph_made_for_a_batch_takes_it_and_has_room_for_all_of_it(
    lengths: list[int], times: int, share: float | None, drops: bool
) -> None:
    batch = batch_of(lengths * times)
    read, key = read_of(batch, share), KEY if drops else None
    size = PassSize.of(batch, key, read)
    assert size.takes(batch, key, read)
    assert size.tokens >= len(batch.ids)
    assert batch.num_rows is not None
    assert size.rows >= batch.num_rows
    assert (size.read is None) == (read is None)
    assert read is None or (size.read or 0) >= len(read)
    filler = -(-(size.tokens - batch.num_tokens) // LENGTH)
    assert size.runs >= len(batch.first_tokens) + filler
    assert size.tokens <= max(len(batch.ids) + 16, 1.04 * len(batch.ids))


@settings(deadline=None)
@given(lengths=BATCHES, times=st.integers(1, 20), share=st.sampled_from([None, 0.15]), data=st.data())
def test_a_graph_has_room_for_whatever_it_takes(
    lengths: list[int], times: int, share: float | None, data: st.DataObject
) -> None:
    of = batch_of(lengths * times)
    left_out = data.draw(st.integers(0, 1 + len(lengths) * times // 30))
    batch = batch_of((data.draw(st.permutations(lengths)) * times)[left_out:] or [1])
    size = PassSize.of(of, KEY, read_of(of, share))
    read = read_of(batch, share)
    event(f"taken: {size.takes(batch, KEY, read)}")
    if size.takes(batch, KEY, read):
        inputs = _room(size, CPU)
        _fill(inputs, batch, KEY, read)
        assert_filled(inputs.runs.offsets, batch, size)


@pytest.mark.parametrize("share", [None, 0.15])
def test_what_is_about_as_large_shares_a_graph_and_what_is_much_smaller_or_larger_has_its_own(
    share: float | None,
) -> None:
    lengths = [9, 16, 7, 12, 4] * 200
    batch = batch_of(lengths)
    size = PassSize.of(batch, KEY, read_of(batch, share))
    near = [lengths[10:], lengths[:-10], sorted(lengths)[10:]]
    assert all(size.takes(each, KEY, read_of(each, share)) for each in map(batch_of, near))
    far = [lengths[:500], lengths[100:], lengths + lengths[:500], lengths[:5]]
    assert not any(size.takes(each, KEY, read_of(each, share)) for each in map(batch_of, far))


def test_a_graph_takes_neither_other_rows_nor_other_runs_nor_what_drops_or_reads_otherwise() -> None:
    batch = batch_of([8] * 400)
    read = read_of(batch, 0.15)
    assert read is not None
    size = PassSize.of(batch, KEY, read)
    assert size.takes(batch, KEY, read)
    assert not size.takes(batch, None, read)
    assert not size.takes(batch, KEY, None)
    assert not size.takes(batch, KEY, torch.arange(3 * len(read)))
    assert not size.takes(batch, KEY, read[:8])
    assert not PassSize.of(batch, KEY, None).takes(batch, KEY, read)
    # As many tokens in twice the rows, four times the sequences, or rows of another length.
    assert not size.takes(batch_of([9, 7] * 200, 15), KEY, read)
    assert not size.takes(batch_of([2] * 1600), KEY, read)
    rows = {length: batch_of([length] * (3200 // length)).num_rows for length in (8, 10)}
    assert rows == {8: 200, 10: 320}
    assert not size.takes(batch_of([10] * 320), KEY, read)


# Where a graph reads.


def assert_filled(offsets: Tensor, batch: FlatBatch, size: PassSize) -> None:
    """Runs are the sequences, then filler no longer than a row, then none: to the end of what a graph computes."""
    runs = len(batch.first_tokens)
    ends = [*batch.first_tokens.tolist(), batch.num_tokens]
    assert offsets[: runs + 1].tolist() == ends
    lengths = offsets.diff()
    assert int(offsets[-1]) == size.tokens
    assert int(lengths.min()) >= 0
    assert int(lengths[runs:].sum()) == size.tokens - batch.num_tokens
    assert int(lengths[runs:].max()) <= LENGTH


@settings(deadline=None)
@given(lengths=BATCHES, share=st.sampled_from([None, 0.15, 0.6]))
def test_a_batch_stands_where_its_graph_reads_whatever_stood_there(lengths: list[int], share: float | None) -> None:
    # First a batch of more tokens, sequences and targets than any.
    larger = batch_of([7] * (LENGTH * 100 // 7 + 1))
    batch = batch_of(lengths)
    size = PassSize.of(larger, KEY, None if share is None else read_of(larger, 1.0))
    inputs, read = _room(size, CPU), read_of(batch, share)
    _fill(inputs, larger, DropoutKey.on(CPU, 9), None if share is None else read_of(larger, 1.0))
    _fill(inputs, batch, KEY, read)
    for name in ("ids", "position_ids", "segment_ids"):
        found = getattr(inputs.batch, name)
        assert torch.equal(found[: len(batch.ids)], getattr(batch, name))
        assert int(found.min()) >= 0
        assert int(found.max()) < 99
    runs = len(batch.first_tokens)
    assert_filled(inputs.runs.offsets, batch, size)
    assert batch.row_slots is not None
    assert torch.equal(inputs.runs.slots[:runs], batch.row_slots[batch.first_tokens])
    assert not inputs.runs.slots[runs:].any()
    assert inputs.key is not None
    assert int(inputs.key.tensor) == KEY.number
    if read is None:
        assert inputs.read is None
    else:
        assert inputs.read is not None
        assert torch.equal(inputs.read[: len(read)], read)
        assert not inputs.read[len(read) :].any()


def test_where_nothing_is_dropped_there_is_no_key() -> None:
    batch = batch_of([8, 16, 3])
    inputs = _room(PassSize.of(batch, None, None), CPU)
    _fill(inputs, batch, None, None)
    assert inputs.key is None


# Stand-ins of parameters.


def module() -> nn.Module:
    """Two layers share a weight, one weight has no gradient, one layer has no bias."""
    first, second = nn.Linear(4, 4), nn.Linear(4, 4, bias=False)
    second.weight = first.weight
    third = nn.Linear(4, 2)
    third.weight.requires_grad_(False)
    return nn.Sequential(first, second, third)


def test_stand_ins_share_memory_and_shared_parameters_share_one() -> None:
    net = module()
    own = dict(net.named_parameters(remove_duplicate=False))
    with _stand_ins(net) as others:
        there = dict(net.named_parameters(remove_duplicate=False))
        assert there.keys() == own.keys()
        assert there["0.weight"] is there["1.weight"]
        assert net[1].bias is None  # type: ignore[index]
        for name, parameter in own.items():
            assert there[name] is not parameter
            assert there[name].data_ptr() == parameter.data_ptr()
            assert there[name].requires_grad == parameter.requires_grad
        # In the order of parameters, each once, without those that have no gradient.
        assert [id(each) for each in others] == [id(own[name]) for name in ("0.weight", "0.bias", "2.bias")]
        assert all(others[own[name]] is there[name] for name in ("0.weight", "0.bias", "2.bias"))
        given = torch.autograd.grad(net(torch.ones(3, 4)).sum(), list(others.values()))
    assert all(each is own[name] for name, each in net.named_parameters(remove_duplicate=False))
    assert all(parameter.grad is None for parameter in own.values())
    net(torch.ones(3, 4)).sum().backward()
    for parameter, each in zip(others, given, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, each)


def test_parameters_are_put_back_after_an_error_too() -> None:
    net = module()
    own = {name: id(each) for name, each in net.named_parameters(remove_duplicate=False)}

    def fail() -> None:
        with _stand_ins(net):
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError):
        fail()
    assert {name: id(each) for name, each in net.named_parameters(remove_duplicate=False)} == own


# Gradients that stand where a graph writes them.


class Pair:
    """A backward pass whose gradients stand at fixed places."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.gradients = [(each, torch.zeros_like(each)) for each in parameters]

    def replay(self, passes: CapturedPasses, value: float) -> None:
        """Do what a micro-batch does: what was given before is kept, then the places are written, then given."""
        passes._keep_given()
        for _, gradient in self.gradients:
            gradient.fill_(value)
        passes.give(cast(_Pair, self))


@pytest.fixture
def parameters() -> list[nn.Parameter]:
    return [nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(2, 2))]


@pytest.fixture
def passes(parameters: list[nn.Parameter]) -> CapturedPasses:
    def compute(*_: object) -> Tensor:
        raise AssertionError("nothing is captured here")

    return CapturedPasses(compute, nn.ParameterList(parameters))


def gradients(parameters: list[nn.Parameter]) -> list[float]:
    found = [each.grad for each in parameters if each.grad is not None]
    assert all(bool((each == each.flatten()[0]).all()) for each in found)
    return [float(each.flatten()[0]) for each in found]


@pytest.mark.parametrize("pairs", [1, 2])
def test_gradients_of_micro_batches_add_up_in_one_graph_and_in_several(
    pairs: int, parameters: list[nn.Parameter], passes: CapturedPasses
) -> None:
    graphs = [Pair(parameters) for _ in range(pairs)]
    for step in range(3):
        for number, value in enumerate((1.0, 10.0, 100.0, 1000.0)):
            graphs[number % pairs].replay(passes, value + step)
            assert gradients(parameters) == [sum((1.0, 10.0, 100.0, 1000.0)[: number + 1]) + step * (number + 1)] * 2
        for parameter in parameters:
            parameter.grad = None


def test_what_another_part_of_the_model_gave_is_added_to(
    parameters: list[nn.Parameter], passes: CapturedPasses
) -> None:
    pair = Pair(parameters[:1])
    tied = torch.full((3,), 0.5)
    parameters[0].grad, parameters[1].grad = tied, torch.full((2, 2), 7.0)
    pair.replay(passes, 1.0)
    assert parameters[0].grad is tied
    assert gradients(parameters) == [1.5, 7.0]
    # So it is where the graph came first: the place is the graph's, and the next pass does not write over it.
    parameters[0].grad = None
    pair.replay(passes, 1.0)
    parameters[0].grad += 0.5
    pair.replay(passes, 2.0)
    assert gradients(parameters) == [3.5, 7.0]


def test_gradients_of_a_step_before_are_no_part_of_the_next(
    parameters: list[nn.Parameter], passes: CapturedPasses
) -> None:
    pair = Pair(parameters)
    pair.replay(passes, 4.0)
    for parameter in parameters:
        parameter.grad = None
    passes._keep_given()
    assert gradients(parameters) == []
    pair.replay(passes, 1.0)
    assert gradients(parameters) == [1.0, 1.0]


# Which graph computes a batch.


def passes_with(sizes: list[PassSize]) -> CapturedPasses:
    passes = CapturedPasses(lambda *_: pytest.fail("nothing is captured here"), torch.nn.Linear(2, 2))
    passes._pairs = dict.fromkeys(sizes)  # type: ignore[assignment]
    return passes


def test_the_first_batch_has_no_graph_and_the_second_one_with_room() -> None:
    passes, batch = passes_with([]), batch_of([8] * 400)
    assert passes._size_for(batch, KEY, None) is None
    size = passes._size_for(batch, KEY, None)
    assert size is not None
    assert 1.05 * len(batch.ids) <= size.tokens <= 1.15 * len(batch.ids)
    passes._pairs[size] = None  # type: ignore[assignment]
    larger, smaller = batch_of([8] * 425), batch_of([8] * 300)
    assert [passes._size_for(each, KEY, None) for each in (batch, larger, smaller)] == [size] * 3
    too_large = passes._size_for(batch_of([8] * 800), KEY, None)
    assert too_large is not None
    assert too_large.tokens > 6400


def test_a_size_that_comes_often_gets_a_graph_that_fits() -> None:
    batch = batch_of([8] * 300)
    loose, close = PassSize.of(batch_of([8] * 400), KEY, None), PassSize.of(batch, KEY, None)
    passes = passes_with([loose])
    assert [passes._size_for(batch, KEY, None) for _ in range(25)] == [loose] * 24 + [close]
    passes._pairs[close] = None  # type: ignore[assignment]
    assert passes._size_for(batch, KEY, None) == close


def test_no_more_graphs_are_made_than_there_is_room_for() -> None:
    batch = batch_of([8] * 300)
    others = [PassSize.of(batch_of([8] * count), KEY, None) for count in range(1000, 2600, 100)]
    passes = passes_with(others)
    assert len(passes._pairs) == 16
    assert [passes._size_for(batch, KEY, None) for _ in range(30)] == [None] * 30


def test_what_is_forgotten_leaves_gradients_that_were_given() -> None:
    passes = passes_with([PassSize.of(batch_of([8] * 300), KEY, None)])
    parameter, gradient = torch.nn.Parameter(torch.zeros(3)), torch.ones(3)
    parameter.grad = gradient
    passes._given.append((parameter, gradient))
    passes.forget()
    assert not passes._pairs
    gradient.zero_()
    assert torch.equal(parameter.grad, torch.ones(3))


def test_without_memory_for_a_graph_none_is_made_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    passes, batch = passes_with([]), batch_of([8] * 300)

    def short_of_memory(*_: object) -> None:
        try:
            raise RuntimeError("CUDA out of memory")
        finally:
            raise RuntimeError("operation failed due to a previous error during capture")

    monkeypatch.setattr(passes, "_captured", short_of_memory)
    assert [passes(batch, KEY, None) for _ in range(3)] == [None] * 3
    assert passes._is_full


def test_sequences_may_lie_in_another_order_than_that_of_their_numbers() -> None:
    batch = batch_of([8] * 10)
    shuffled = replace(batch, first_tokens=batch.first_tokens[torch.randperm(10)])
    for of in (batch, shuffled):
        assert runs_of(of).offsets.diff().tolist()[:10] == [8] * 10
        inputs = _room(PassSize.of(of, None, None), CPU)
        _fill(inputs, of, None, None)
        assert_filled(inputs.runs.offsets, batch, PassSize.of(of, None, None))
