"""Sentence embeddings: every kind of rows trains, `embed` gives the same vectors, a stop changes nothing."""

import csv
import itertools
import os
import shutil
import signal
import warnings
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
from safetensors.numpy import load_file
from scipy.stats import spearmanr

import maskwright
from damage import HARMS
from maskwright.core.errors import CheckpointError, DataError, MaskwrightError, RecipeError, TrainingError
from maskwright.core.storage.checksums import read_record, write_record
from maskwright.core.storage.files import read_json, write_json
from maskwright.fitting.rules import Choice
from maskwright.kernels import ops
from maskwright.reporting.reporter import Reporter
from recording import Recorder

pytestmark = pytest.mark.skipif(
    not all(map(find_spec, ("sentence_transformers", "datasets"))), reason="needs sentence-transformers and datasets"
)

NOUNS, VERBS = ("cat", "dog", "tree", "mat"), ("sat", "ran", "love", "running")
SUBJECTS = [f"{article} {noun} {verb}" for article, noun, verb in itertools.product(("the", "a"), NOUNS, VERBS)]
"""32 texts."""
FAST = ("epochs=4", "batch_size=8", "learning_rate=0.003")


def _noun(text):
    return text.split()[1]


def _similar(text):
    article, noun, verb = text.split()
    return f"we love {article} {noun} , {verb} !"


def _other(text):
    return _similar(text.replace(_noun(text), NOUNS[NOUNS.index(_noun(text)) - 1]))


ROWS = {
    "scored pairs": [
        {"sentence1": text, "sentence2": f"we love the {noun} !", "score": 5.0 * (noun == _noun(text))}
        for text in SUBJECTS
        for noun in NOUNS[:2]
    ],
    "pairs": [{"anchor": text, "positive": _similar(text)} for text in SUBJECTS],
    "triplets": [{"anchor": text, "positive": _similar(text), "negative": _other(text)} for text in SUBJECTS],
    "texts": [{"text": text} for text in SUBJECTS],
}
MAIN = {
    "scored pairs": "spearman_cosine",
    "pairs": "cosine_ndcg@10",
    "triplets": "cosine_accuracy",
    "texts": "spearman_cosine",
}


def _file(path, rows):
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def _finetune(model, folder, rows, out="out", settings=FAST, **options):
    if "train" not in options:
        options["train"] = _file(folder / "train.csv", ROWS[rows])
    options = {"device": "cpu", "reporter": Reporter(), **options}
    return maskwright.finetune(model, task="embedding", out=folder / out, set=settings, **options)


@pytest.fixture(scope="module", autouse=True)
def _imported():
    """Import the library here, not when tests are collected: it takes seconds, and warns."""
    with warnings.catch_warnings(action="ignore"):
        import sentence_transformers  # noqa: F401


def _without_times(results):
    [row] = results.rows
    return replace(results, rows=(replace(row, seconds=None, examples_per_second=None),))


def _theirs(folder):
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu")


class _Interrupting(Recorder):
    """Sends Ctrl-C when training reports a given step."""

    def __init__(self, step):
        super().__init__()
        self.step = step

    def training(self, share, text):
        if text.startswith(f"step {self.step} "):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
    "rows", [pytest.param(rows, marks=[pytest.mark.slow] * (rows in ("triplets", "texts"))) for rows in ROWS]
)
def test_every_kind_of_rows_trains_and_embed_gives_the_same_vectors(rows, bert_folder, tmp_path):
    dev = ROWS["scored pairs" if rows == "texts" else rows]  # training texts too: do the scores follow the loss?
    reporter = Recorder()
    done = _finetune(bert_folder, tmp_path, rows, dev=_file(tmp_path / "dev.csv", dev), reporter=reporter)
    results = done.results
    assert done.finished
    assert results.notes[0].startswith(f"Trained on {rows} with ")
    assert [part["examples"] for part in results.data.values()] == [len(ROWS[rows]), len(dev)]
    losses = [float(text.split()[-1]) for text in reporter.progress]
    assert losses[-1] < losses[0]
    before, after = results.baselines["before training"]["dev"][MAIN[rows]], results.best.dev[MAIN[rows]]
    assert after > before
    assert ("dev", f"epoch {results.best.best_epoch:g}: {MAIN[rows]} {after:.4f}") in reporter.messages
    assert read_json(done.folder / "results.json")["dev"][MAIN[rows]]["best"] == after
    assert {"command", "sentence-transformers"} <= read_json(done.folder / "run.json")["environment"].keys()
    best = results.best
    assert best.examples == 4 * len(ROWS[rows])
    assert best.examples_per_second == pytest.approx(best.examples / best.seconds, rel=0.01)
    card = (done.folder / "README.md").read_text()
    assert f"{after:.4f}" in card
    assert str(bert_folder) not in card
    assert not (done.folder / "checkpoints").exists()
    assert (done.folder / "model.safetensors").stat().st_mode == (done.folder / "run.json").stat().st_mode
    texts = [*SUBJECTS[:3], "[SEP] we love dogs", "cats ran to the tree and " * 20]
    theirs = _theirs(done.folder).encode(texts, show_progress_bar=False)
    with pytest.warns(UserWarning, match="1 of 5 texts have more than"):
        ours = maskwright.embed(done.folder, texts, device="cpu")
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    with pytest.warns(UserWarning, match="1 of 5 texts have more than"):
        assert np.abs(ours - maskwright.embed(bert_folder, texts, device="cpu")).max() > 0.01


