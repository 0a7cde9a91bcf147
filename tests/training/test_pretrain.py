import json
import signal
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from toy_runs import TOY, Train, assert_same_files, killed_after, train_toy, write_corpus

from maskwright.core.errors import CheckpointError, DataError, DeviceError, RecipeError
from maskwright.core.storage import tensor_files
from maskwright.core.storage.files import read_json
from maskwright.core.text.amounts import short_count
from maskwright.fitting import resolve
from maskwright.fitting.resolve import Speed
from maskwright.reporting import trackers
from maskwright.reporting.metrics import read_rows
from maskwright.training.start import preparation
from maskwright.training.steps import loop
from recording import Recorder


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus.txt")


@pytest.fixture
def train(tmp_path: Path) -> Train:
    return partial(train_toy, tmp_path)


def test_a_run_learns_and_writes_all_its_files(train: Train, corpus: Path) -> None:
    write_corpus(corpus, documents=300)
    run = train(steps=100)
    assert run.finished
    assert run.steps == 100
    assert run.held_out["mlm"].loss < 0.8 * run.baseline.loss
    assert run.held_out["mlm"].accuracy > 2 * run.baseline.accuracy
    assert {item.name for item in run.folder.iterdir()} >= {
        "run.json", "recipe.json", "data_card.json", "data_card.md", "metrics.jsonl", "timing.jsonl", "tensorboard",
        "checkpoints", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    rows = read_rows(run.folder / "metrics.jsonl")
    assert sum("loss" in row for row in rows) == 100
    assert sum("held_out_mlm_loss" in row for row in rows) == 20
    assert rows[-1]["unigram_loss"] == pytest.approx(run.baseline.loss)


def test_the_result_does_not_depend_on_micro_batches(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    from maskwright.training.ranks.device import Machine

    dropped = (*TOY, "encoder.hidden_dropout=0", "encoder.attention_dropout=0")
    whole = train("whole", set=dropped, steps=4)
    monkeypatch.setattr(Machine, "tokens_per_microbatch", lambda *_: 32)
    parts = train("parts", set=dropped, steps=4)
    first, second = (load_file(run.folder / "model.safetensors") for run in (whole, parts))
    for name, value in first.items():
        torch.testing.assert_close(second[name], value, rtol=1e-3, atol=2e-5)


def test_a_signal_saves_and_the_same_call_resumes(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    from maskwright.training.runs import metrics

    step = metrics.MetricsLogger.step

    def step_then_signal(self: metrics.MetricsLogger, report: Any) -> None:
        step(self, report)
        if report.position.spent.steps == 5:
            signal.raise_signal(signal.SIGTERM)

    tracker = Mock(id="", where="")
    monkeypatch.setattr(trackers, "_TRACKERS", {"json": lambda run: tracker})  # A tracker's library is checked too.
    with monkeypatch.context() as patch:
        patch.setattr(metrics.MetricsLogger, "step", step_then_signal)
        stopped = train(report_to="json")
    assert (stopped.finished, stopped.steps, stopped.stopped_by) == (False, 5, "SIGTERM")
    with monkeypatch.context() as patch:
        patch.setattr(metrics.MetricsLogger, "step", Mock(side_effect=RuntimeError))
        with pytest.raises(RuntimeError):
            train(report_to="json")
    resumed = train(report_to="json")
    assert (resumed.finished, resumed.steps, resumed.stopped_by) == (True, 12, None)
    assert tracker.close.mock_calls == [call("KILLED"), call("FAILED"), call("FINISHED")]


class Clock:
    """A clock on which every step takes a second, and the first ones more."""

    def __init__(self, first: float) -> None:
        self.now, self.first = 0.0, first

    def perf_counter(self) -> float:
        self.now += 0.5 + (self.first if self.now < 20 else 0.0)
        return self.now

    def monotonic(self) -> float:
        return self.now


def test_embeddings_begin_as_token_vectors_which_are_learned_once(
    train: Train,
) -> None:
    """Words of one kind, which have the same neighbors, are then nearer each other than random ones are."""
    first, again = Recorder(), Recorder()
    settings = (*TOY, "training.learning_rate=1e-9")
    with killed_after(12):
        train(set=settings, reporter=first)
    run = train(set=settings, reporter=again)
    assert any("learning token vectors" in each for each in first.progress)
    assert not any("learning token vectors" in each for each in again.progress)
    plain = train(out="plain", set=(*settings, "encoder.initial_embeddings=random"))
    vocabulary = read_json(run.folder / "tokenizer.json")["model"]["vocab"]
    words = [vocabulary[word] for word in ("watches", "follows", "remembers", "paints", "likes", "crosses")]
    near = []
    for folder in (run.folder, plain.folder):
        table = load_file(folder / "model.safetensors")["bert.embeddings.word_embeddings.weight"]
        rows = torch.nn.functional.normalize(table[words])
        near.append(float((rows @ rows.T).fill_diagonal_(0).sum() / 30))
    assert near[0] > 0.5 > 0.2 > near[1]


@pytest.mark.parametrize(
    ("speed", "first", "is_replanned"),
    [(1e6, 0.0, True), pytest.param(1e6, 4.0, True, marks=pytest.mark.slow), (95.0, 0.0, False)],
    ids=["too fast", "slow first steps", "right"],
)
def test_a_time_budget_is_replanned_once_from_the_measured_speed(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, speed: float, first: float, is_replanned: bool
) -> None:
    monkeypatch.setattr(loop, "time", Clock(first))
    monkeypatch.setattr(preparation, "measure_speed", lambda *_, **__: Speed(1.0))
    monkeypatch.setattr(resolve, "expected_tokens", lambda *_: speed * 60)
    if is_replanned:  # The corrected plan survives a kill.
        with killed_after(20):
            train("killed", steps=None, minutes=1, checkpoint_minutes=0.0)
        assert read_json(tmp_path / "killed" / "run.json")["replanned_tokens"] < 1e6
        monkeypatch.setattr(loop, "time", Clock(first))
    recorder = Recorder()
    run = train(steps=None, minutes=1, reporter=recorder)
    record = read_json(run.folder / "run.json")
    assert record["expected_tokens"] == speed * 60
    assert ("replanned_tokens" in record) == is_replanned
    if is_replanned:
        assert record["replanned_tokens"] == pytest.approx(run.tokens, rel=0.5)
        assert recorder.on("plan")[1].startswith("planned 60M tokens; at the measured speed ")
    assert len(recorder.on("plan")) == 1 + is_replanned
    (line,) = recorder.on("finished")
    assert f"in 1 minute: trained on {short_count(run.tokens)} tokens, planned {short_count(speed * 60)}" in line
    (line,) = recorder.on("length")
    assert "reads 32 tokens" in line
    assert "--set 'training.phases=[{max_length: 128}]'" in line  # The encoder has more positions.


@pytest.mark.parametrize("budget", [{"steps": 60}, {"steps": None, "tokens": 8_000}])
def test_the_planned_tokens_are_those_that_are_trained(train: Train, budget: dict[str, Any]) -> None:
    run = train(**budget)  # Half of the steps are at length 16, half at 32.
    record = read_json(run.folder / "run.json")
    assert run.tokens == pytest.approx(record["expected_tokens"], rel=0.05)
    recipe = read_json(run.folder / "recipe.json")
    assert recipe["training"]["steps"] == pytest.approx(run.steps, rel=0.05)


def test_a_finished_run_is_reported_and_not_repeated_also_in_another_folder(train: Train, tmp_path: Path) -> None:
    recorder = Recorder()
    run = train(reporter=recorder)
    mlm, nsp = recorder.on("health")
    assert f"accuracy {run.held_out['mlm'].accuracy:.1%}" in mlm
    assert f"held-out NSP loss {run.held_out['nsp'].loss:.3f}, accuracy {run.held_out['nsp'].accuracy:.1%}" in nsp
    before = (run.folder / "run.json").stat().st_mtime_ns
    assert train() == run
    assert (run.folder / "run.json").stat().st_mtime_ns == before
    with pytest.raises(CheckpointError, match="is finished") as caught:
        train(steps=24)
    assert f"--init {run.folder}" in str(caught.value)
    assert "holds another run" not in str(caught.value)
    with pytest.raises(CheckpointError, match="holds another run: seed was 0, now 1"):
        train(seed=1)
    run.folder.rename(tmp_path / "elsewhere")
    assert train("elsewhere").folder == tmp_path / "elsewhere"


def test_a_roberta_with_another_tokenizer_counts_positions_from_its_padding(train: Train) -> None:
    run = train(recipe="roberta/tiny", set=(*TOY, "tokenizer.kind=wordpiece"), steps=2)
    assert read_json(run.folder / "recipe.json")["encoder"]["position_offset"] == 1
    config = read_json(run.folder / "config.json")
    assert (config["model_type"], config["pad_token_id"]) == ("roberta", 0)
    assert config["max_position_embeddings"] == 513


def test_a_changed_corpus_is_noticed_on_resuming(train: Train, corpus: Path) -> None:
    with killed_after(1):
        train(checkpoint_minutes=0.0)
    write_corpus(corpus, seed=1)
    with pytest.raises(RecipeError, match="corpus has changed"):
        train()


def test_a_mistake_and_a_kill_while_the_run_is_begun_leave_what_the_command_accepts(train, monkeypatch, tmp_path):
    with pytest.raises(DataError, match="nowhere"):
        train(tokenizer="nowhere")

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("maskwright.training.pretrain.write_text", killed)  # after recipe.json
        with pytest.raises(KeyboardInterrupt):
            train()
    assert (tmp_path / "run" / "recipe.json").exists()
    assert train().finished


def test_a_full_disk_is_one_clear_error_and_loses_nothing(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    left, save_file = [0], tensor_files.save_file

    def fills_up(tensors: Any, path: Path, metadata: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            # As safetensors says it.
            raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
        save_file(tensors, path, metadata=metadata)

    for writes in (0, 1, 6, 8):  # The model's file, a checkpoint's two, in turn.
        left[0] = writes
        with monkeypatch.context() as patch:
            patch.setattr(tensor_files, "save_file", fills_up)
            with pytest.raises(DeviceError, match=r"the disk is full.*run the same command again"):
                train(checkpoint_minutes=0.0)
    again = train()
    assert again.finished
    assert not list(again.folder.rglob(".*.tmp"))


def test_a_run_without_a_pair_objective_resumes_although_its_pooler_never_learns(train: Train) -> None:
    overrides = (*TOY, "objectives=[mlm]", "format.second=next")
    peace = train("peace", set=overrides)
    with killed_after(1):
        train("killed", set=overrides, checkpoint_minutes=0.0)
    resumed = train("killed", set=overrides)
    assert_same_files(peace, resumed)


def test_a_setting_equal_to_the_published_one_is_still_a_setting(train: Train) -> None:
    overrides = tuple(override for override in TOY if "learning_rate" not in override)
    fitted = train("fitted", set=overrides, steps=2)
    explicit = train("given", set=(*overrides, "training={learning_rate: 1e-4}"), steps=2)
    chosen = [json.loads((run.folder / "recipe.json").read_text())["training"] for run in (fitted, explicit)]
    assert chosen[0]["learning_rate"] != chosen[1]["learning_rate"] == 1e-4
    assert chosen[0]["warmup_steps"] == chosen[1]["warmup_steps"]  # A mapping fixes what it names, no more.
    with pytest.raises(CheckpointError, match="holds another run: set was"):
        train("fitted", set=(*overrides, "training.learning_rate=1e-4"), steps=2)


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"recipe": "bert/tny"}, RecipeError, r"has no size 'tny'.*Did you mean 'bert/tiny'"),
        ({"steps": None, "minutes": 0}, RecipeError, "has no training step"),
        ({"steps": None}, RecipeError, "no budget was given"),
        ({"clean": ("dedupliate=none",)}, RecipeError, "Did you mean 'deduplicate'"),
    ],
)
def test_errors_of_bad_requests_name_the_argument(train, changes, kind, message):
    with pytest.raises(kind, match=message):
        train(**changes)


def test_a_tokenizer_that_does_not_suit_the_text_is_warned_of(tmp_path: Path) -> None:
    english = train_toy(tmp_path, steps=1)
    (tmp_path / "hindi.txt").write_text(
        "\n\n".join(f"यह एक परीक्षण वाक्य है और दिल्ली भारत की राजधानी है {n}." for n in range(60)), encoding="utf-8"
    )
    trained, given = Recorder(), Recorder()
    settings = {"corpus": tmp_path / "hindi.txt", "steps": 1}
    train_toy(tmp_path, "trained", reporter=trained, **settings)
    assert trained.on("tokens", "combining marks kept")
    encode = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(tmp_path / "trained")
    assert 1 in encode("यह एक", "वाक्य है")["token_type_ids"]
    assert not trained.on("warning", "the tokenizer")
    train_toy(tmp_path, "given", tokenizer=english.folder, set=[*TOY[:4], *TOY[5:]], reporter=given, **settings)
    assert given.on("warning", "unknown to the tokenizer")
    assert given.on("warning", "drops combining marks")
