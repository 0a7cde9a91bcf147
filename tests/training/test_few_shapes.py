"""Products of few different numbers of rows, whatever the number of targets; and no loss or gradient tells."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from test_batches import VOCABULARY, workload
from test_every_recipe import RECIPES, model_of, teacher_of, toy
from torch.utils._python_dispatch import TorchDispatchMode

from maskwright.core import row_counts
from maskwright.recipes.recipe import Recipe
from maskwright.training import model as model_module
from maskwright.training.batches import MicroBatch, StepBatch

WIDTHS = (1, 2, 32, 64)
"""Of the toys' layers and heads: in the products of gradients these are rows."""
_PRODUCTS = {torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default}


class Products(TorchDispatchMode):
    """Collects the shapes of the factors of all matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: set[tuple[tuple[int, ...], ...]] = set()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _PRODUCTS:
            self.shapes.add(tuple(tuple(each.shape) for each in args[-2:]))
        return func(*args, **(kwargs or {}))


def step_batches(recipe: Recipe, slots: int, sequences: int) -> Iterator[StepBatch]:
    phase = workload(recipe, slots).phases[0]
    cursor = phase.stream.start()
    for number in itertools.count():
        rows, cursor = phase.stream.read(cursor, sequences)
        yield phase.collator.collate(rows, number)


def micro_batches(recipe: Recipe, count: int) -> list[MicroBatch]:
    steps = step_batches(recipe, 512, 100)
    return list(itertools.islice((micro for step in steps for micro in step.micro_batches), count))


def shapes_seen(recipe: Recipe, batches: list[MicroBatch]) -> set[tuple[tuple[int, ...], ...]]:
    model = model_of(recipe).train()
    with Products() as products:
        for micro in batches:
            torch.stack([term.total for term in model.losses(micro).values()]).sum().backward()  # type: ignore[no-untyped-call]
    return products.shapes


@pytest.mark.parametrize("name", ["bert/tiny", "electra/tiny"])
def test_micro_batches_of_other_targets_make_products_of_few_shapes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_module, "_FEWEST_FILLED_UP", 1)  # A toy's batches have few targets.
    recipe = toy(name)
    batches = micro_batches(recipe, 16)
    numbers = {len(micro.targets["mlm"].positions) for micro in batches}
    assert len(numbers) > 4
    seen = shapes_seen(recipe, batches)
    slots = {len(micro.batch.ids) for micro in batches}
    # The slots are what they are; behind the last attention all rows come in multiples.
    rows = {shapes[0][0] for shapes in seen if len(shapes[0]) == 2 and shapes[0][0] > max(WIDTHS)} - {VOCABULARY}
    assert all(each % row_counts.MULTIPLE == 0 or each in slots for each in rows), rows
    assert len(set(map(row_counts.rounded_up, numbers))) < len(numbers) / 2


@pytest.mark.parametrize("name", RECIPES)
def test_losses_and_gradients_are_those_of_rows_that_are_not_filled_up(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_module, "_FEWEST_FILLED_UP", 1)  # A toy's batches have few targets.
    recipe = toy(name)
    model = model_of(recipe, teacher_of(recipe, steps=0)).train()
    # Hidden dropout is keyed by the place among what is read (`Encoder.forward`), so it is left out.
    batches = [MicroBatch(replace(micro.batch, dropout_key=None), micro.targets) for micro in micro_batches(recipe, 2)]
    found = []
    for multiple in (row_counts.MULTIPLE, 1):
        monkeypatch.setattr(row_counts, "MULTIPLE", multiple)
        terms = [model.losses(micro) for micro in batches]
        totals = [term.total for each in terms for term in each.values()]
        torch.stack(totals).sum().backward()  # type: ignore[no-untyped-call]
        counts = [(term.count, term.correct is None or int(term.correct)) for each in terms for term in each.values()]
        sampled = [term.sampled.tolist() for each in terms for term in each.values() if term.sampled is not None]
        gradients = {part: each.grad for part, each in model.named_parameters() if each.grad is not None}
        model.zero_grad(set_to_none=True)
        found.append(([float(total.detach()) for total in totals], counts, sampled, gradients))
    (totals, *others, gradients), (plain_totals, *plain_others, plain_gradients) = found
    assert totals == pytest.approx(plain_totals, rel=1e-6)
    assert others == plain_others
    assert gradients.keys() == plain_gradients.keys()
    for part, gradient in gradients.items():
        torch.testing.assert_close(gradient, plain_gradients[part], rtol=1e-4, atol=1e-5, msg=part)