@pytest.mark.parametrize(
    ("rows", "batch_size", "steps", "step"),
    [pytest.param("scored pairs", 8, 16, 10, marks=pytest.mark.slow), ("pairs", 16, 4, 1)],
    ids=["within_an_epoch", "at_the_end_of_an_epoch"],
)
def test_a_stopped_training_resumes_to_the_same_weights(rows, batch_size, steps, step, bert_folder, tmp_path):
    settings = ("epochs=2", f"batch_size={batch_size}", "learning_rate=0.003")
    whole = _finetune(bert_folder, tmp_path, rows, out="whole", settings=settings)
    assert whole.results.best.steps == steps
    reporter = _Interrupting(step)  # The step after this one is the last.
    stopped = _finetune(bert_folder, tmp_path, rows, out="parts", settings=settings, reporter=reporter)
    assert (stopped.finished, stopped.stopped_by, stopped.results) == (False, "SIGINT", None)
    saved = max((tmp_path / "parts" / "checkpoints").glob("*/trainer_state.json"), key=os.path.getmtime)
    seconds = read_json(saved)["stateful_callbacks"]["maskwright_seconds"]
    resumed = _finetune(bert_folder, tmp_path, rows, out="parts", settings=settings)
    assert _without_times(resumed.results).to_json() == _without_times(whole.results).to_json()
    assert resumed.results.best.seconds > seconds > 0
    weights, others = (load_file(folder / "model.safetensors") for folder in (whole.folder, resumed.folder))
    assert weights.keys() == others.keys()
    for name, values in weights.items():
        np.testing.assert_array_equal(values, others[name], err_msg=name)
    again = _finetune(bert_folder, tmp_path, rows, out="parts", settings=settings, reporter=(recorder := Recorder()))
    assert again.results == resumed.results
    assert "is already trained" in recorder.text()
    with pytest.raises(CheckpointError, match="holds another run"):
        _finetune(bert_folder, tmp_path, rows, out="parts", settings=("epochs=5", *settings[1:]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"settings": ("learning_rat=1",)}, "unknown field 'learning_rat'.*Did you mean 'learning_rate'"),
        ({"settings": ("patience=3",)}, "unknown field 'patience'"),
        ({"settings": ("seed=3",)}, "Did you mean '--seed'"),
        ({"settings": ("task.doc_stride=3",)}, "unknown field 'task'"),
        ({"from_scratch": True}, "--from-scratch has no effect"),
        ({"seeds": 2}, "--seeds has no effect"),
        ({"system": "bert"}, "--system has no effect"),
        ({"text": "anchr", "text2": "positive"}, "no column 'anchr'.*Did you mean 'anchor'"),
        ({"text": "anchor", "label": "positive"}, "--label names a similarity, which pairs of texts have"),
        ({"text": "anchor", "text2": "positive", "label": "positive"}, "is named as the text and as the label"),
        ({"text": "anchor", "read": ["negative=positive"]}, "a column of negatives is named"),
        ({"train": None}, "no data was given"),
        ({"train": None, "data": "nowhere"}, "nowhere for STS-B does not exist"),
    ],
)
def test_wrong_arguments_are_refused(options, message, bert_folder, tmp_path):
    with pytest.raises(MaskwrightError, match=message):
        _finetune(bert_folder, tmp_path, "pairs", **options)
    assert not (tmp_path / "out").exists()


