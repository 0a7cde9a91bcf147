"""Static and dynamic masks from the same code."""

import numpy as np
from pretext_samples import VOCABULARY, batch_of, rng_for

from maskwright.core.types import Examples
from maskwright.pretext.corrupt import corrupt
from maskwright.pretext.masking import TokenMasking
from maskwright.pretext.replacement import MaskRandomKeep

BATCH = batch_of([128] * 16)


def in_epoch(epoch: int, copies: int | None) -> Examples:
    """Corrupt the batch as an epoch sees it: with k static copies the refresh is the epoch modulo k."""
    refresh = epoch if copies is None else epoch % copies
    return corrupt(BATCH, TokenMasking(), MaskRandomKeep(), rng_for(BATCH, seed=3, refresh=refresh), VOCABULARY)


def test_static_masks_with_ten_copies_come_back_every_tenth_epoch() -> None:
    for epoch in range(3):
        first, again = in_epoch(epoch, copies=10), in_epoch(epoch + 10, copies=10)
        assert np.array_equal(first.corrupted, again.corrupted)
        assert np.array_equal(first.selection.positions, again.selection.positions)
    assert not np.array_equal(in_epoch(0, copies=10).corrupted, in_epoch(1, copies=10).corrupted)


def test_dynamic_masks_differ_in_every_epoch() -> None:
    masks = {in_epoch(epoch, copies=None).corrupted.tobytes() for epoch in range(40)}
    static = {in_epoch(epoch, copies=10).corrupted.tobytes() for epoch in range(40)}
    assert len(masks) == 40
    assert len(static) == 10


def test_dynamic_masks_of_two_epochs_overlap_no_more_than_chance() -> None:
    first, second = in_epoch(0, None).selection.positions, in_epoch(1, None).selection.positions
    shared = len(np.intersect1d(first, second))
    expected = 16 * 19 * 19 / 126
    assert abs(shared - expected) < 4.5 * np.sqrt(expected)
