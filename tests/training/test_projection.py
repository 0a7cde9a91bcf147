"""Students narrower than their teacher, whose layers are projected to the principal axes of its states."""

import numpy as np
import pytest
import torch
from torch import Tensor
from toy_models import saved, small, toy_tokenizer

from maskwright.checkpoints.checkpoint import Checkpoint, EncoderWithHeads
from maskwright.core.errors import RecipeError
from maskwright.core.tensors import PackedBatch
from maskwright.model.config import EncoderConfig
from maskwright.model.encoder import Encoder
from maskwright.recipes.catalog import resolve
from maskwright.recipes.recipe import Recipe
from maskwright.training.start.existing import build_teacher, is_projected
from maskwright.training.start.initialization import inherit_from_teacher, start_from_teacher
from maskwright.training.start.projection import project_weights

SIZE = toy_tokenizer().special_tokens.vocab_size


def batch(seed: int) -> PackedBatch:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, 12, 60)
    ids = rng.integers(0, SIZE, lengths.sum())
    return PackedBatch.of(ids, np.zeros_like(ids), lengths)


def student_recipe(*overrides: str) -> Recipe:
    return resolve("distilbert/tiny", small(SIZE, "encoder.num_layers=2", "teacher.model=x", *overrides))


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return saved(tmp_path_factory.mktemp("bert"), "bert/tiny", "encoder.initializer_range=0.2")


def states(config: EncoderConfig, weights: dict[str, Tensor], text: PackedBatch) -> Tensor:
    encoder = Encoder(config, SIZE).eval()
    encoder.load_state_dict({name.removeprefix("encoder."): tensor for name, tensor in weights.items()})
    with torch.no_grad():
        return encoder(text).hidden


def project(recipe: Recipe, teacher: EncoderWithHeads, layers: tuple[int, ...]) -> dict[str, Tensor]:
    return project_weights(recipe.encoder, teacher, layers, [batch(0), batch(1)])


def test_a_student_of_full_width_computes_what_its_teacher_computes(bert: Checkpoint) -> None:
    recipe = student_recipe(f"encoder.num_layers={bert.config.num_layers}")
    recipe = inherit_from_teacher(recipe, bert, ())
    teacher = build_teacher(bert, recipe)
    weights = project(recipe, teacher, tuple(range(bert.config.num_layers)))
    expected = teacher.encode_batch(batch(2)).output.hidden
    error = (states(recipe.encoder, weights, batch(2)) - expected).square().mean() / expected.var()
    assert error < 1e-4  # Not exact: the fits are regularized.


def test_a_narrow_student_is_closer_to_its_teacher_than_a_random_one(bert: Checkpoint) -> None:
    recipe = inherit_from_teacher(student_recipe("encoder.hidden_size=16", "encoder.intermediate_size=40"), bert, ())
    assert is_projected(recipe.encoder, bert.config)
    assert recipe.encoder.head_size == bert.config.head_size
    start = start_from_teacher(recipe, bert)
    assert start.projected_layers == (0, bert.config.num_layers - 1)
    teacher = build_teacher(bert, recipe)
    weights = project(recipe, teacher, start.projected_layers)
    encoder = Encoder(recipe.encoder, SIZE)
    assert weights.keys() == {f"encoder.{name}" for name in encoder.state_dict()}
    target = teacher.encode_batch(batch(2)).output.hidden

    def explained(hidden: Tensor) -> float:
        """The share of the teacher's variance that a linear map of the student's states gives."""
        fitted = hidden @ torch.linalg.lstsq(hidden, target).solution
        return 1 - float((target - fitted).square().mean() / target.square().mean())

    random = encoder.state_dict()
    assert explained(states(recipe.encoder, weights, batch(2))) > 0.1 + explained(
        states(recipe.encoder, random, batch(2))
    )


@pytest.mark.parametrize(
    ("overrides", "loaded", "new"),
    [
        (["hidden_size=16"], "output bias of head 'mlm'", ("head 'mlm'",)),
        (["intermediate_size=40"], "head 'mlm'", ()),
        (["hidden_size=16", "sharing=all"], "output bias of head 'mlm'", ("head 'mlm'",)),
    ],
)
def test_what_fits_of_the_teacher_s_head_is_loaded(overrides, loaded, new, bert):
    settings = [f"encoder.{each}" for each in overrides] + ["family=maskwright"]
    recipe = inherit_from_teacher(student_recipe(*settings), bert, ())
    start = start_from_teacher(recipe, bert)
    assert loaded in start.loaded
    assert start.new == new
    assert torch.equal(start.weights["heads.mlm.bias"], bert.state["heads.mlm.bias"])
    weights = project(recipe, build_teacher(bert, recipe), start.projected_layers)
    assert all(tensor.isfinite().all() for tensor in weights.values())
    assert weights.keys() == {f"encoder.{name}" for name in Encoder(recipe.encoder, SIZE).state_dict()}


@pytest.mark.parametrize("setting", ["encoder.num_heads=2", "encoder.norm_placement=pre"])
def test_what_cannot_be_projected_is_refused(setting: str, bert: Checkpoint) -> None:
    family = ["family=maskwright"] if "norm" in setting else []
    recipe = student_recipe("encoder.hidden_size=16", setting, *family)
    with pytest.raises(RecipeError, match=r"hidden_size is 16.*teacher\.initialize=embeddings"):
        inherit_from_teacher(recipe, bert, {setting.partition("=")[0]})