def test_pairs_with_classes_need_a_choice(bert_folder, tmp_path):
    rows = [{**row, "label": label} for row in ROWS["pairs"] for label in ("entailment", "contradiction")]
    with pytest.raises(MaskwrightError, match=r"'label' holds no numbers.*only=\[\[label, VALUE\]\]"):
        _finetune(bert_folder, tmp_path, "pairs", train=_file(tmp_path / "nli.csv", rows))
    read = {"read": ["only=[[label, entailment]]"]}
    done = _finetune(bert_folder, tmp_path, "pairs", train=tmp_path / "nli.csv", settings=("epochs=0.5",), **read)
    assert sum(part["examples"] for part in done.results.data.values()) == len(ROWS["pairs"])


def test_development_texts_must_be_measurable(bert_folder, tmp_path):
    unscored = [{name: row[name] for name in ("sentence1", "sentence2")} for row in ROWS["scored pairs"]]
    with pytest.raises(MaskwrightError, match="has no similarities, as the training pairs have"):
        _finetune(bert_folder, tmp_path, "scored pairs", dev=_file(tmp_path / "dev.csv", unscored))
    # Scored pairs are read as the training file was.
    with pytest.raises(MaskwrightError, match="no column 'sentence1'"):
        _finetune(bert_folder, tmp_path, "scored pairs", dev=_file(tmp_path / "dev.csv", ROWS["pairs"]))
    with pytest.raises(MaskwrightError, match="has one text per row"):
        _finetune(bert_folder, tmp_path, "texts", dev=tmp_path / "train.csv")


@pytest.mark.parametrize(
    ("rows", "train", "message"),
    [
        ("scored pairs", [{**row, "score": 3} for row in ROWS["scored pairs"]], "train.csv: .* 64 pairs is always 3"),
        ("scored pairs", ROWS["scored pairs"][:1], "train.csv: .* 1 pair is always 5"),
        ("pairs", ROWS["pairs"][:1], "train.csv has 1 row of the same texts"),
        ("triplets", ROWS["triplets"][:1] * 3, "train.csv has 3 rows of the same texts"),
        ("texts", ROWS["texts"][:1], "train.csv has 1 row of the same texts"),
    ],
)
def test_training_rows_must_differ(rows, train, message, bert_folder, tmp_path):
    dev = _file(tmp_path / "dev.csv", ROWS["scored pairs" if rows == "texts" else rows])
    with pytest.raises(DataError, match=f"{message}.*at least two different"):
        _finetune(bert_folder, tmp_path, rows, train=_file(tmp_path / "train.csv", train), dev=dev)
    assert not (tmp_path / "out").exists()


def test_a_similarity_that_is_no_number_is_named_with_its_row(bert_folder, tmp_path):
    train = [{**row, "score": "high" if number == 2 else 3} for number, row in enumerate(ROWS["scored pairs"])]
    with pytest.raises(DataError, match=r"train.csv, line 4: 'high' is not a number"):
        _finetune(bert_folder, tmp_path, "scored pairs", train=_file(tmp_path / "train.csv", train))


def test_named_columns_are_those_of_dev_if_training_texts_have_none(bert_folder, tmp_path):
    (tmp_path / "train.txt").write_text("\n".join(SUBJECTS) + "\n")
    dev = [{"one": row["sentence1"], "other": row["sentence2"], "near": row["score"]} for row in ROWS["scored pairs"]]
    names = {"text": "one", "text2": "other", "label": "near"}
    train, settings = tmp_path / "train.txt", ("epochs=0.5",)
    dev = _file(tmp_path / "dev.csv", dev)
    done = _finetune(bert_folder, tmp_path, "texts", train=train, dev=dev, settings=settings, **names)
    assert done.results.main_metric == "spearman_cosine"
    assert {name: part["examples"] for name, part in done.results.data.items()} == {"train": 32, "dev": 64}


