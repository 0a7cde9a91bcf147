"""Same weights, same numbers: hidden states, logits, gradients against transformers, ragged, in fp32."""

import pytest
import torch
import transformers
from tiny_models import CASES, IDS, MLM, Ours, build, ragged, segments_of

from maskwright.checkpoints.checkpoint import read_checkpoint
from maskwright.core.tensors import EncodedBatch, LossInputs, TargetTensors

# What transformers' outputs call the scores of each of our heads.
SCORES = {
    "mlm": ("prediction_logits", "logits"),
    "nsp": ("seq_relationship_logits", "logits"),
    "sop": ("sop_logits",),
    "rtd": ("logits",),
}
PAIR_LABELS = {
    "BertForPreTraining": "next_sentence_label",
    "ErnieForPreTraining": "next_sentence_label",
    "BertForNextSentencePrediction": "labels",
    "AlbertForPreTraining": "sentence_order_label",
}


def _close(actual, expected):
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=0)


def _saved(tmp_path, class_name, config):
    model = build(getattr(transformers, class_name), config)
    model.save_pretrained(tmp_path)
    return model, Ours(read_checkpoint(tmp_path)), ragged(config.pad_token_id, segments_of(config))


def _our_scores(ours, kind, output):
    head = ours.heads[kind]
    if kind == "mlm":
        return MLM.logits(head, output.hidden, ours.encoder.word_embeddings.weight)
    return head(output.hidden) if kind == "rtd" else head(output.pooled)


@pytest.mark.parametrize(("class_name", "special", "config"), CASES, ids=IDS)
def test_vectors_scores_losses_and_gradients_equal_transformers(tmp_path, class_name, special, config):
    theirs, ours, batch = _saved(tmp_path, class_name, config)
    with torch.no_grad():
        output, body = ours.encoder(batch.flat), theirs.base_model(**batch.padded)
        _close(output.hidden, body.last_hidden_state[batch.real])
        assert (output.pooled is None) == (getattr(body, "pooler_output", None) is None)
        if output.pooled is not None:
            _close(output.pooled, body.pooler_output)
        scores = theirs(**batch.padded)
        assert bool(ours.heads) != class_name.endswith("Model")
        for kind in ours.heads:
            expected = next(scores[name] for name in SCORES[kind] if name in scores)
            if kind in ("mlm", "rtd"):
                expected = expected[batch.real]
            _close(_our_scores(ours, kind, output), expected)
    if ours.heads:
        _assert_same_loss_and_gradients(theirs, class_name, ours, batch, tmp_path / "gradients")


@pytest.mark.parametrize(
    ("class_name", "config"),
    [
        pytest.param(name, config, id=label)
        for (name, _, config), label in zip(CASES, IDS, strict=True)
        if label
        in ("BertForMaskedLM tanh gelu", "AlbertForPreTraining", "ElectraForPreTraining", "ErnieForPreTraining")
    ],
)
def test_missing_segments_are_segment_0(tmp_path, class_name, config):
    theirs, ours, _ = _saved(tmp_path, class_name, config)
    batch = ragged(0, segments=0)
    with torch.no_grad():
        hidden = ours.encoder(batch.flat).hidden
        expected = theirs.base_model(**batch.padded).last_hidden_state
    _close(hidden, expected[batch.real])


def _their_loss(theirs, class_name, kinds, batch):
    labels = {}
    if "mlm" in kinds:
        labels["labels"] = torch.full(batch.real.shape, -100)
        labels["labels"].view(-1)[batch.real.flatten().nonzero().squeeze(1)[batch.targets]] = batch.labels
    if "rtd" in kinds:
        labels["labels"] = batch.replaced
    if class_name in PAIR_LABELS:
        labels[PAIR_LABELS[class_name]] = batch.pair_labels
    return theirs(**batch.padded, **labels).loss


def _our_loss(ours, batch):
    output = ours.encoder(batch.flat)
    words = ours.encoder.word_embeddings.weight
    pairs = (torch.arange(len(batch.pair_labels)), batch.pair_labels)
    every = torch.arange(batch.flat.num_tokens)
    of_objectives = {
        "mlm": (batch.targets, batch.labels),
        "nsp": pairs,
        "sop": pairs,
        "rtd": (every, torch.zeros_like(every)),
    }
    loss = torch.zeros(())
    for objective in ours.objectives:
        positions, labels = of_objectives[objective.kind]
        encoded = EncodedBatch(ids=batch.replaced[batch.real], output=output, word_embeddings=words, heads=ours.heads)
        inputs = LossInputs(encoded=encoded, targets=TargetTensors(positions=positions, labels=labels))
        term = objective.loss(ours.heads[objective.kind], inputs)
        loss = loss + term.total / len(labels)
    return loss


def _assert_same_loss_and_gradients(theirs, class_name, ours, batch, folder):
    expected = _their_loss(theirs, class_name, ours.heads.keys(), batch)
    loss = _our_loss(ours, batch)
    _close(loss, expected)
    expected.backward()
    loss.backward()
    # Their gradients go through the same table of names as their weights.
    for parameter in theirs.parameters():
        parameter.data = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
    theirs.save_pretrained(folder)
    gradients = read_checkpoint(folder).state
    for name, parameter in ours.named_parameters():
        actual = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(
            actual, gradients[name], atol=1e-4, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}"
        )
