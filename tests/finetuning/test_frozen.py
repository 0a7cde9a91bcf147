"""A frozen encoder: only the head is trained, on the mean of the hidden states, in a folder as any other."""

import numpy as np
import pytest
import torch
import toy_tasks
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForSequenceClassification

import maskwright
from maskwright.core.errors import RecipeError
from maskwright.finetuning.model.fine_tuned import build
from maskwright.finetuning.tasks.texts import Classification
from maskwright.reporting.reporter import Reporter
from tests.finetuning.tiny_tuned import pretrained

LABELS = ("canine", "feline")


@pytest.mark.parametrize("family", ["bert", "roberta", "electra", "distilbert"])
def test_the_added_layer_gives_the_mean_of_the_hidden_states(family, tmp_path):
    folder = pretrained(tmp_path / "model", family)
    model = build(folder, Classification(labels=LABELS), seed=0, mean_layer=True)
    model.save(tmp_path / "out")
    ids = torch.arange(5, 17)[None]
    before = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    after = AutoModel.from_pretrained(tmp_path / "out", attn_implementation="eager").eval()
    with torch.no_grad():
        mean = before(input_ids=ids).last_hidden_state.mean(dim=1)
        first = after(input_ids=ids).last_hidden_state[:, 0]
    expected = torch.nn.functional.layer_norm(mean, mean.shape[1:])
    torch.testing.assert_close(first, expected, atol=2e-2, rtol=0)


def test_a_kept_head_gets_no_added_layer(bert_folder, tmp_path):
    task = Classification(labels=LABELS)
    model = build(bert_folder, task, seed=0, mean_layer=True)
    model.save(tmp_path / "out")
    again = build(tmp_path / "out", task, seed=0, mean_layer=True)
    assert again.encoder.config.num_layers == model.encoder.config.num_layers
    assert torch.equal(again.head.output.weight, model.head.output.weight)


def test_other_labels_on_the_added_layer_add_no_second_one(bert_folder, tmp_path):
    model = build(bert_folder, Classification(labels=LABELS), seed=0, mean_layer=True)
    model.save(tmp_path / "out")
    again = build(tmp_path / "out", Classification(labels=("good", "bad")), seed=0, mean_layer=True)
    assert again.encoder.config.num_layers == model.encoder.config.num_layers


def test_a_frozen_encoder_is_not_random(tmp_path):
    with pytest.raises(RecipeError, match="random vectors"):
        maskwright.finetune(
            "a model", task="classification", train="f.csv", out=tmp_path, set=("frozen=true",), from_scratch=True
        )


def test_only_the_head_is_trained_and_transformers_gives_the_same_classes(bert_folder, tmp_path):
    file = toy_tasks.texts(tmp_path)
    settings = ("epochs=8", "batch_size=8", "max_length=32", "frozen=true", "learning_rate=3e-3")
    out = tmp_path / "out"
    done = maskwright.finetune(
        bert_folder, task="classification", train=file, out=out, set=settings, device="cpu", reporter=Reporter()
    )
    assert done.results.best.dev["accuracy"] > done.results.baselines["majority class"]["dev"]["accuracy"]
    assert (done.results.settings["hidden_dropout"], done.results.settings["learning_rate"]) == (0.0, 3e-3)
    before, after = load_file(bert_folder / "model.safetensors"), load_file(out / "model.safetensors")
    shared = [name for name in before.keys() & after.keys() if "encoder.layer" in name or "embeddings" in name]
    assert shared
    assert all(torch.equal(before[name], after[name]) for name in shared)
    [prediction] = maskwright.predict(out, "the cat sat on the mat", device="cpu", reporter=Reporter())
    theirs = AutoModelForSequenceClassification.from_pretrained(out).eval()
    ids = maskwright.finetuning.model.fine_tuned.load(out).tokenizer.backend.encode("the cat sat on the mat").ids
    with torch.no_grad():
        probabilities = theirs(input_ids=torch.tensor([ids])).logits.softmax(dim=1)[0]
    np.testing.assert_allclose(list(prediction.details["probabilities"].values()), probabilities, atol=1e-5)