def test_a_finished_model_is_evaluated_as_its_test_file_would_have_been(bert_folder, tmp_path):
    rows = [{"one": row["sentence1"], "other": row["sentence2"], "near": row["score"]} for row in ROWS["scored pairs"]]
    files = {"train": _file(tmp_path / "train.csv", rows), "test": _file(tmp_path / "test.csv", rows[:20])}
    names = {"text": "one", "text2": "other", "label": "near"}
    done = _finetune(bert_folder, tmp_path, "scored pairs", settings=("epochs=0.5",), **files, **names)
    evaluation = maskwright.evaluate(done.folder, file=files["test"], device="cpu", reporter=Reporter())
    assert (evaluation.task, evaluation.examples) == ("embedding", 20)
    assert evaluation.metrics == pytest.approx(done.results.best.test, abs=1e-6)
    if ops.int8_problem() is None:
        rounded = maskwright.evaluate(
            done.folder, file=files["test"], device="cpu", precision="int8", reporter=Reporter()
        )
        vectors = [
            maskwright.load(done.folder, device="cpu", precision="int8").embed([row[name] for row in rows[:20]])
            for name in ("one", "other")
        ]
        cosines = (vectors[0] * vectors[1]).sum(1) / np.prod([np.linalg.norm(each, axis=1) for each in vectors], 0)
        spearman = spearmanr(cosines, [row["near"] for row in rows[:20]]).statistic
        assert rounded.precision == "int8"
        assert rounded.metrics["spearman_cosine"] == pytest.approx(spearman, abs=1e-3)
    with pytest.raises(DataError, match="is always 5"):
        maskwright.evaluate(done.folder, file=_file(tmp_path / "same.csv", rows[:1]), device="cpu", reporter=Reporter())
    with pytest.raises(MaskwrightError, match="--out has no effect"):
        maskwright.evaluate(done.folder, file=files["test"], out=tmp_path / "out.jsonl")


