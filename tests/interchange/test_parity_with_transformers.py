"""Same weights, same numbers: hidden states, logits, gradients against transformers, ragged, in fp32."""

import pytest
import torch
from tiny_models import MLM, NSP, Ours, bert_config, build, ragged, roberta_config
from transformers import BertForMaskedLM, BertForPreTraining, BertModel, RobertaForMaskedLM, RobertaModel

from maskwright.core.tensors import LossInputs, TargetTensors, View
from maskwright.interchange.huggingface import load_model

BERTS = [
    bert_config(),
    bert_config(hidden_act="gelu_new"),
    bert_config(hidden_act="gelu_pytorch_tanh", layer_norm_eps=1e-5),
    bert_config(hidden_act="relu", type_vocab_size=1),
]
ROBERTAS = [roberta_config(), roberta_config(layer_norm_eps=1e-12, pad_token_id=0, type_vocab_size=2)]
BERT_IDS = ["gelu", "tanh gelu", "tanh gelu, large eps", "relu, one segment"]
ROBERTA_IDS = ["gelu", "small eps, pad 0, two segments"]


def _close(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def _saved(tmp_path, model_class, config):
    model = build(model_class, config)
    model.save_pretrained(tmp_path)
    loaded = load_model(tmp_path)
    return model, Ours(loaded), ragged(config.pad_token_id, config.type_vocab_size)


@pytest.mark.parametrize("config", BERTS, ids=BERT_IDS)
def test_bert_for_pretraining_gives_the_same_hidden_states_and_logits(tmp_path, config):
    theirs, ours, batch = _saved(tmp_path, BertForPreTraining, config)
    with torch.no_grad():
        output = ours.encoder(batch.flat)
        words = ours.encoder.word_embeddings.weight
        expected = theirs(**batch.padded, output_hidden_states=True)
        body = theirs.bert(**batch.padded)
        real = batch.real.flatten()
        _close(output.hidden[real], expected.hidden_states[-1][batch.real])
        _close(output.pooled, body.pooler_output)
        _close(MLM.logits(ours.heads["mlm"], output.hidden[real], words), expected.prediction_logits[batch.real])
        _close(ours.heads["nsp"](output.pooled), expected.seq_relationship_logits)


@pytest.mark.parametrize("config", ROBERTAS, ids=ROBERTA_IDS)
def test_roberta_for_masked_lm_gives_the_same_hidden_states_and_logits(tmp_path, config):
    theirs, ours, batch = _saved(tmp_path, RobertaForMaskedLM, config)
    with torch.no_grad():
        output = ours.encoder(batch.flat)
        expected = theirs(**batch.padded, output_hidden_states=True)
        real = batch.real.flatten()
        _close(output.hidden[real], expected.hidden_states[-1][batch.real])
        logits = MLM.logits(ours.heads["mlm"], output.hidden[real], ours.encoder.word_embeddings.weight)
        _close(logits, expected.logits[batch.real])
    assert output.pooled is None


@pytest.mark.parametrize(
    ("model_class", "config"),
    [(BertModel, bert_config()), (RobertaModel, roberta_config())],
    ids=["bert", "roberta"],
)
def test_bare_models_give_the_same_hidden_states_and_pooled_vectors(tmp_path, model_class, config):
    theirs, ours, batch = _saved(tmp_path, model_class, config)
    with torch.no_grad():
        output, expected = ours.encoder(batch.flat), theirs(**batch.padded)
    _close(output.hidden[batch.real.flatten()], expected.last_hidden_state[batch.real])
    _close(output.pooled, expected.pooler_output)


def test_bert_without_segments_given_is_all_first_segment(tmp_path):
    theirs, ours, batch = _saved(tmp_path, BertForMaskedLM, bert_config())
    batch = ragged(0, segments=1)
    padded = {name: value for name, value in batch.padded.items() if name != "token_type_ids"}
    with torch.no_grad():
        hidden = ours.encoder(batch.flat).hidden
        expected = theirs(**padded, output_hidden_states=True).hidden_states[-1]
    _close(hidden[batch.real.flatten()], expected[batch.real])


def _their_labels(batch):
    labels = torch.full(batch.real.shape, -100)
    labels.view(-1)[batch.targets] = batch.labels
    return labels


def _our_loss(ours, batch):
    output = ours.encoder(batch.flat)
    words = ours.encoder.word_embeddings.weight
    positions = {"mlm": (MLM, batch.targets, batch.labels)}
    positions["nsp"] = (NSP, torch.arange(len(batch.pair_labels)), batch.pair_labels)
    loss = torch.zeros(())
    for kind, head in ours.heads.items():
        objective, places, labels = positions[kind]
        view = View(output=output, word_embeddings=words, heads=ours.heads)
        term = objective.loss(head, LossInputs(view=view, targets=TargetTensors(positions=places, labels=labels)))
        loss = loss + term.total / term.count
    return loss


@pytest.mark.parametrize(
    ("model_class", "config"),
    [(BertForPreTraining, config) for config in BERTS] + [(RobertaForMaskedLM, config) for config in ROBERTAS],
    ids=[f"bert {name}" for name in BERT_IDS] + [f"roberta {name}" for name in ROBERTA_IDS],
)
def test_pretraining_loss_has_the_same_value_and_gradients(tmp_path, model_class, config):
    theirs, ours, batch = _saved(tmp_path, model_class, config)
    extra = {"next_sentence_label": batch.pair_labels} if model_class is BertForPreTraining else {}
    expected = theirs(**batch.padded, labels=_their_labels(batch), **extra).loss
    loss = _our_loss(ours, batch)
    _close(loss, expected)
    expected.backward()
    loss.backward()
    # Their gradients go through the same table of names as their weights.
    for parameter in theirs.parameters():
        parameter.data = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
    theirs.save_pretrained(tmp_path / "gradients")
    gradients = load_model(tmp_path / "gradients").state
    for name, parameter in ours.named_parameters():
        found = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(
            found, gradients[name], atol=1e-4, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}"
        )
