"""Students of sentence embedders: their vectors, and the folder of sentence-transformers that they become."""

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from toy_runs import TOY, Train, assert_same_files, killed_after, train_toy, write_corpus

import maskwright
from maskwright.checkpoints.checkpoint import read_checkpoint
from maskwright.checkpoints.sentence_folder import MODULES, read_sentence_modules
from maskwright.core.errors import ConversionError, RecipeError
from maskwright.core.spec import override, parse_overrides
from maskwright.core.storage.files import read_json, write_json
from maskwright.pretext.objectives import SentenceVectors
from maskwright.recipes.catalog import resolve
from maskwright.training.pretrain import RunResult
from maskwright.training.start.continuation import recipe_of
from maskwright.training.start.existing import open_existing
from maskwright.training.start.initialization import inherit_vectors
from recording import Recorder

UNMASKED = "replacement={kind: mask_random_keep, mask: 0, random: 0, keep: 1}"
NARROW = (
    *(setting for setting in TOY if "vocab_size" not in setting and "hidden_size" not in setting),
    "encoder.hidden_size=16",
    "encoder.num_layers=1",
    "teacher.initialize=embeddings",
    "objectives=[relations, sentence_vectors]",
    UNMASKED,
)
TEXTS = ["the cat watches the garden.", "a dog follows some bread.", "my sister paints an open door. The river."]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("student")


@pytest.fixture(scope="module")
def train(shared: Path) -> Train:
    corpus = write_corpus(shared / "corpus.txt", documents=200)
    return partial(train_toy, shared, corpus=corpus)


@pytest.fixture(scope="module")
def distill(train: Train, embedder: Path) -> Train:
    return partial(train, recipe="distilbert/tiny", set=NARROW, teacher=embedder, steps=60)


@pytest.fixture(scope="module")
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture(scope="module")
def student(distill: Train, shared: Path, recorder: Recorder) -> RunResult:
    return distill(shared / "student", reporter=recorder)


def test_a_narrow_student_comes_to_give_its_teacher_s_vectors(student, embedder, recorder):
    measured = student.held_out["sentence_vectors"]
    assert measured.details["mean"] == pytest.approx(1 - measured.loss)
    vectors, wanted = maskwright.embed(student.folder, TEXTS), maskwright.embed(embedder, TEXTS)
    assert vectors.shape == wanted.shape == (3, 32)
    assert (vectors * wanted).sum(axis=1).min() > 0.8
    assert recorder.on("health", f"mean cosine with the teacher's {measured.details['mean']:.3f}")
    assert -1 <= measured.details["spearman"] <= 1
    modules = read_sentence_modules(student.folder)
    assert (modules.pooling, modules.normalize, modules.dense.weight.shape) == ("first", True, (32, 16))
    assert read_json(student.folder / "run.json")["begun_with"]["loaded"] == ["embeddings"]


def test_a_narrow_student_begins_with_its_teacher_s_layers(distill: Train, embedder: Path, shared: Path) -> None:
    settings = ["teacher.initialize=layers", *(each for each in NARROW if "initialize" not in each)]
    settings = [each for each in settings if "num_heads" not in each]  # One head of the teacher's size.
    projected = distill(shared / "projected", set=settings, steps=2)
    random = distill(shared / "random", set=NARROW, steps=2)
    assert projected.held_out["sentence_vectors"].loss < random.held_out["sentence_vectors"].loss - 0.1
    begun = read_json(projected.folder / "run.json")["begun_with"]
    assert begun["loaded"] == ["embeddings", "head 'sentence_vectors'", "layers 0 of 2, projected to 16 axes"]


def test_a_resumed_student_equals_an_uninterrupted_one(distill: Train, student: RunResult, shared: Path) -> None:
    with killed_after(2):
        distill(shared / "killed", checkpoint_minutes=0.0)
    assert_same_files(student, distill(shared / "killed"), MODULES, "2_Dense/model.safetensors", "2_Dense/config.json")


def test_sentence_transformers_and_exports_give_the_same_vectors(student: RunResult, tmp_path: Path) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    vectors = maskwright.embed(student.folder, TEXTS)
    theirs = sentence_transformers.SentenceTransformer(str(student.folder), device="cpu")
    assert np.abs(theirs.encode(TEXTS) - vectors).max() < 1e-5
    maskwright.export(student.folder, to="sentence-transformers", out=tmp_path / "st")
    assert np.abs(maskwright.embed(tmp_path / "st", TEXTS) - vectors).max() < 1e-5
    maskwright.export(student.folder, to="hub", out=tmp_path / "hub")
    assert np.abs(maskwright.embed(tmp_path / "hub", TEXTS) - vectors).max() < 1e-5


