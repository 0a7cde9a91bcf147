"""bf16 and int8: results are near those of fp32, the precision is reported with results, and a run keeps it."""

import copy
import json

import numpy as np
import pytest
import torch
import toy_tasks
from tiny_tuned import pretrained

from maskwright.core.errors import DeviceError
from maskwright.core.storage.files import read_json
from maskwright.core.tensors import PackedBatch
from maskwright.finetuning.evaluate import evaluate
from maskwright.finetuning.finetune import finetune
from maskwright.finetuning.model.fine_tuned import build, load
from maskwright.finetuning.predict import predict
from maskwright.finetuning.tasks.texts import Classification
from maskwright.inference import precision as inference_precision
from maskwright.kernels.cpu.encoder import quantize_int8
from maskwright.model import inference_encoder
from maskwright.model.inference_encoder import PrecisionWarning
from maskwright.reporting.reporter import Reporter
from tests.precisions import skip_without

# Without dropout and with a low rate: how sure a model is decides how much rounding shows, and the masks that are drawn
# decide the losses. Adam's first steps are of the rate's size whatever the gradient is, rounding or not.
GENTLE = (
    *("learning_rate=1e-4", "batch_size=8", "epochs=2", "max_length=32"),
    *("hidden_dropout=0", "attention_dropout=0", "head_dropout=0"),
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with texts.csv and a model for each precision.

    The weights of the pretrained one are of about the usual size: rounding shows less than in the other tests' model.
    """
    folder = tmp_path_factory.mktemp("precision")
    model, texts = pretrained(folder / "model", "bert", initializer_range=0.05), toy_tasks.texts(folder)
    options = {"task": "classification", "train": texts, "dev": toy_tasks.again(texts), "set": GENTLE, "device": "cpu"}
    for precision in ("auto", "fp32", "bf16"):
        done = finetune(model, out=folder / precision, precision=precision, reporter=Reporter(), **options)
        assert done.results.precision == ("bf16" if precision == "bf16" else "fp32")
    return folder


def losses(out):
    lines = (out / "runs" / "seed-0" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return np.array([record["loss"] for record in map(json.loads, lines) if "loss" in record])


def test_the_losses_of_bf16_are_near_those_of_fp32(trained):
    exact, rounded = losses(trained / "fp32"), losses(trained / "bf16")
    assert len(exact) == len(rounded) >= 4
    # 8 bits of mantissa: a share of 2^-9 lost in each product; the first loss is that of the same weights.
    assert rounded == pytest.approx(exact, rel=0.03)
    assert not np.array_equal(rounded, exact)
    assert all(parameter.dtype.itemsize == 4 for parameter in load(trained / "bf16").parameters())


def test_on_a_processor_auto_is_fp32(trained):
    auto, fp32 = ((trained / name / "model.safetensors").read_bytes() for name in ("auto", "fp32"))
    assert auto == fp32
    requests = [read_json(trained / name / "run.json")["request"] for name in ("auto", "fp32", "bf16")]
    assert [request.get("precision") for request in requests] == [None, "fp32", "bf16"]


def test_a_model_is_measured_and_asked_in_either(trained):
    options = {"file": trained / "texts.csv", "device": "cpu", "reporter": Reporter()}
    auto, fp32, bf16 = (evaluate(trained / "auto", precision=name, **options) for name in ("auto", "fp32", "bf16"))
    assert [auto.precision, fp32.precision, bf16.to_json()["precision"]] == ["fp32", "fp32", "bf16"]
    assert auto.metrics == fp32.metrics
    exact, rounded = (
        np.array([one.score for one in predict(trained / "auto", precision=name, **options)])
        for name in ("fp32", "bf16")
    )
    # Measured on four trainings of this model: at most .019 to .034, .009 in the mean.
    np.testing.assert_allclose(rounded, exact, atol=0.05)
    assert np.abs(rounded - exact).mean() < 0.015
    assert not np.array_equal(rounded, exact)


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A folder with texts.csv and a fine-tuned model with attention heads of 16, which int8 code exists for."""
    folder = tmp_path_factory.mktemp("wide")
    model = pretrained(folder / "model", "bert", initializer_range=0.05, num_attention_heads=2)
    toy_tasks.texts(folder)
    build(model, Classification(labels=("canine", "feline")), seed=1).save(folder / "tuned")
    return folder


def scores_in(folder, precision):
    options = {"file": folder / "texts.csv", "device": "cpu", "reporter": Reporter()}
    done = evaluate(folder / "tuned", precision=precision, **options)
    return done.precision, np.array([one.score for one in predict(folder / "tuned", precision=precision, **options)])


def test_int8_predictions_are_near_those_of_fp32(wide):
    skip_without("int8")
    (_, exact), (computed_in, rounded) = scores_in(wide, "fp32"), scores_in(wide, "int8")
    assert computed_in == "int8"
    np.testing.assert_allclose(rounded, exact, atol=0.02)
    assert not np.array_equal(rounded, exact)


def test_without_int8_instructions_fp32_computes_with_a_warning(wide, monkeypatch):
    monkeypatch.setattr(inference_precision.ops, "int8_problem", lambda: DeviceError("no instructions"))
    _, exact = scores_in(wide, "fp32")
    with pytest.warns(PrecisionWarning, match="no instructions"):
        computed_in, scores = scores_in(wide, "int8")
    assert computed_in == "fp32"
    assert np.array_equal(scores, exact)


def test_int8_layers_compute_predictions_and_evaluation(wide, monkeypatch):
    """With layers in place of the C code, whose weights are rounded to integers of 8 bits in the same way."""

    def rounded_layers(encoder, precision):
        copied = copy.deepcopy(encoder)
        for module in copied.modules():
            if isinstance(module, torch.nn.Linear) and precision == "int8":
                integers, scales = quantize_int8(module.weight.data)
                module.weight.data = integers * scales[:, None]

        def compute(hidden, sequences, positions, position_ids):
            copied.embed = lambda *_: hidden
            ids = torch.zeros(len(hidden), dtype=torch.int64)
            bounds = {"cu_seqlens": sequences.cu_seqlens, "max_seqlen": sequences.max_seqlen}
            return copied.encode(PackedBatch(ids=ids, position_ids=position_ids, segment_ids=ids, **bounds), positions)

        return compute

    monkeypatch.setattr(inference_precision.ops, "int8_problem", lambda: None)
    monkeypatch.setattr(inference_encoder, "_layers", rounded_layers)
    (_, exact), (computed_in, rounded) = scores_in(wide, "fp32"), scores_in(wide, "int8")
    assert computed_in == "int8"
    np.testing.assert_allclose(rounded, exact, atol=0.02)
    assert not np.array_equal(rounded, exact)
