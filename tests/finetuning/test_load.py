"""`maskwright.load` gives a fine-tuned model with `predict`, and any other without."""

import numpy as np
import pandas as pd
import pytest

import maskwright
from maskwright.core.errors import ConversionError, MaskwrightError
from maskwright.finetuning import evaluate as evaluate_module
from maskwright.finetuning.model.fine_tuned import build
from maskwright.finetuning.tasks.texts import Classification
from maskwright.reporting.reporter import Reporter

TEXTS = ["the cat sat", "the dog ran to the tree"]


@pytest.fixture(scope="module")
def folder(bert_folder, tmp_path_factory):
    """A model with an untrained head."""
    folder = tmp_path_factory.mktemp("tuned")
    build(bert_folder, Classification(labels=("good", "bad")), seed=3, max_length=32).save(folder)
    return folder


def test_a_fine_tuned_model_predicts_and_embeds(folder):
    model = maskwright.load(folder, device="cpu")
    quiet = {"reporter": Reporter()}
    predictions = model.predict(TEXTS, **quiet)
    assert predictions == maskwright.predict(folder, TEXTS, device="cpu", precision="fp32", **quiet)
    assert predictions == maskwright.predict(model, TEXTS, device="cpu", precision="fp32", **quiet)
    assert [one.value for one in model.predict(pd.DataFrame({"text": TEXTS}), **quiet)] == [
        one.value for one in predictions
    ]
    assert predictions.to_pandas()["input"].tolist() == TEXTS
    assert np.array_equal(model.embed(TEXTS), maskwright.embed(folder, TEXTS, device="cpu"))
    labeled = [{"text": text, "label": "good"} for text in TEXTS]
    assert maskwright.evaluate(model, file=labeled, device="cpu", **quiet).examples == 2


def test_a_loaded_model_settles_device_and_precision(folder, monkeypatch):
    model = maskwright.load(folder, device="cpu")
    labeled, quiet = [{"text": text, "label": "good"} for text in TEXTS], {"reporter": Reporter()}
    for other in ({"precision": "int8"}, {"precision": "bf16"}, {"device": "cuda"}):
        for call in (
            lambda other=other: maskwright.evaluate(model, file=labeled, **other, **quiet),
            lambda other=other: maskwright.predict(model, TEXTS, **other, **quiet),
            lambda other=other: model.predict(TEXTS, **other, **quiet),
        ):
            with pytest.raises(MaskwrightError, match=r"loaded on cpu, in fp32"):
                call()
    devices = []
    machine = evaluate_module.machine_to_score("cpu", "fp32")
    monkeypatch.setattr(evaluate_module, "machine_to_score", lambda device, _: devices.append(device) or machine)
    assert maskwright.evaluate(model, file=labeled, **quiet).precision == "fp32"
    assert devices == ["cpu"]  # Not "auto", which may be a GPU.


def test_weights_are_prepared_once_for_predictions_and_embeddings(folder, monkeypatch):
    model = maskwright.load(folder, device="cpu")
    model.predict(TEXTS, reporter=Reporter())
    for module in ("inference.model", "finetuning.evaluate"):
        monkeypatch.setattr(f"maskwright.{module}.TextEncoder", None)
    model.predict(TEXTS, reporter=Reporter())
    assert model.embed(TEXTS).shape == (2, model.encoder.config.hidden_size)


def test_a_pretrained_model_refuses_to_predict(bert_folder):
    model = maskwright.load(bert_folder, device="cpu")
    for call in (lambda: model.predict("the cat"), lambda: maskwright.predict(model, "the cat", device="cpu")):
        with pytest.raises(ConversionError, match=r"pretrained model, not a fine-tuned one.*maskwright finetune"):
            call()


def test_representations_are_one_line(folder, bert_folder):
    for path, part in ((folder, "classification (good, bad)"), (bert_folder, "heads: mlm")):
        shown = repr(maskwright.load(path, device="cpu"))
        assert part in shown
        assert len(shown.splitlines()) == 1