def test_another_pooling_is_without_the_linear_layer(student: RunResult) -> None:
    model = maskwright.load(student.folder, device="cpu")
    assert model.embed(TEXTS, pooling="mean").shape == (3, 16)
    assert np.array_equal(model.embed(TEXTS, pooling="first"), model.embed(TEXTS))


def test_a_student_teaches_another_with_its_linear_layer(distill: Train, student: RunResult, tmp_path: Path) -> None:
    wide = tuple(setting for setting in NARROW if "hidden_size" not in setting)
    run = distill(
        tmp_path / "second", teacher=student.folder, set=(*wide, "encoder.hidden_size=32", "teacher.initialize=none"),
        steps=2,
    )  # fmt: skip
    modules = read_sentence_modules(run.folder)
    assert (modules.pooling, modules.dense) == ("first", None)  # The same width: nothing to map.
    assert maskwright.embed(run.folder, TEXTS).shape == (3, 32)


@pytest.mark.parametrize(
    "change", [{"activation_function": "torch.nn.modules.activation.Tanh"}, {"use_residual": True}]
)
def test_dense_modules_of_other_kinds_are_refused(student: RunResult, tmp_path: Path, change: dict[str, Any]) -> None:
    copied = shutil.copytree(student.folder, tmp_path / "copied")
    write_json(copied / "2_Dense" / "config.json", {**read_json(copied / "2_Dense" / "config.json"), **change})
    with pytest.raises(ConversionError, match="a Dense module that is not linear"):
        maskwright.embed(copied, TEXTS)


@pytest.fixture
def without_safetensors(student: RunResult, tmp_path: Path) -> Path:
    """A folder whose Dense module is in a file that older versions of sentence-transformers wrote."""
    copied = shutil.copytree(student.folder, tmp_path / "old")
    (copied / "2_Dense" / "model.safetensors").rename(copied / "2_Dense" / "pytorch_model.bin")
    return copied


def test_a_dense_module_without_safetensors_is_refused_only_where_it_is_needed(without_safetensors: Path) -> None:
    assert maskwright.embed(without_safetensors, TEXTS, pooling="mean").shape == (3, 16)
    with pytest.raises(ConversionError, match=r"a Dense module without model\.safetensors"):
        maskwright.embed(without_safetensors, TEXTS)


def test_a_set_pooling_needs_no_modules_of_the_teacher(without_safetensors: Path) -> None:
    teacher, recipe = read_checkpoint(without_safetensors), resolve("distilbert/tiny", [*NARROW, "teacher.model=x"])
    with pytest.raises(ConversionError, match="a Dense module without"):
        inherit_vectors(recipe, teacher)
    inherited = inherit_vectors(override(recipe, parse_overrides(["objectives.1.pooling=mean"])), teacher)
    assert inherited.objectives[1] == SentenceVectors(pooling="mean", vector_size=16)


def test_a_student_of_sentence_vectors_alone_continues_with_masked_tokens(student: RunResult) -> None:
    continued = recipe_of(open_existing(str(student.folder)))
    assert [each.kind for each in continued.objectives] == ["mlm"]
    assert continued.replacement.hides


def test_a_dense_module_of_another_model_is_refused(student: RunResult, tmp_path: Path) -> None:
    copied = shutil.copytree(student.folder, tmp_path / "copied")
    save_file({"linear.weight": torch.ones(32, 24)}, copied / "2_Dense" / "model.safetensors")
    with pytest.raises(ConversionError, match=r"is for vectors of 24, the model's have 16"):
        maskwright.embed(copied, TEXTS)


def test_narrow_embeddings_are_the_teacher_s_on_their_principal_axes(distill, embedder, tmp_path):
    still = ("training.learning_rate=1e-12", "training.clip_norm=1e-12")
    run = distill(tmp_path / "still", set=(*NARROW, *still), steps=1)
    words = read_checkpoint(run.folder).state["encoder.word_embeddings.weight"]
    wanted = read_checkpoint(embedder).state["encoder.word_embeddings.weight"][: len(words)]
    strengths = torch.linalg.svdvals(wanted)
    # Of all projections to 16 columns this one keeps most.
    assert words.norm() == pytest.approx(strengths[:16].norm().item(), rel=1e-4)
    assert (torch.linalg.svdvals(words) - strengths[:16]).abs().max() < 1e-4 * strengths[0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("objectives.1.vector_size=20",), r"vector_size is 20, but the vectors of .* have 32"),
        (("encoder.hidden_size=48",), r"embeddings are 48 wide.*only 32.*teacher\.initialize=none"),
        (("replacement=mask_random_keep", "objectives=[sentence_vectors]"), r"masks 15 %.*mask nothing"),
    ],
)
def test_what_cannot_be_taught_is_refused(distill, tmp_path, settings, message):
    with pytest.raises(RecipeError, match=message):
        distill(tmp_path / "refused", set=(*NARROW, *settings), steps=1)
