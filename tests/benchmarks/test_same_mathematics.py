"""Both sides of every training comparison compute the same. Nothing is timed."""

from pathlib import Path

import pytest
import torch

from benchmarks import peers
from benchmarks.agreement import compare, names_of
from benchmarks.electra import JointPeer, _recipe_and_text, agree, padded_with_originals
from benchmarks.own import OwnStep
from benchmarks.settings import Settings
from benchmarks.shapes import ALBERT, TINY, Shape, fitted
from benchmarks.timing import Side
from benchmarks.turns import Turns
from benchmarks.workloads import Source, examples_of, mlm_recipe, text_for


@pytest.fixture
def quick(tmp_path: Path) -> Settings:
    return Settings(scratch=tmp_path, quick=True)


@pytest.mark.parametrize("shape", [TINY, ALBERT], ids=lambda shape: shape.name)
def test_losses_and_gradients_of_both_sides_are_equal(shape: Shape, quick: Settings) -> None:
    shape = fitted(shape, quick)
    text = text_for(shape, quick)
    # Dropout is on in both models: the comparison must switch it off by itself.
    source = Source(mlm_recipe(shape, dropout=0.1, batch=shape.documents), text)
    steps = source.steps(1)
    (texts,) = examples_of(steps)
    own = OwnStep(source.recipe, text)
    own.save(quick.scratch / "model")
    peer = peers.HuggingFaceStep(peers.load(quick.scratch / "model", dropout=0.1))
    losses, gradients, _ = own.losses_and_gradients(steps[0])
    loss, theirs = peer.loss_and_gradients(peers.padded(texts))
    names = names_of(source.recipe)
    assert names.keys() == gradients.keys()
    found = compare((losses["mlm"], loss), gradients, theirs, names)
    assert abs(found.loss) <= 2e-6
    assert found.gradient <= 1e-5
    assert found.compared == len(names)
    assert all(check.passed for check in found.checks("tiny"))
    assert own.model.training
    assert peer.model.training
    assert all(parameter.grad is None for parameter in own.model.parameters())


def test_the_same_steps_lead_to_the_same_losses(quick: Settings) -> None:
    shape = fitted(TINY, quick)
    text = text_for(shape, quick)
    source = Source(mlm_recipe(shape, dropout=0.0, batch=shape.documents), text)
    steps = source.steps(5)
    own = OwnStep(source.recipe, text)
    own.save(quick.scratch / "model")
    peer = peers.HuggingFaceStep(peers.load(quick.scratch / "model"))
    ours = [own.step(step, 1e-3) for step in steps]
    theirs = [peer.step(peers.padded(texts), 1e-3) for texts in examples_of(steps)]
    assert ours == pytest.approx(theirs, abs=2e-5)
    assert ours[-1] < ours[0]


def test_the_joint_step_of_electra_is_equal(quick: Settings) -> None:
    recipe, text = _recipe_and_text(quick)
    steps = Source(recipe, text).steps(1)
    (texts,) = examples_of(steps)
    own = OwnStep(recipe, text)
    own.save(quick.scratch / "model")
    peer = JointPeer(quick.scratch / "model", dropout=0.1)
    found = agree(own, peer, steps[0], padded_with_originals(texts))
    assert found.keys() == {"generator", "discriminator"}
    for each in found.values():
        assert each.compared > 30
        assert abs(each.loss) <= 5e-6
        assert each.gradient <= 1e-5


def test_a_wrong_weight_is_noticed(quick: Settings) -> None:
    shape = fitted(TINY, quick)
    text = text_for(shape, quick)
    source = Source(mlm_recipe(shape, dropout=0.0, batch=shape.documents), text)
    steps = source.steps(1)
    (texts,) = examples_of(steps)
    own = OwnStep(source.recipe, text)
    own.save(quick.scratch / "model")
    peer = peers.HuggingFaceStep(peers.load(quick.scratch / "model"))
    with torch.no_grad():
        peer.model.bert.encoder.layer[1].attention.self.query.bias += 0.05
    losses, gradients, _ = own.losses_and_gradients(steps[0])
    loss, theirs = peer.loss_and_gradients(peers.padded(texts))
    found = compare((losses["mlm"], loss), gradients, theirs, names_of(source.recipe))
    assert not all(check.passed for check in found.checks("tiny"))


def test_a_weight_that_one_side_lacks_fails_the_check() -> None:
    gradients = {"a": torch.ones(3), "b": torch.ones(2)}
    names = {"a": "a", "b": "b"}
    assert all(check.passed for check in compare((1.0, 1.0), gradients, gradients, names).checks("tiny"))
    found = compare((1.0, 1.0), gradients, {"a": torch.ones(3)}, names)
    assert found.gradient == 0
    assert [check.passed for check in found.checks("tiny")] == [True, False]


def test_rounds_have_batches_of_their_own_the_same_on_all_sides_and_met_before() -> None:
    turns, seen = Turns(lots=3, rounds=4), list[tuple[str, int]]()
    lots = turns.dealt(range(6))
    assert [list(lot) for lot in lots] == [[0, 1], [2, 3], [4, 5]]
    sides = [Side(name, turns.each(lots, lambda lot, name=name: seen.append((name, lot[0])))) for name in "ab"]
    turns.timed(sides)
    # Each round begins with the other side.
    firsts = (0, 2, 4, 0, 2, 4, 0)
    assert seen == [(name, first) for turn, first in enumerate(firsts) for name in ("ab", "ba")[turn % 2]]
    assert turns.counted(lots, sum) == [1, 5, 9, 1]


def test_the_flag_is_set_for_one_side_and_put_back() -> None:
    def now() -> str:
        return str(torch.backends.mkldnn.matmul.fp32_precision)

    before = now()
    with peers.onednn_flag():
        assert now() == "bf16"
    assert now() == before
