"""Batches hold every unit once, whole, with its own slots, positions and labels."""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maskwright.finetuning.features import (
    Batcher,
    FeatureBatch,
    Features,
    StepBatches,
    scoring_batches,
    steps_of_epoch,
    units_of_step,
)

PAD = 7
CPU = torch.device("cpu")


@st.composite
def made_up_features(draw: st.DrawFn) -> Features:
    """Units of one to four sequences of one to twelve tokens; every token's id is its own."""
    shape = draw(st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=4), max_size=8))
    lengths = np.array([length for unit in shape for length in unit], dtype=np.int64)
    total = int(lengths.sum())
    positions = None
    if draw(st.booleans()):
        chosen = draw(st.sets(st.integers(0, total - 1))) if total else set()
        positions = np.array(sorted(chosen), dtype=np.int64)
        labels = np.where(positions % 3 == 0, -1, positions)
    else:
        labels = np.arange(len(shape), dtype=np.int64) * 10
    return Features(
        ids=np.arange(total, dtype=np.int32) + 100,
        segment_ids=np.arange(total, dtype=np.int64) % 2,
        cu_seqlens=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        units=np.repeat(np.arange(len(shape)), [len(unit) for unit in shape]).astype(np.int64),
        examples=np.arange(len(shape), dtype=np.int64),
        positions=positions,
        labels=labels,
    )


def check_batch(batch: FeatureBatch, features: Features) -> None:
    """Follow each sequence of the batch token by token, in plain Python."""
    flat = batch.batch
    ids, segments, counted = (values.tolist() for values in (flat.ids, flat.segment_ids, flat.position_ids))
    tag_of = {}
    if features.positions is not None:
        assert features.labels is not None
        tag_of = dict(zip(features.positions.tolist(), features.labels.tolist(), strict=True))
    assert list(batch.unit_numbers) == sorted(batch.unit_numbers)
    wanted = [
        (local, sequence)
        for local, unit in enumerate(batch.unit_numbers)
        for sequence in range(len(features.units))
        if features.units[sequence] == unit
    ]
    assert batch.units.tolist() == [local for local, _ in wanted]
    used, places, tags = set(), [], []
    for number, (_, sequence) in enumerate(wanted):
        start, length = int(flat.first_tokens[number]), int(batch.lengths[number])
        begin, end = features.cu_seqlens[sequence : sequence + 2].tolist()
        assert length == end - begin
        for place in range(length):
            slot = start + place
            assert slot not in used
            used.add(slot)
            assert ids[slot] == features.ids[begin + place]
            assert segments[slot] == features.segment_ids[begin + place]
            assert counted[slot] == place
            if begin + place in tag_of:
                places.append(slot)
                tags.append(tag_of[begin + place])
    assert flat.num_tokens == len(used)
    assert batch.labels is not None
    if features.positions is None:
        assert batch.positions is None
        assert batch.labels.tolist() == [10 * unit for unit in batch.unit_numbers]
    else:
        assert batch.positions is not None
        assert batch.positions.tolist() == places
        assert batch.labels.tolist() == tags


def units_in(batches: Iterable[FeatureBatch]) -> list[int]:
    return [int(unit) for batch in batches for unit in batch.unit_numbers]


@given(features=made_up_features(), tokens=st.integers(1, 60))
def test_scoring_batches_hold_every_unit_once_whole_and_aligned(features: Features, tokens: int) -> None:
    batches = list(scoring_batches(features, tokens=tokens, pad=PAD, device=CPU))
    assert sorted(units_in(batches)) == list(range(features.num_units))
    for batch in batches:
        check_batch(batch, features)
        assert batch.batch.dropout_key is None
        assert batch.batch.num_tokens <= tokens or len(batch.unit_numbers) == 1
    longest = [int(batch.lengths.max()) for batch in batches]
    assert longest == sorted(longest, reverse=True)


@given(features=made_up_features(), batch_size=st.integers(1, 5), tokens=st.integers(1, 60), seed=st.integers(0, 99))
def test_steps_of_a_pass_learn_from_every_unit_once(
    features: Features, batch_size: int, tokens: int, seed: int
) -> None:
    batcher = Batcher(features, pad=PAD, tokens=tokens, device=CPU)
    num_steps = steps_of_epoch(features.num_units, batch_size)
    for epoch in range(2):
        steps = []
        for step in range(epoch * num_steps, (epoch + 1) * num_steps):
            units = units_of_step(features.num_units, batch_size, seed=seed, step=step)
            made = batcher.step(units, seed=seed, step=step)
            assert sorted(units_in(made.micro_batches)) == sorted(units.tolist())
            for batch in made.micro_batches:
                check_batch(batch, features)
            assert made.count == expected_count(made)
            assert made.num_tokens == sum(batch.batch.num_tokens for batch in made.micro_batches)
            steps.append(units.tolist())
        assert sorted(unit for units in steps for unit in units) == list(range(features.num_units))
        assert all(len(units) == batch_size for units in steps[:-1])


