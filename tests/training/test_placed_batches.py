"""Batches on their way to a device: looked through for what is read, moved in one piece, nothing lost or changed."""

from dataclasses import replace

import pytest
import torch
from test_batches import step
from test_every_recipe import RECIPES, toy
from torch import Tensor

from maskwright.training.steps.batches import MicroBatch
from maskwright.training.steps.transfer import _move_together, map_tensors, move

CPU = torch.device("cpu")


class Elsewhere(Tensor):
    """A tensor that says it is on a GPU."""

    @property
    def device(self) -> torch.device:
        """A GPU, whatever the tensor's device is."""
        return torch.device("cuda")


def elsewhere(micro: MicroBatch) -> MicroBatch:
    """The same micro-batch, as if it were on a GPU."""
    return replace(micro, batch=replace(micro.batch, ids=micro.batch.ids.as_subclass(Elsewhere)))


@pytest.mark.parametrize("name", RECIPES)
def test_a_micro_batch_arrives_whole_and_in_one_piece(name: str) -> None:
    for original in step(toy(name)).micro_batches:
        moved, pieces = move(elsewhere(original), CPU), list[Tensor]()
        actual, expected = (map_tensors(each, lambda t: (t.dtype, t.tolist())) for each in (moved, original))
        assert actual == expected
        map_tensors(moved, pieces.append)
        assert all(each.is_contiguous() for each in pieces)
        assert len({each.untyped_storage().data_ptr() for each in pieces if each.numel()}) == 1


def test_tensors_on_the_right_device_are_not_copied() -> None:
    (micro, *_) = step(toy("bert/tiny"), count=8).micro_batches
    assert move(micro, CPU) is micro


def test_tensors_of_every_kind_move_together() -> None:
    originals = [
        torch.tensor([True, False, True]),
        torch.arange(5),
        torch.zeros(0, dtype=torch.int64),
        torch.tensor(3.5),
        torch.arange(12, dtype=torch.int16).view(3, 4).t(),
        torch.rand(7, dtype=torch.float64)[::2],
        torch.zeros(0, 3),
        torch.tensor([1], dtype=torch.uint8),
    ]
    for actual, expected in zip(_move_together(originals, CPU), originals, strict=True):
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
        assert torch.equal(actual, expected)
        assert actual.storage_offset() * actual.itemsize % 16 == 0
    assert _move_together([], CPU) == []


def test_an_electra_needs_the_selected_tokens_of_its_generator_and_all_of_its_encoder() -> None:
    batch = step(toy("electra/tiny"))
    for micro in batch.micro_batches:
        generator = micro.output_positions["generator"]
        assert generator.tolist() == micro.targets["mlm"].positions.tolist()
        # Every token is asked whether it was replaced.
        assert micro.output_positions["encoder"] is None
    assert batch.skipped_tokens == {"encoder": 0, "generator": batch.num_tokens - batch.counts["mlm"]}