@pytest.mark.parametrize("options", [{"windows": True}, {"max_length": 8}])
def test_long_texts_are_evaluated_as_embed_reads_them(options, bert_folder, tmp_path):
    maskwright.export(bert_folder, to="sentence-transformers", out=(model := tmp_path / "model"))
    rows = [{**row, "sentence1": f"{row['sentence1']} {'we love dogs ' * 20}"} for row in ROWS["scored pairs"]]
    evaluation = maskwright.evaluate(model, file=rows, device="cpu", reporter=Reporter(), **options)
    with warnings.catch_warnings(action="ignore"):
        one, other = (
            maskwright.embed(model, [row[name] for row in rows], device="cpu", **options)
            for name in ("sentence1", "sentence2")
        )
    cosines = (one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
    expected = spearmanr(cosines, [row["score"] for row in rows]).statistic
    assert evaluation.metrics["spearman_cosine"] == pytest.approx(expected, abs=1e-3)
    assert evaluation.truncated == (0 if "windows" in options else len(rows))


def test_training_keeps_the_modules_of_a_folder(bert_folder, tmp_path):
    maskwright.export(bert_folder, to="sentence-transformers", out=tmp_path / "start", pooling="first", normalize=True)
    write_json(tmp_path / "start" / "config_sentence_transformers.json", {"truncate_dim": 20})
    dev = _file(tmp_path / "dev.csv", ROWS["pairs"])
    done = _finetune(tmp_path / "start", tmp_path, "pairs", dev=dev, settings=("epochs=0.5",))
    assert "first pooling" in done.results.notes[0]
    theirs = _theirs(done.folder)
    assert (theirs[1].pooling_mode, len(theirs), theirs.truncate_dim) == ("cls", 3, 20)
    ours = maskwright.embed(done.folder, SUBJECTS, device="cpu")
    np.testing.assert_allclose(ours, theirs.encode(SUBJECTS, show_progress_bar=False), atol=1e-5)
    found = maskwright.evaluate(done.folder, file=dev, device="cpu", reporter=Reporter())
    assert found.metrics == pytest.approx(done.results.best.dev, abs=1e-6)


def test_the_untouched_model_is_kept_if_dev_falls(bert_folder, tmp_path):
    maskwright.export(bert_folder, to="sentence-transformers", out=tmp_path / "start", normalize=True)
    expected = maskwright.embed(tmp_path / "start", SUBJECTS, device="cpu")
    # The similarities of the untouched model itself, so that it cannot be improved.
    dev = [
        {"sentence1": one, "sentence2": other, "score": float(first @ second)}
        for (one, first), (other, second) in itertools.pairwise(zip(SUBJECTS, expected, strict=True))
    ]
    dev = _file(tmp_path / "dev.csv", dev)
    settings = ("epochs=1", "learning_rate=0.003")
    done = _finetune(tmp_path / "start", tmp_path, "scored pairs", dev=dev, test=dev, settings=settings)
    results, before = done.results, done.results.baselines["before training"]
    assert before["dev"]["spearman_cosine"] > 0.99
    assert (results.best.best_epoch, results.best.dev, results.best.test) == (0, before["dev"], before["test"])
    assert any("saved as it was" in note for note in results.notes)
    assert not results.advice
    np.testing.assert_allclose(maskwright.embed(done.folder, SUBJECTS, device="cpu"), expected, atol=1e-6)


def test_the_untouched_model_is_kept_if_dev_becomes_nan(bert_folder, tmp_path, monkeypatch):
    """The correlation of a model whose vectors are all equal is not a number."""
    from maskwright.finetuning.embedding import trainer

    scores, calls = trainer._scores, itertools.count()
    nan = dict.fromkeys(trainer.METRICS["scored pairs"], float("nan"))
    monkeypatch.setattr(trainer, "_scores", lambda *args: nan if next(calls) else scores(*args))
    done = _finetune(bert_folder, tmp_path, "scored pairs", settings=("epochs=0.5",))
    assert done.results.best.best_epoch == 0
    assert done.results.best.dev == done.results.baselines["before training"]["dev"]


def test_a_length_above_that_of_the_model_is_lowered_and_reported(bert_folder, tmp_path, monkeypatch):
    monkeypatch.setattr("maskwright.finetuning.embedding.trainer.train", lambda *_: None)
    for out, options in (("fitted", {}), ("published", {"as_published": True})):
        done = _finetune(bert_folder, tmp_path, "pairs", out=out, settings=("max_length=4000",), **options)
        fitted = read_json(done.folder / "run.json")["fitted"]
        assert [(each["published"], each["chosen"]) for each in fitted if each["field"] == "max_length"] == [(4000, 40)]


def test_fitted_fields_that_embeddings_lack_are_ignored(bert_folder, tmp_path, monkeypatch):
    choices = (Choice("hidden_dropout", 0.1, 0.0, "a rule of other tasks"), Choice("epochs", 1.0, 0.5, "little data"))
    monkeypatch.setattr("maskwright.finetuning.embedding.training.fit_training", lambda *_, **__: (None, choices))
    done = _finetune(bert_folder, tmp_path, "pairs", settings=())
    assert done.results.settings["epochs"] == 0.5
    assert [each["field"] for each in read_json(done.folder / "run.json")["fitted"]] == ["epochs"]


def test_a_model_of_embeddings_has_a_lower_rate(bert_folder, tmp_path):
    maskwright.export(bert_folder, to="sentence-transformers", out=tmp_path / "start")
    for model, out, rate in ((tmp_path / "start", "low", 2e-5), (bert_folder, "high", 1.2e-3)):
        done = _finetune(model, tmp_path, "pairs", out=out, settings=("epochs=0.5",))
        assert done.results.settings["learning_rate"] == rate
        assert done.results.settings["batch_size"] == 128


def test_sts_b_is_read_from_its_folder(bert_folder, tmp_path):
    for name, rows in (("train", 24), ("dev", 8), ("test", 8)):
        columns = [key for key in ROWS["scored pairs"][0] if name != "test" or key != "score"]
        lines = ["\t".join(columns)] + [
            "\t".join(str(row[key]) for key in columns) for row in ROWS["scored pairs"][:rows]
        ]
        (tmp_path / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    done = _finetune(bert_folder, tmp_path, "scored pairs", train=None, data=tmp_path, settings=("epochs=0.5",))
    assert {name: part["examples"] for name, part in done.results.data.items()} == {"train": 24, "dev": 8}
    assert any("has no similarities" in note for note in done.results.notes)


def test_weights_that_are_not_finite_are_not_saved(bert_folder, tmp_path):
    # Few steps: only the loss of the first, before any update, is logged.
    with pytest.raises(TrainingError, match="not finite"):
        _finetune(bert_folder, tmp_path, "scored pairs", settings=("epochs=1", "batch_size=8", "learning_rate=1e30"))
    assert not (tmp_path / "out" / "model.safetensors").exists()


@pytest.mark.parametrize("harm", ["flip", pytest.param("delete", marks=pytest.mark.slow)])
def test_a_damaged_model_is_trained_again(harm, bert_folder, tmp_path):
    settings = ("epochs=0.5",)
    done = _finetune(bert_folder, tmp_path, "pairs", settings=settings)
    written = (weights := done.folder / "model.safetensors").read_bytes()
    (done.folder / "README.md").write_text("annotated")
    HARMS[harm](weights)
    again = _finetune(bert_folder, tmp_path, "pairs", settings=settings, reporter=(recorder := Recorder()))
    assert _without_times(again.results) == _without_times(done.results)
    assert weights.read_bytes() == written
    assert "model.safetensors " in recorder.text()
    _finetune(bert_folder, tmp_path, "pairs", settings=settings, reporter=(recorder := Recorder()))
    assert "is already trained" in recorder.text()


def test_files_of_trackers_and_settings_of_later_versions_train_nothing_again(bert_folder, tmp_path):
    class Tracked(Recorder):
        def training(self, share, text):
            (tmp_path / "out" / "wandb").mkdir(exist_ok=True)
            (tmp_path / "out" / "wandb" / "log").touch()

    _finetune(bert_folder, tmp_path, "pairs", settings=("epochs=0.5",), reporter=Tracked())
    shutil.rmtree(tmp_path / "out" / "wandb")
    record = read_record(tmp_path / "out" / "run.json")
    del record["request"]["settings"]["dimensions"]
    write_record(tmp_path / "out" / "run.json", record)
    _finetune(bert_folder, tmp_path, "pairs", settings=("epochs=0.5",), reporter=(recorder := Recorder()))
    assert "is already trained" in recorder.text()


def test_truncated_texts_are_counted_before_training(bert_folder, tmp_path, monkeypatch):
    monkeypatch.setattr("maskwright.finetuning.embedding.trainer.train", lambda *_: None)
    train = [{name: f"{text} and we love the dog and the tree" for name, text in row.items()} for row in ROWS["pairs"]]
    _finetune(bert_folder, tmp_path, "", settings=("max_length=8",), train=train, reporter=(recorder := Recorder()))
    (message,) = recorder.on("truncated")
    assert "train examples have more than 8 tokens" in message
    assert "`--set max_length=40`" in message


@pytest.mark.parametrize("rows", ["scored pairs", "pairs", "triplets"])
def test_truncated_vectors_are_trained_scored_and_listed_in_the_config(rows, bert_folder, tmp_path):
    dev = _file(tmp_path / "dev.csv", ROWS[rows])
    done = _finetune(bert_folder, tmp_path, rows, dev=dev, dimensions=(16, 8))
    assert done.results.best.best_epoch > 0
    assert read_json(done.folder / "config.json")["matryoshka_dimensions"] == [16, 8]
    assert done.results.sizes.keys() == {"16", "8"}
    assert [row[0] for row in done.results.table().rows] == [
        "seed 0",
        "16 dimensions",
        "8 dimensions",
        "baseline: before training",
        *["baseline: TF-IDF cosine"] * (rows == "scored pairs"),
    ]
    metric = MAIN[rows]
    if rows == "triplets":
        columns = ([row[name] for row in ROWS[rows]] for name in ("anchor", "positive", "negative"))
        vectors = [_theirs(done.folder).encode(column)[:, :8] for column in columns]
        anchor, positive, negative = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in vectors)
        expected = ((anchor * positive).sum(1) > (anchor * negative).sum(1)).mean()
        assert done.results.sizes["8"]["dev"][metric] == expected
    if rows == "pairs":
        plain = _finetune(bert_folder, tmp_path, rows, "plain", dev=dev)
        assert "matryoshka_dimensions" not in read_json(plain.folder / "config.json")
        weights = [load_file(folder / "model.safetensors") for folder in (done.folder, plain.folder)]
        assert any((weights[0][name] != weights[1][name]).any() for name in weights[0])


def test_repeated_sizes_and_sizes_beyond_that_of_the_vectors_are_refused(bert_folder, tmp_path):
    with pytest.raises(RecipeError, match="--dimensions has 32"):
        _finetune(bert_folder, tmp_path, "pairs", dimensions=(32, 8))
    with pytest.raises(RecipeError, match=r"has 8 more than once: 16, 8, 8\..*`--dimensions 16,8`"):
        _finetune(bert_folder, tmp_path, "pairs", dimensions=(16, 8, 8))
    with pytest.raises(RecipeError, match="no effect"):
        maskwright.finetune(
            bert_folder, task="regression", train=[{"text": "a", "label": 1}], out=tmp_path, dimensions=(8,)
        )
