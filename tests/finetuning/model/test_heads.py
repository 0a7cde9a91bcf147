"""Heads for labeled examples: the numbers and gradients of transformers' classes, their names, their dropout."""

import json

import pytest
import torch
from tiny_tuned import (
    EVERY_HEAD,
    LENGTHS,
    SOME_HEADS,
    class_of,
    config_of,
    dropouts_of,
    ragged,
    their_scores,
    tuned,
    with_key,
)
from torch import nn

from maskwright.checkpoints.checkpoint import read_checkpoint
from maskwright.checkpoints.families import family_named
from maskwright.checkpoints.task_entries import entries_from_json, entries_to_json
from maskwright.core.errors import ConversionError
from maskwright.core.tensors import EncoderOutput
from maskwright.finetuning.model.heads import Head
from maskwright.kernels.dropout import DropoutKey
from maskwright.model.encoder import Encoder
from tests.checkpoints.tiny_models import build, tensors_of

HEAD_RATE = {"albert": "classifier_dropout_prob", "distilbert": "seq_classif_dropout"}


class Ours(nn.Module):
    """Our encoder and head with the weights of a folder, named as in `Checkpoint.state`."""

    def __init__(self, loaded):
        super().__init__()
        task, row = loaded.task, family_named(loaded.family).tasks[loaded.task.head]
        self.encoder = Encoder(loaded.config, loaded.vocab_size)
        self.heads = nn.ModuleDict({task.head: Head(row, loaded.config, task.num_outputs, task.dropout)})
        self.load_state_dict(loaded.state)

    def forward(self, batch):
        (head,) = self.heads.values()
        return head(self.encoder(batch.batch, head.output_positions(batch)), batch)


@EVERY_HEAD
def test_scores_and_gradients_are_those_of_transformers(tmp_path, family, kind):
    theirs = tuned(family, kind)
    theirs.save_pretrained(tmp_path / "theirs")
    loaded = read_checkpoint(tmp_path / "theirs")
    assert loaded.heads == (kind,)
    assert loaded.unexpected == ()
    ours, made = Ours(loaded).eval(), ragged(family, kind)
    scores, expected = ours(made.batch), their_scores(theirs, kind, made)
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores, expected, atol=1e-5, rtol=0)
    pull = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1))
    (scores * pull).sum().backward()
    (expected * pull).sum().backward()
    # Their gradients go through the same table of names as their weights.
    for parameter in theirs.parameters():
        parameter.data = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
    theirs.save_pretrained(tmp_path / "gradients")
    gradients = read_checkpoint(tmp_path / "gradients").state
    greatest = max(float(gradient.abs().max()) for gradient in gradients.values())
    for name, parameter in ours.named_parameters():
        actual = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        # A softmax does not see the bias of keys: what stands there is rounding.
        size = greatest if name.endswith("key.bias") else float(gradients[name].abs().max())
        assert float((actual - gradients[name]).abs().max()) <= 1e-4 * size, name


@EVERY_HEAD
def test_rates_of_dropout_are_those_of_the_class(family, kind):
    hidden = {"distilbert": "dropout", "modernbert": "embedding_dropout"}.get(family, "hidden_dropout_prob")
    rate_name = HEAD_RATE.get(family, "classifier_dropout")
    cases = [{}, {hidden: 0.3}, {hidden: 0.3, rate_name: 0.4}, {rate_name: 0.0}]
    cases += [{"summary_last_dropout": 0.25}] if family == "electra" else []
    cases += [{"qa_dropout": 0.25}] if family == "distilbert" else []
    for changes in cases:
        config = config_of(family, **changes)
        saved, rate = json.loads(json.dumps(config.to_dict())), float(getattr(config, hidden))
        with torch.device("meta"):
            expected = list(dropouts_of(class_of(family, kind)(config)))
        read = entries_from_json(family_named(family), saved, kind, rate, "config.json")
        # A class whose rate is 0 may have no such module.
        assert {read.dropout} == set(expected or [0.0])
        # And transformers drops as much of what we write.
        again = type(config)(**{**saved, **entries_to_json(family_named(family), read)})
        with torch.device("meta"):
            assert list(dropouts_of(class_of(family, kind)(again))) == expected


def _dropped(kind, family, head, read, first, second):
    """Compute the scores of each class with given dropout masks."""
    if kind in ("sequence", "choice") and family == "distilbert":
        return head.output(torch.relu(head.dense(read)) * second)
    if kind == "sequence" and family == "roberta":
        return head.output(torch.tanh(head.dense(read * first)) * second)
    if kind == "sequence" and family == "electra":
        return head.output(nn.functional.gelu(head.dense(read * first)) * second)
    if kind == "choice" and family == "electra":
        return head.output(nn.functional.gelu(head.dense(read)) * second)
    if family == "modernbert":
        return head.output(head.norm(nn.functional.gelu(head.dense(read))) * second)
    return head.output(read * second)


