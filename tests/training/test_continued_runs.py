"""Whole runs that go on from a model, learn from one, or learn new words; and what happens when they are resumed."""

import shutil
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from toy_runs import TOY, Train, assert_same_files, killed_after, train_toy, write_corpus

from maskwright.checkpoints.checkpoint import read_checkpoint
from maskwright.core.errors import ConversionError, DataError, RecipeError
from maskwright.core.storage.files import read_json
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.reporting.metrics import read_rows
from maskwright.training.runs import checkpoint
from recording import Recorder

ON = tuple(setting for setting in TOY if "vocab_size" not in setting)
"""The settings of a toy run whose tokenizer comes with a model."""
HALF = (*ON, "encoder.num_layers=1")
STILL = ("training.learning_rate=1e-12", "training.clip_norm=1e-12")
"""Next to nothing is learnt, so that what a run began with can be read from its model."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("continued")


@pytest.fixture(scope="module")
def corpus(shared: Path) -> Path:
    return write_corpus(shared / "corpus.txt")


@pytest.fixture(scope="module")
def train(shared: Path, corpus: Path) -> Train:
    return partial(train_toy, shared, corpus=corpus, steps=8, set=ON)


@pytest.fixture(scope="module")
def teacher(train: Train, shared: Path) -> Path:
    return train(shared / "teacher", steps=40, set=TOY).folder


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return read_checkpoint(folder).state


def test_a_student_with_its_teacher_s_layers_learns_faster_than_a_random_one(train, teacher, tmp_path):
    recorder = Recorder()
    run = train(tmp_path / "run", recipe="distilbert/tiny", steps=40, set=HALF, teacher=teacher, reporter=recorder)
    assert run.finished
    assert read_json(run.folder / "config.json")["architectures"] == ["DistilBertForMaskedLM"]
    assert Tokenizer.from_folder(run.folder).fingerprint == Tokenizer.from_folder(teacher).fingerprint
    random = train(
        tmp_path / "random", recipe="distilbert/tiny", steps=40, set=(*HALF, "teacher.initialize=none"), teacher=teacher
    )
    (first, last), (first_at_random, last_at_random) = (
        [row for row in read_rows(each.folder / "metrics.jsonl") if "soft_targets_loss" in row][::39]
        for each in (run, random)
    )
    assert last_at_random["soft_targets_loss"] < 0.5 * first_at_random["soft_targets_loss"]
    assert last_at_random["cosine_loss"] < 0.7 * first_at_random["cosine_loss"]
    # Where hidden states point is neither right nor wrong.
    assert last_at_random["cosine_mean"] == pytest.approx(1 - last_at_random["cosine_loss"])
    assert run.held_out["cosine"].accuracy is None
    assert run.held_out["cosine"].details["mean"] == pytest.approx(1 - run.held_out["cosine"].loss)
    assert not any("cosine_accuracy" in name for row in read_rows(run.folder / "metrics.jsonl") for name in row)
    assert last_at_random["soft_targets_accuracy"] > first_at_random["soft_targets_accuracy"]
    assert first["soft_targets_loss"] < 0.5 * first_at_random["soft_targets_loss"]
    assert last["cosine_loss"] < first["cosine_loss"] < first_at_random["cosine_loss"]
    record = read_json(run.folder / "run.json")
    assert record["begun_with"]["loaded"] == ["embeddings", "head 'mlm'", "layers 0 of 2"]
    assert record["teacher"]["fingerprint"] == record["begun_with"]["fingerprint"]
    assert recorder.on("weights", "layers 0 of 2")


def test_a_roberta_teaches_a_roberta(train: Train, tmp_path: Path) -> None:
    old = train(tmp_path / "roberta", recipe="roberta/tiny", set=(*ON, "tokenizer.vocab_size=400"), steps=10)
    run = train(tmp_path / "run", recipe="distilroberta/tiny", set=HALF, steps=4, teacher=old.folder)
    assert read_checkpoint(run.folder).family == "roberta"
    family = ("family=roberta", "encoder.position_offset=2", "encoder.type_vocab_size=1")
    with pytest.raises(RecipeError, match=".*".join(f"--set {each}" for each in family)):
        train(tmp_path / "other", recipe="distilbert/tiny", set=HALF, steps=4, teacher=old.folder)
    # At random, a student may be of any family; the tokenizer is the teacher's, whatever its kind.
    free = train(
        tmp_path / "free",
        recipe="distilbert/tiny",
        set=(*HALF, "teacher.initialize=none", *family),
        steps=2,
        teacher=old.folder,
    )
    assert Tokenizer.from_folder(free.folder).kind == "byte_bpe"


def test_a_bert_teaches_with_the_settings_that_the_error_gives(train: Train, teacher: Path, tmp_path: Path) -> None:
    family = ("family=bert", "encoder.position_offset=0", "encoder.type_vocab_size=2")
    options = {"recipe": "distilroberta/tiny", "steps": 2, "teacher": teacher}
    with pytest.raises(RecipeError, match=".*".join(f"--set {each}" for each in family)):
        train(tmp_path / "other", set=HALF, **options)
    student = train(tmp_path / "run", set=(*HALF, *family), **options)
    loaded = read_json(student.folder / "run.json")["begun_with"]["loaded"]
    assert loaded == ["embeddings", "head 'mlm'", "layers 0 of 2", "segments"]


def test_a_resumed_student_needs_the_same_teacher(train: Train, teacher: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(teacher, tmp_path / "teacher")
    options: dict[str, Any] = {"recipe": "distilbert/tiny", "set": HALF, "teacher": copied, "steps": 5}
    peace = train(tmp_path / "peace", **options)
    with killed_after(3):
        train(tmp_path / "killed", **options, checkpoint_minutes=0.0)
    kept = (copied / "model.safetensors").read_bytes()
    other = train(tmp_path / "x", seed=5, set=TOY)
    shutil.copy(other.folder / "model.safetensors", copied)
    with pytest.raises(RecipeError, match=r"the teacher .* has changed since the run"):
        train(tmp_path / "killed", **options)
    (copied / "model.safetensors").write_bytes(kept)
    resumed = train(tmp_path / "killed", **options)
    assert_same_files(peace, resumed)


def test_a_student_with_its_teacher_s_layers_keeps_the_published_rate(train, teacher, tmp_path):
    free = tuple(setting for setting in HALF if "learning_rate" not in setting)
    for initialize, rate in (("layers", 5e-4), ("embeddings", 1e-3), ("none", 1e-3)):
        settings = (*free, f"teacher.initialize={initialize}")
        run = train(tmp_path / initialize, recipe="distilbert/tiny", set=settings, steps=1, teacher=teacher)
        assert read_json(run.folder / "recipe.json")["training"]["learning_rate"] == rate


def test_a_wider_student_learns_relations_and_resumes_exactly(train: Train, teacher: Path, tmp_path: Path) -> None:
    wide = ("encoder.hidden_size=48", "encoder.num_heads=3", "encoder.num_layers=1", "teacher.initialize=none")
    options: dict[str, Any] = {"recipe": "distilbert/tiny", "teacher": teacher, "steps": 20}
    options["set"] = (*ON, *wide, "objectives=[relations, mlm]")
    peace = train(tmp_path / "peace", **options)
    with killed_after(2):
        train(tmp_path / "killed", checkpoint_minutes=0.0, **options)
    assert_same_files(peace, train(tmp_path / "killed", **options))
    losses = [row["relations_loss"] for row in read_rows(peace.folder / "metrics.jsonl") if "relations_loss" in row]
    assert losses[-1] < 0.5 * losses[0]
    assert read_checkpoint(peace.folder).config.hidden_size == 48


@pytest.mark.parametrize("begin", ["init", "teacher"])
def test_a_kill_before_the_first_checkpoint_does_not_lose_the_initial_weights(train, teacher, begin, tmp_path):
    options: dict[str, Any] = {begin: teacher, "steps": 5}
    if begin == "teacher":
        options |= {"recipe": "distilbert/tiny", "set": HALF}
    peace = train(tmp_path / "peace", **options)
    with patch.object(checkpoint, "save", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        train(tmp_path / "killed", checkpoint_minutes=0.0, **options)
    assert (tmp_path / "killed" / "model.safetensors").exists()
    assert_same_files(peace, train(tmp_path / "killed", **options))


def test_a_run_continues_from_a_model_and_resumes_without_it(train, teacher, tmp_path):
    copied = shutil.copytree(teacher, tmp_path / "old")
    options: dict[str, Any] = {"init": copied, "steps": 5}
    peace = train(tmp_path / "peace", **options)
    with killed_after(3):
        train(tmp_path / "killed", **options, checkpoint_minutes=0.0)
    shutil.rmtree(copied)
    resumed = train(tmp_path / "killed", **options)
    assert_same_files(peace, resumed, "tokenizer.json")
    record = read_json(resumed.folder / "run.json")
    assert record["request"]["init"] == record["begun_with"]["model"] == str(copied)
    assert record["begun_with"]["new"] == []
    with pytest.raises(ConversionError, match=r"cannot load a model|no folder"):
        train(tmp_path / "another", **options)


def test_the_rate_of_a_continued_run_is_not_that_of_a_short_run(train: Train, teacher: Path, tmp_path: Path) -> None:
    free = tuple(setting for setting in ON if "learning_rate" not in setting)
    fresh = train(tmp_path / "fresh", set=(*free, "tokenizer.vocab_size=300"), steps=1)
    on = train(tmp_path / "on", set=free, steps=1, init=teacher)
    for run, rate, bias in ((fresh, 1e-3, "frequencies"), (on, 1e-4, "zero")):
        recipe = read_json(run.folder / "recipe.json")
        assert (recipe["training"]["learning_rate"], recipe["objectives"][0]["initial_bias"]) == (rate, bias)


def test_new_words_are_learnt_and_written_down(train: Train, teacher: Path, tmp_path: Path) -> None:
    recorder = Recorder()
    # The corpus at large is simple; these are words that the old vocabulary spells.
    words = tmp_path / "words.txt"
    words.write_text("zebu\ncatamaran\n", encoding="utf-8-sig")
    run = train(tmp_path / "run", init=teacher, extend_vocabulary=words, steps=1, set=(*ON, *STILL), reporter=recorder)
    old, new = Tokenizer.from_folder(teacher), Tokenizer.from_folder(run.folder)
    size = old.special_tokens.vocab_size
    assert new.tokens(range(size, size + 2)) == ["zebu", "catamaran"]
    trained, theirs = weights(run.folder), weights(teacher)
    rows = theirs["encoder.word_embeddings.weight"]
    expected = torch.stack([rows[torch.from_numpy(old.encode(word).ids)].mean(dim=0) for word in ("zebu", "catamaran")])
    torch.testing.assert_close(trained["encoder.word_embeddings.weight"][size:], expected, rtol=0, atol=1e-9)
    assert trained.keys() == theirs.keys()
    for name, tensor in trained.items():  # The run began where the model is.
        torch.testing.assert_close(tensor[: len(theirs[name])], theirs[name], rtol=0, atol=1e-9)
    (message,) = recorder.on("vocabulary")
    assert message.startswith(f"2 entries added to {size:,}: zebu, catamaran; ")


def test_new_words_are_found_in_the_corpus(train: Train, teacher: Path, tmp_path: Path) -> None:
    text = tmp_path / "zoo.txt"
    text.write_text(
        "\n\n".join("The zebu likes the quiet sea. A zebu follows the catamaran. The zebu rests." for _ in range(40))
    )
    run = train(tmp_path / "run", corpus=text, init=teacher, extend_vocabulary="2", steps=1)
    new = Tokenizer.from_folder(run.folder)
    size = Tokenizer.from_folder(teacher).special_tokens.vocab_size
    assert set(new.tokens(range(size, size + 2))) == {"zebu", "catamaran"}
    assert read_json(run.folder / "recipe.json")["tokenizer"]["vocab_size"] == size + 2
    assert read_json(run.folder / "run.json")["request"]["extend_vocabulary"] == 2


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"extend_vocabulary": 5}, RecipeError, "none is given.*--init"),
        ({"extend_vocabulary": 0, "init": "TEACHER"}, RecipeError, "--extend-vocabulary is 0"),
        ({"init": "nowhere/at/all"}, ConversionError, "nowhere"),
        ({"init": "TEACHER", "set": (*ON, "encoder.num_layers=3")}, RecipeError, "num_layers is 3, the model's 2"),
        ({"init": "TEACHER", "recipe": "roberta/tiny", "set": ()}, RecipeError, "family bert"),
        (
            {"recipe": "distilbert/tiny", "set": HALF, "teacher": "TEACHER", "init": "TEACHER"},
            RecipeError,
            r"both say which weights.*teacher\.initialize=none",
        ),
        ({"init": "TEACHER", "extend_vocabulary": "NOWHERE"}, DataError, r"nowhere\.txt"),
        ({"init": "TEACHER", "extend_vocabulary": "OLD WORDS"}, DataError, "are entries already"),
        (
            {
                "recipe": "distilbert/tiny",
                "set": (*HALF, "teacher.initialize=none"),
                "teacher": "TEACHER",
                "init": "TEACHER",
                "extend_vocabulary": 5,
            },
            RecipeError,
            "words that its teacher has no scores for",
        ),
    ],
)
def test_bad_requests_are_refused_before_any_work(train, teacher, tmp_path, changes, kind, message):
    (tmp_path / "old.txt").write_text("cat\ndog\n", encoding="utf-8")
    paths = {"TEACHER": str(teacher), "OLD WORDS": tmp_path / "old.txt", "NOWHERE": tmp_path / "nowhere.txt"}
    options = {name: paths.get(value, value) if isinstance(value, str) else value for name, value in changes.items()}
    recorder = Recorder()
    with pytest.raises(kind, match=message):
        train(tmp_path / "run", **options, reporter=recorder)
    assert not recorder.on("corpus")


def test_a_vocabulary_s_size_cannot_be_set_beside_a_model(train: Train, teacher: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="--init has its own vocabulary"):
        train(tmp_path / "run", init=teacher, set=TOY)
