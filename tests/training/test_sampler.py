import numpy as np
import pytest

from maskwright.core.errors import DataError
from maskwright.core.types import Documents, Plan
from maskwright.training.steps.sampler import Cursor, InstanceSampler, Rows


def documents(count: int) -> Documents:
    return Documents(np.arange(1, count + 1) * 10, np.arange(count), np.arange(1, count + 1))


def plan(some: Documents, mask_sample: int) -> Plan:
    zero = np.zeros(len(some), dtype=np.int64)
    return Plan(
        first_start=some.bounds(some.first),
        first_end=some.bounds(some.last),
        second_start=zero,
        second_end=zero,
        pair_labels=np.full(len(some), -1, dtype=np.int8),
    )


def sampler(count: int = 23, copies: int | None = None) -> InstanceSampler:
    return InstanceSampler([documents(count)], None, plan, copies, 5)


def ids(rows: Rows) -> list[tuple[int, int]]:
    return list(zip(rows.mask_sample.tolist(), rows.index.tolist(), strict=True))


def test_each_epoch_reads_every_instance_once_in_another_order() -> None:
    one = sampler()
    rows, cursor = one.read(one.start(), 46)
    first, second = rows.index[:23].tolist(), rows.index[23:].tolist()
    assert sorted(first) == sorted(second) == list(range(23))
    assert first != second
    assert cursor.positions[0].epoch == 2
    assert cursor.positions[0].position == 0
    assert rows.epochs == 2.0


@pytest.mark.parametrize("size", [1, 4, 7, 23, 30])
def test_reading_in_pieces_equals_reading_at_once(size: int) -> None:
    one = sampler()
    whole, _ = one.read(one.start(), 60)
    cursor, pieces = one.start(), list[tuple[int, int]]()
    while len(pieces) < 60:
        rows, cursor = sampler().read(Cursor.from_json(cursor.to_json()), min(size, 60 - len(pieces)))
        pieces += ids(rows)
    assert pieces == ids(whole)


def test_static_copies_repeat_and_dynamic_ones_do_not() -> None:
    static, _ = sampler(copies=2).read(sampler().start(), 92)
    dynamic, _ = sampler().read(sampler().start(), 92)
    assert sorted(set(static.mask_sample.tolist())) == [0, 1]
    assert sorted(set(dynamic.mask_sample.tolist())) == [0, 1, 2, 3]


def test_weights_are_met_closely_at_every_length() -> None:
    mixed = InstanceSampler([documents(5), documents(50)], (3.0, 1.0), plan, None, 0)
    rows, cursor = mixed.read(mixed.start(), 1000)
    from_first = rows.index < 1 << 40
    assert abs(from_first.mean() - 0.75) < 0.01
    assert abs(from_first[:40].mean() - 0.75) < 0.06
    assert cursor.num_read == 1000


def test_mixed_sources_resume_where_they_stood() -> None:
    mixed = InstanceSampler([documents(5), documents(50)], (1.0, 2.0), plan, None, 0)
    whole, _ = mixed.read(mixed.start(), 100)
    first, cursor = mixed.read(mixed.start(), 37)
    rest, _ = mixed.read(cursor, 63)
    assert ids(first) + ids(rest) == ids(whole)


def test_a_corpus_without_instances_is_refused() -> None:
    with pytest.raises(DataError, match="no training sequence"):
        sampler(0).read(sampler().start(), 1)