@EVERY_HEAD
def test_dropout_is_applied_where_the_class_applies_it_and_follows_its_key(tmp_path, family, kind):
    model = tuned(family, kind, **({"classifier_dropout": 0.3} if family == "modernbert" else {}))  # 0 by default
    model.save_pretrained(tmp_path)
    loaded = read_checkpoint(tmp_path)
    made, (head,) = ragged(family, kind), Ours(loaded).heads.values()
    draws = torch.Generator().manual_seed(3)
    output = EncoderOutput(
        torch.randn(sum(LENGTHS), 32, generator=draws), torch.randn(len(LENGTHS), 32, generator=draws)
    )
    read = {"token": output.hidden[made.batch.positions] if kind == "token" else None, "span": output.hidden}.get(kind)
    if read is None:
        pools = family in ("bert", "albert", "ernie") or (family, kind) == ("roberta", "choice")
        read = output.pooled if pools else output.hidden[made.batch.batch.first_tokens]
    plain = _dropped(kind, family, head, read, 1.0, 1.0)
    masks = (DropoutKey(99, torch.device("cpu")).mask(1 + 3 * 2 + more, head.rate) for more in (0, 1))
    first, second = (1.0 if mask is None else mask.factors(read.shape) for mask in masks)
    torch.testing.assert_close(
        head.train()(output, with_key(made.batch, 99)), _dropped(kind, family, head, read, first, second)
    )
    torch.testing.assert_close(head(output, made.batch), plain)
    torch.testing.assert_close(head.eval()(output, with_key(made.batch, 99)), plain)
    drops = kind != "span" or family in ("distilbert", "modernbert")
    assert bool(head.rate) == drops
    if drops:
        assert torch.equal(head.train()(output, with_key(made.batch, 99)), head(output, with_key(made.batch, 99)))
        assert not torch.equal(head(output, with_key(made.batch, 99)), head(output, with_key(made.batch, 98)))


def test_labels_that_the_file_does_not_name_are_numbered(tmp_path):
    build(class_of("bert", "token"), config_of("bert")).save_pretrained(tmp_path)
    assert read_checkpoint(tmp_path).task.labels == ("LABEL_0", "LABEL_1")
    path = tmp_path / "config.json"
    data = json.loads(path.read_text())
    for name in ("id2label", "label2id"):
        data.pop(name, None)
    path.write_text(json.dumps(data))
    assert read_checkpoint(tmp_path).task.labels == ("LABEL_0", "LABEL_1")
    path.write_text(json.dumps(data | {"num_labels": 3}))
    with pytest.raises(ConversionError, match=r"classifier.bias is \[2\], expected \[3\]"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("family", "kind", "changes", "parts"),
    [
        ("bert", "sequence", {"id2label": {"1": "a", "2": "b", "3": "c"}}, ("id2label", "numbers from 0")),
        ("bert", "sequence", {"id2label": ["a"]}, ("id2label is ['a']",)),
        ("bert", "sequence", {"problem_type": "guessing"}, ("problem_type is 'guessing'", "regression")),
        ("bert", "token", {"classifier_dropout": 1.5}, ("classifier_dropout is 1.5", "below 1")),
        ("electra", "choice", {"summary_type": "mean"}, ("summary_type is 'mean'", "Allowed: summary_type 'first'")),
        ("electra", "choice", {"summary_activation": "tanh"}, ("summary_activation is 'tanh'",)),
        ("roberta", "sequence", {"id2label": {"0": "a", "1": "b"}}, ("classifier.out_proj.bias is [3], expected [2]",)),
    ],
)
def test_heads_that_would_be_computed_otherwise_are_refused(tmp_path, family, kind, changes, parts):
    tuned(family, kind).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(ConversionError) as caught:
        read_checkpoint(tmp_path)
    for part in ("config.json", *parts):
        assert part in str(caught.value)


def test_half_a_head_is_refused_and_no_head_is_none(tmp_path):
    from safetensors.torch import save_file

    tuned("roberta", "sequence").save_pretrained(tmp_path)
    tensors = tensors_of(tmp_path)
    del tensors["classifier.dense.bias"]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConversionError, match=r"lack classifier\.dense\.bias"):
        read_checkpoint(tmp_path)
    body = {name: tensor for name, tensor in tensors.items() if not name.startswith("classifier")}
    save_file(body, tmp_path / "model.safetensors", metadata={"format": "pt"})
    loaded = read_checkpoint(tmp_path)
    assert (loaded.heads, loaded.task) == ((), None)


@SOME_HEADS
def test_the_last_layer_computes_only_what_the_head_reads(tmp_path, family, kind):
    tuned(family, kind).save_pretrained(tmp_path)
    ours, made = Ours(read_checkpoint(tmp_path)).eval(), ragged(family, kind)
    sizes = []
    last = ours.encoder.ffn_blocks[ours.encoder.config.layer_plan("ffn")[-1]]
    last.register_forward_hook(lambda _module, args, _made: sizes.append(len(args[0])))
    with torch.no_grad():  # Training pads rows on a CPU.
        ours(made.batch)
    flat = made.batch.batch
    expected = {"token": made.batch.positions, "span": flat.ids}.get(kind, flat.first_tokens)
    assert sizes[-1] == len(expected)