def expected_count(made: StepBatches) -> int:
    total = 0
    for batch in made.micro_batches:
        assert batch.labels is not None
        total += len(batch.labels) if batch.positions is None else sum(tag >= 0 for tag in batch.labels.tolist())
    return total


def plain_features(num_units: int = 50) -> Features:
    lengths = np.arange(num_units) % 9 + 1
    return Features(
        ids=np.arange(lengths.sum(), dtype=np.int32),
        segment_ids=np.zeros(lengths.sum(), dtype=np.int8),
        cu_seqlens=np.concatenate([[0], np.cumsum(lengths)]),
        units=np.arange(num_units),
        examples=np.arange(num_units),
        labels=np.arange(num_units),
    )


def test_order_is_a_pure_function_of_seed_and_pass() -> None:
    orders = {
        (seed, epoch): np.concatenate(
            [units_of_step(50, 8, seed=seed, step=step) for step in range(7 * epoch, 7 * epoch + 7)]
        ).tolist()
        for seed in (0, 1)
        for epoch in (0, 1)
    }
    assert len({tuple(order) for order in orders.values()}) == 4
    assert all(order != sorted(order) for order in orders.values())
    again = units_of_step(50, 8, seed=1, step=9).tolist()
    assert again == orders[1, 1][16:24]


def test_dropout_keys_differ_between_micro_batches_and_steps_and_are_the_same_again() -> None:
    batcher = Batcher(plain_features(), pad=PAD, tokens=20, device=CPU)

    def keys(seed: int, step: int) -> list[int | None]:
        made = batcher.step(np.arange(20), seed=seed, step=step)
        assert len(made.micro_batches) > 3
        return [batch.batch.dropout_key for batch in made.micro_batches]

    several = keys(0, 0) + keys(0, 1) + keys(1, 0)
    assert None not in several
    assert len(set(several)) == len(several)
    assert keys(1, 0) == several[-len(keys(1, 0)) :]


@pytest.mark.parametrize("dtype", [np.int64, np.float32])
@pytest.mark.parametrize("columns", [(), (3,)])
def test_labels_of_any_shape_keep_type_and_rows(dtype: Any, columns: tuple[int, ...]) -> None:
    table = np.random.default_rng(0).integers(0, 9, size=(50, *columns)).astype(dtype)
    features = replace(plain_features(), labels=table)
    for batch in scoring_batches(features, tokens=30, pad=PAD, device=CPU):
        assert batch.labels is not None
        assert np.array_equal(batch.labels.numpy(), table[batch.unit_numbers])
        assert batch.labels.numpy().dtype == dtype


def test_features_without_labels_give_batches_without() -> None:
    features = replace(plain_features(), labels=None)
    assert all(batch.labels is None for batch in scoring_batches(features, tokens=30, pad=PAD, device=CPU))


def test_no_units_give_no_batches() -> None:
    assert list(scoring_batches(plain_features(0), tokens=30, pad=PAD, device=CPU)) == []


@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=60), tokens=st.integers(40, 400))
def test_groups_are_as_few_as_can_be_or_one_more_and_of_like_size(sizes: list[int], tokens: int) -> None:
    lengths = np.array(sizes)
    features = Features(
        ids=np.zeros(lengths.sum(), dtype=np.int32),
        segment_ids=np.zeros(lengths.sum(), dtype=np.int8),
        cu_seqlens=np.concatenate([[0], np.cumsum(lengths)]),
        units=np.arange(len(lengths)),
        examples=np.arange(len(lengths)),
    )
    groups = Batcher(features, pad=PAD, tokens=tokens, device=CPU).by_length(np.arange(len(lengths)))
    totals = [int(lengths[group].sum()) for group in groups]
    fewest = -(-sum(totals) // tokens)
    assert max(totals) <= tokens
    # Whole sequences cannot always be cut evenly: each group may go beyond its share by one of them, which those after
    # it lack.
    assert len(groups) <= max(fewest, -(-sum(totals) // (tokens - int(lengths.max()) + 1)))
    if len(groups) == fewest:
        assert max(totals) - min(totals) <= (2 + math.log(len(groups))) * int(lengths.max())
