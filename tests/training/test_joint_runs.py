"""Runs with a generator: both models are saved, reported and resumed."""

from functools import partial

import pytest
import torch
from safetensors.torch import load_file
from toy_runs import TOY, Train, train_toy

import maskwright
from maskwright.checkpoints.checkpoint import read_checkpoint
from maskwright.core.errors import ConversionError
from maskwright.reporting.metrics import read_rows
from maskwright.training.pretrain import RunResult
from recording import Recorder


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Train:
    folder = tmp_path_factory.mktemp("electra")
    return partial(train_toy, folder, recipe="electra/tiny", set=(*TOY, "training.batch_sequences=24"))


@pytest.fixture(scope="module")
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture(scope="module")
def run(train: Train, recorder: Recorder) -> RunResult:
    return train("peace", checkpoint_minutes=0.0, reporter=recorder)


def test_both_halves_are_folders_that_transformers_loads(run: RunResult) -> None:
    from transformers import AutoModelForMaskedLM, AutoModelForPreTraining, AutoTokenizer

    discriminator = AutoModelForPreTraining.from_pretrained(run.folder)
    generator = AutoModelForMaskedLM.from_pretrained(run.folder / "generator")
    assert type(discriminator).__name__ == "ElectraForPreTraining"
    assert type(generator).__name__ == "ElectraForMaskedLM"
    assert (discriminator.config.hidden_size, generator.config.hidden_size) == (32, 16)
    for one, other in zip(
        discriminator.electra.embeddings.parameters(), generator.electra.embeddings.parameters(), strict=True
    ):
        assert torch.equal(one, other)
    text = "The cat watches the garden."
    tokenizers = [AutoTokenizer.from_pretrained(folder) for folder in (run.folder, run.folder / "generator")]
    assert tokenizers[0](text).input_ids == tokenizers[1](text).input_ids
    # What our own model says is what theirs says.
    encoded = tokenizers[0](text, return_tensors="pt")
    with torch.no_grad():
        theirs = torch.sigmoid(discriminator.eval()(**encoded).logits)[0, 1:-1].tolist()
    ours = [token.probability for token in maskwright.load(run.folder).detect(text)[0].tokens]
    assert ours == pytest.approx(theirs, abs=1e-5)


def test_each_folder_holds_its_own_half_and_a_checkpoint_shared_weights_once(run: RunResult) -> None:
    loaded = read_checkpoint(run.folder)
    assert (loaded.heads, loaded.unexpected) == (("rtd",), ())
    assert read_checkpoint(run.folder / "generator").heads == ("mlm",)
    weights = load_file(run.folder / "checkpoints" / "step-000000012" / "weights.safetensors")
    assert weights.keys() >= {"encoder.word_embeddings.weight", "generator.attention_blocks.0.query.weight"}
    assert "generator.word_embeddings.weight" not in weights


def test_metrics_count_replaced_and_detected_tokens(run: RunResult) -> None:
    rows = read_rows(run.folder / "metrics.jsonl")
    steps = [row for row in rows if "loss" in row]
    assert len(steps) == 12
    for row in steps:
        assert row["loss"] == pytest.approx(row["mlm_loss"] + 50 * row["rtd_loss"])
        assert 0 < row["rtd_replaced"] < 0.3
        assert 0 <= row["rtd_recall"] <= 1
        assert row["rtd_targets"] == pytest.approx(row["mlm_targets"] / 0.15, rel=0.35)
    held_out = [row for row in rows if "held_out_rtd_loss" in row]
    assert held_out
    assert all("held_out_rtd_replaced" in row for row in held_out)
    assert run.held_out["rtd"].details["replaced"] == held_out[-1]["held_out_rtd_replaced"]


def test_the_run_reports_generator_and_discriminator(run: RunResult, recorder: Recorder) -> None:
    generator, detection = recorder.on("health")
    assert generator.startswith("generator: held-out MLM loss")
    assert detection.startswith("discriminator: held-out RTD loss")


def test_a_run_of_all_tokens_mlm_has_its_metrics_and_loads(train: Train) -> None:
    overrides = ("objectives=[mlm, replace_mlm]", "objectives.replace_mlm.loss_at=everywhere")
    recorder = Recorder()
    run = train("all tokens", set=(*TOY, "training.batch_sequences=24", *overrides), reporter=recorder)
    rows = read_rows(run.folder / "metrics.jsonl")
    assert sum("replace_mlm_restored" in row for row in rows) == 12
    (*_, last) = [row for row in rows if "held_out_replace_mlm_loss" in row]
    assert 0 < last["held_out_replace_mlm_replaced"] < 0.3
    details = {name: last[f"held_out_replace_mlm_{name}"] for name in ("replaced", "restored")}
    assert run.held_out["replace_mlm"].details == details
    loaded = read_checkpoint(run.folder)
    assert (loaded.heads, loaded.unexpected) == (("replace_mlm",), ())
    generator, encoder = recorder.on("health")
    assert generator.startswith("generator: ")
    assert encoder.startswith("encoder: held-out loss of the original text")


@pytest.mark.parametrize(
    ("recipe", "overrides", "message"),
    [
        ("electra/tiny", ("family=bert",), r"'bert' classes have no names for the head rtd.*family to .*electra"),
        ("bert/tiny", ("generator={}", "objectives=[mlm, rtd]", "encoder.pooler=false"), "'bert' classes have no"),
        # Fixed by the user, it does not follow the padding id.
        (
            "roberta/tiny",
            ("tokenizer=wordpiece", "encoder.position_offset=2"),
            "'roberta' classes cannot hold .* position_offset 2",
        ),
    ],
)
def test_what_a_family_cannot_hold_is_refused_before_any_work(train, recipe, overrides, message):
    recorder = Recorder()
    with pytest.raises(ConversionError, match=message):
        train(f"refused {recipe}", recipe=recipe, set=(*overrides, *TOY), reporter=recorder)
    assert not recorder.on("corpus")
