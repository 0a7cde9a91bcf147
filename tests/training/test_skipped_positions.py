"""The last layer computes output positions only: losses and gradients are those of computing all tokens."""

import pytest
import torch
from test_batches import step
from test_every_recipe import RECIPES, model_of, teacher_of, toy

from maskwright.training.steps import batches
from maskwright.training.steps.batches import StepBatch, output_positions
from maskwright.training.steps.model import PretrainingModel
from maskwright.training.steps.workload import skipped_flops


def totals_and_gradients(model: PretrainingModel, batch: StepBatch) -> tuple[dict[str, float], dict[str, torch.Tensor]]:
    totals: dict[str, float] = {}
    for micro in batch.micro_batches:
        terms = model.losses(micro)
        torch.stack([term.total for term in terms.values()]).sum().backward()
        for kind, term in terms.items():
            totals[kind] = totals.get(kind, 0.0) + float(term.total.detach())
    gradients = {name: each.grad for name, each in model.named_parameters() if each.grad is not None}
    model.zero_grad(set_to_none=True)
    return totals, gradients


@pytest.mark.parametrize("name", RECIPES)
def test_losses_and_gradients_are_those_of_computing_all_tokens(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = toy(name)
    batch, model = step(recipe), model_of(recipe, teacher_of(recipe, steps=0)).eval()
    totals, gradients = totals_and_gradients(model, batch)
    monkeypatch.setattr(batches, "_MAX_OUTPUT_SHARE", -1.0)
    whole = step(recipe)
    all_totals, all_gradients = totals_and_gradients(model, whole)
    assert skipped_flops(recipe, whole) == 0
    # A student follows its teacher at every token.
    assert (skipped_flops(recipe, batch) > 0) == (recipe.teacher is None)
    assert totals == pytest.approx(all_totals, rel=1e-6)
    assert gradients.keys() == all_gradients.keys()
    for part, gradient in gradients.items():
        torch.testing.assert_close(gradient, all_gradients[part], rtol=1e-4, atol=1e-5, msg=part)


def test_pooled_first_tokens_and_anchors_are_output_positions() -> None:
    recipe = toy("spanbert/tiny")
    (micro, *_) = step(recipe).micro_batches
    boundary = micro.targets["sbo"]
    actual = output_positions(recipe.objectives, micro.batch, micro.targets, pools=True)
    wanted = torch.cat(
        [micro.batch.first_tokens, micro.targets["mlm"].positions, boundary.anchors["left"], boundary.anchors["right"]]
    )
    assert actual.tolist() == sorted(set(wanted.tolist()) | set(boundary.positions.tolist()))
