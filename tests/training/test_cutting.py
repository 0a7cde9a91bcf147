"""A stream that our C code cuts into micro-batches is the one that NumPy cuts, and so is a whole batch."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_batches import recipe, step

from maskwright.core.own_code import allowed
from maskwright.training.batches import MicroBatch
from maskwright.training.cutting import CODE, Cut, cut_stream


@pytest.fixture(autouse=True, scope="module")
def _ours() -> None:
    """Skip where there is no compiled code."""
    if CODE.library() is None:
        pytest.skip(str(CODE.problem()))


@settings(deadline=None, max_examples=150)
@given(st.lists(st.lists(st.integers(1, 40), max_size=5), min_size=1, max_size=6), st.integers(0, 1000))
def test_c_writes_what_numpy_writes(parts: list[list[int]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    lengths = [length for part in parts for length in part]
    total = sum(lengths)
    sizes = [sum(part) + int(rng.integers(0, 20)) for part in parts]
    cut = Cut(
        cu_seqlens=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
        slots=rng.integers(0, 1 << 40, len(lengths)),
        bounds=np.concatenate([[0], np.cumsum([len(part) for part in parts], dtype=np.int64)]),
        begins=np.concatenate([[0], np.cumsum(sizes)]),
    )
    ids, segment_ids = rng.integers(0, 1 << 30, total).astype(np.int32), rng.integers(0, 2, total).astype(np.int8)
    ours = cut_stream(cut, ids, segment_ids, pad=7)
    with allowed(False):
        plain = cut_stream(cut, ids, segment_ids, pad=7)
    for field in dataclasses.fields(ours):
        one, other = getattr(ours, field.name), getattr(plain, field.name)
        assert one.dtype == other.dtype == np.int64
        assert one.tolist() == other.tolist()


@pytest.mark.parametrize("masking", ["token", "whole_word", "ngram", "span"])
@pytest.mark.parametrize("tokens_per_microbatch", [1, 100, 4096])
def test_batches_with_and_without_our_code_are_the_same(masking: str, tokens_per_microbatch: int) -> None:
    chosen = recipe(f"masking.kind={masking}")
    ours = step(chosen, tokens_per_microbatch)
    with allowed(False):
        plain = step(chosen, tokens_per_microbatch)
    assert ours.counts == plain.counts
    assert ours.key == plain.key
    for one, other in zip(ours.micro_batches, plain.micro_batches, strict=True):
        for a, b in zip(values(one), values(other), strict=True):
            assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def values(micro: MicroBatch) -> Iterator[object]:
    yield from (getattr(micro.batch, field.name) for field in dataclasses.fields(micro.batch))
    for kind, targets in micro.targets.items():
        yield from (kind, targets.positions, targets.labels, *targets.extra.values(), *targets.anchors.values())
