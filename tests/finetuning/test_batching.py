"""Batches hold every unit once, whole, with its own positions and labels; the order of units is keyed."""

import math
from types import SimpleNamespace

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from maskwright.finetuning.features import FeatureCollator, Features, ShuffledUnits
from maskwright.finetuning.model.heads import Head
from maskwright.training.steps.sampler import Cursor
from maskwright.training.steps.transfer import map_tensors

CPU = torch.device("cpu")


@st.composite
def made_up_features(draw):
    """Units of one to four sequences of one to twelve tokens; every token's id is its own."""
    shape = draw(st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=4), max_size=8))
    lengths = np.array([length for unit in shape for length in unit], dtype=np.int64)
    total = int(lengths.sum())
    positions = None
    if draw(st.booleans()):
        chosen = draw(st.sets(st.integers(0, total - 1))) if total else set()
        positions = np.array(sorted(chosen), dtype=np.int64)
        labels = positions * 3
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


def check_batch(batch, features):
    """Compare a batch with its sequences, put together one by one."""
    packed = batch.batch
    assert list(batch.unit_numbers) == sorted(batch.unit_numbers)
    sequences = [np.flatnonzero(features.units == unit) for unit in batch.unit_numbers]
    assert batch.units.tolist() == np.repeat(np.arange(len(sequences)), [len(each) for each in sequences]).tolist()
    tokens = [range(*features.cu_seqlens[sequence : sequence + 2].tolist()) for each in sequences for sequence in each]
    flat = [token for each in tokens for token in each]
    assert packed.lengths.tolist() == [len(each) for each in tokens]
    assert packed.max_seqlen == max(map(len, tokens))
    assert packed.ids.tolist() == features.ids[flat].tolist()
    assert packed.segment_ids.tolist() == features.segment_ids[flat].tolist()
    assert packed.position_ids.tolist() == [index for each in tokens for index in range(len(each))]
    if features.positions is None:
        assert batch.positions is None
        assert batch.labels.tolist() == features.labels[batch.unit_numbers].tolist()
    else:
        label_of = dict(zip(features.positions.tolist(), features.labels.tolist(), strict=True))
        assert batch.positions.tolist() == [index for index, token in enumerate(flat) if token in label_of]
        assert batch.labels.tolist() == [label_of[token] for token in flat if token in label_of]


def units_in(batches):
    return [int(unit) for batch in batches for unit in batch.unit_numbers]


@given(features=made_up_features(), source=st.sampled_from(["first", "pooled", "tokens"]))
def test_the_head_gets_first_tokens_tagged_tokens_or_all_in_the_order_of_the_features(features, source):
    head = SimpleNamespace(_row=SimpleNamespace(source=source))
    positions = Head.positions_by_sequence(head, features)
    starts = features.cu_seqlens[:-1]
    assert len(positions) == len(starts) == len(features.by_sequence(features.ids))
    tokens = [int(token) for start, each in zip(starts, positions, strict=True) for token in start + each]
    if source != "tokens":
        assert tokens == starts.tolist()
    elif features.positions is None:
        assert tokens == list(range(len(features.ids)))
    else:
        assert tokens == features.positions.tolist()


def test_a_batch_moves_to_another_device_in_one_piece() -> None:
    features = Features(
        ids=np.arange(6, dtype=np.int32),
        segment_ids=np.zeros(6, dtype=np.int64),
        cu_seqlens=np.array([0, 2, 6]),
        units=np.arange(2),
        examples=np.arange(2),
        positions=np.array([1, 3, 4]),
        labels=np.array([7.0, 8.0, 9.0], dtype=np.float32),
    )
    on_device, on_host = (
        FeatureCollator(features, tokens=99, device=device).batch(np.arange(2))
        for device in (torch.device("meta"), CPU)
    )
    moved, original = list[torch.Tensor](), list[torch.Tensor]()
    map_tensors(on_device, moved.append)
    map_tensors(on_host, original.append)
    assert [(each.shape, each.dtype) for each in moved] == [(each.shape, each.dtype) for each in original]
    assert all(each.is_meta for each in moved)
    assert len({each.untyped_storage()._cdata for each in moved}) == 1


@given(features=made_up_features(), batch_size=st.integers(1, 5), tokens=st.integers(1, 60), seed=st.integers(0, 99))
def test_an_epoch_uses_every_unit_once_and_resumes_at_a_cursor(features, batch_size, tokens, seed):
    if not features.num_units:
        return
    collator = FeatureCollator(features, tokens=tokens, device=CPU, kind="tagging", seed=seed)
    order = ShuffledUnits(features.num_units, seed)
    cursor, steps_per_epoch = order.start(), math.ceil(features.num_units / batch_size)
    for epoch in range(2):
        used = []
        for step in range(epoch * steps_per_epoch, (epoch + 1) * steps_per_epoch):
            resumed = ShuffledUnits(features.num_units, seed).read(Cursor.from_json(cursor.to_json()), batch_size)
            rows, cursor = order.read(cursor, batch_size)
            assert (resumed[0].numbers.tolist(), resumed[1]) == (rows.numbers.tolist(), cursor)
            made = collator.collate(rows, step)
            assert sorted(units_in(made.micro_batches)) == sorted(rows.numbers.tolist())
            for batch in made.micro_batches:
                check_batch(batch, features)
            assert made.counts == {"tagging": sum(len(batch.labels) for batch in made.micro_batches)}
            assert made.num_tokens == sum(batch.batch.num_tokens for batch in made.micro_batches)
            used += rows.numbers.tolist()
        assert sorted(used) == list(range(features.num_units))
        assert rows.epochs == epoch + 1


@given(features=made_up_features(), tokens=st.integers(1, 60), batch_size=st.integers(1, 8), ranks=st.integers(1, 4))
def test_the_shares_of_the_ranks_are_the_step_of_one_process(features, tokens, batch_size, ranks):
    if not features.num_units:
        return
    collator = FeatureCollator(features, tokens=tokens, device=CPU, ranks=ranks)
    order = ShuffledUnits(features.num_units, 0)
    rows, _ = order.read(order.start(), batch_size)
    whole = collator.collate(rows, 0)
    shares = [collator.collate(rows, 0, slice(rank, None, ranks)) for rank in range(ranks)]
    assert sorted(units_in(whole.micro_batches)) == sorted(rows.numbers.tolist())
    assert sum(share.counts["task"] for share in shares) == whole.counts["task"]
    assert all(share.micro_batches for share in shares), "every rank has gradients"
    for rank, share in enumerate(shares):
        assert share.num_tokens == whole.num_tokens
        learned = [batch for batch in share.micro_batches if batch.labels is not None]
        expected = whole.micro_batches[rank::ranks]
        assert units_in(learned) == units_in(expected)
        assert [batch.batch.dropout_key for batch in learned] == [batch.batch.dropout_key for batch in expected]


@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=60), ranks=st.integers(1, 5))
def test_a_step_has_a_multiple_of_the_ranks_of_like_size(lengths, ranks):
    features = features_of_lengths(lengths)
    groups = FeatureCollator(features, tokens=10_000, device=CPU, ranks=ranks).groups(np.arange(len(lengths)))
    assert len(groups) == min(ranks, len(lengths))
    totals = [int(np.array(lengths)[group].sum()) for group in groups]
    assert max(totals) <= sum(totals) / len(groups) + max(lengths)


def features_of_lengths(lengths):
    total = sum(lengths)
    return Features(
        ids=np.zeros(total, dtype=np.int32),
        segment_ids=np.zeros(total, dtype=np.int8),
        cu_seqlens=np.concatenate([[0], np.cumsum(lengths)]),
        units=np.arange(len(lengths)),
        examples=np.arange(len(lengths)),
    )


def test_dropout_keys_differ_between_micro_batches_and_steps_and_are_the_same_again():
    def keys(seed, step):
        lengths = [number % 9 + 1 for number in range(50)]
        collator = FeatureCollator(features_of_lengths(lengths), tokens=20, device=CPU, seed=seed)
        rows, _ = ShuffledUnits(50, 0).read(ShuffledUnits(50, 0).start(), 20)
        made = collator.collate(rows, step)
        assert len(made.micro_batches) > 3
        return [batch.batch.dropout_key for batch in made.micro_batches]

    several = keys(0, 0) + keys(0, 1) + keys(1, 0)
    assert None not in several
    assert len(set(several)) == len(several)
    assert keys(1, 0) == several[-len(keys(1, 0)) :]


@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=60), tokens=st.integers(40, 400))
def test_groups_are_as_few_as_can_be_or_one_more_and_of_like_size(sizes, tokens):
    lengths, features = np.array(sizes), features_of_lengths(sizes)
    groups = FeatureCollator(features, tokens=tokens, device=CPU).groups(np.arange(len(lengths)))
    totals = [int(lengths[group].sum()) for group in groups]
    fewest = -(-sum(totals) // tokens)
    assert max(totals) <= tokens
    # Whole sequences cannot always be cut evenly: each group may go beyond its share by one of them, which those after
    # it lack.
    assert len(groups) <= max(fewest, -(-sum(totals) // (tokens - int(lengths.max()) + 1)))
    if len(groups) == fewest:
        assert max(totals) - min(totals) <= (2 + math.log(len(groups))) * int(lengths.max())
