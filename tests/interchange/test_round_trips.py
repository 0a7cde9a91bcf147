"""Bit-exact there and back, in both directions, and transformers finds nothing missing or left over."""

import json

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import (
    BERT_TOKENS,
    MLM,
    ROBERTA_TOKENS,
    Ours,
    bert_config,
    build,
    ragged,
    roberta_config,
    tensors_of,
)

from maskwright.encoder.config import EncoderConfig
from maskwright.interchange.huggingface import load_model, save_model
from maskwright.interchange.names import family_named

TOKENS = {"bert": BERT_TOKENS, "roberta": ROBERTA_TOKENS}
CLASSES = [
    ("BertForPreTraining", bert_config()),
    ("BertForMaskedLM", bert_config(hidden_act="gelu_pytorch_tanh")),
    ("BertForNextSentencePrediction", bert_config()),
    ("BertModel", bert_config(type_vocab_size=1)),
    ("RobertaForMaskedLM", roberta_config()),
    ("RobertaModel", roberta_config()),
]
IDS = [name for name, _ in CLASSES]


def _save(folder, loaded):
    save_model(
        folder,
        family=loaded.family,
        config=loaded.config,
        special_tokens=TOKENS[loaded.family],
        state=loaded.state,
        max_length=loaded.max_length,
    )


def _assert_same_tensors(first, second):
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert value.dtype == second[name].dtype
        assert torch.equal(value, second[name]), name


@pytest.mark.parametrize(("class_name", "config"), CLASSES, ids=IDS)
def test_their_folder_read_and_written_by_us_is_the_same_folder(tmp_path, class_name, config):
    model = build(getattr(transformers, class_name), config)
    model.save_pretrained(tmp_path / "theirs")
    loaded = load_model(tmp_path / "theirs")
    assert loaded.unexpected == ()
    _save(tmp_path / "ours", loaded)
    _assert_same_tensors(tensors_of(tmp_path / "theirs"), tensors_of(tmp_path / "ours"))
    again = load_model(tmp_path / "ours")
    assert again.config == loaded.config
    _assert_same_tensors(again.state, loaded.state)
    theirs, ours = (json.loads((tmp_path / who / "config.json").read_text()) for who in ("theirs", "ours"))
    assert ours["architectures"] == [class_name]
    assert ours.pop("trained_length") == 24
    if config.hidden_act == "gelu_pytorch_tanh":
        assert ours["hidden_act"] == config.hidden_act
    assert {name: theirs[name] for name in ours} == ours


@pytest.mark.parametrize(("class_name", "config"), CLASSES, ids=IDS)
def test_our_folder_read_and_written_by_transformers_is_the_same_folder(tmp_path, class_name, config):
    build(getattr(transformers, class_name), config).save_pretrained(tmp_path / "first")
    _save(tmp_path / "ours", load_model(tmp_path / "first"))
    model, report = getattr(transformers, class_name).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    model.save_pretrained(tmp_path / "theirs")
    _assert_same_tensors(tensors_of(tmp_path / "ours"), tensors_of(tmp_path / "theirs"))
    assert load_model(tmp_path / "theirs").config == load_model(tmp_path / "ours").config


@pytest.mark.parametrize(("class_name", "config"), CLASSES, ids=IDS)
def test_auto_model_loads_our_folder(tmp_path, class_name, config):
    build(getattr(transformers, class_name), config).save_pretrained(tmp_path / "first")
    loaded = load_model(tmp_path / "first")
    _save(tmp_path / "ours", loaded)
    model = transformers.AutoModel.from_pretrained(tmp_path / "ours").eval()
    batch = ragged(config.pad_token_id, config.type_vocab_size)
    with torch.no_grad():
        expected = model(**batch.padded).last_hidden_state[batch.real]
        hidden = Ours(loaded).encoder(batch.flat).hidden[batch.real.flatten()]
    torch.testing.assert_close(hidden, expected, atol=1e-5, rtol=0)


def test_layers_that_share_weights_are_written_for_each_layer_and_read_as_shared(tmp_path):
    build(transformers.BertForMaskedLM, bert_config(num_hidden_layers=2)).save_pretrained(tmp_path / "two")
    two = load_model(tmp_path / "two")
    config = two.config.replace(num_layers=3, attention_plan=(0, 1, 0), ffn_plan=(1, 0, 1))
    shared = type(two)(**{field: getattr(two, field) for field in type(two).__slots__} | {"config": config})
    _save(tmp_path / "shared", shared)
    again = load_model(tmp_path / "shared")
    assert again.config == config
    _assert_same_tensors(again.state, two.state)
    model, report = transformers.BertForMaskedLM.from_pretrained(tmp_path / "shared", output_loading_info=True)
    assert not any(report.values()), report
    batch = ragged(0, 2)
    ours = Ours(again)
    with torch.no_grad():
        expected = model.eval()(**batch.padded).logits[batch.real]
        hidden = ours.encoder(batch.flat).hidden[batch.real.flatten()]
        logits = MLM.logits(ours.heads["mlm"], hidden, ours.encoder.word_embeddings.weight)
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)


def test_trained_length_is_kept_also_by_transformers(tmp_path):
    build(transformers.BertForMaskedLM, bert_config()).save_pretrained(tmp_path / "first")
    loaded = load_model(tmp_path / "first")
    assert loaded.max_length == 24
    save_model(
        tmp_path / "ours",
        family="bert",
        config=loaded.config,
        special_tokens=BERT_TOKENS,
        state=loaded.state,
        max_length=16,
    )
    transformers.BertForMaskedLM.from_pretrained(tmp_path / "ours").save_pretrained(tmp_path / "theirs")
    assert load_model(tmp_path / "theirs").max_length == 16


@settings(deadline=None, max_examples=40)
@given(
    name=st.sampled_from(["bert", "roberta"]),
    layers=st.integers(1, 14),
    pooler=st.booleans(),
    heads=st.sets(st.sampled_from(["mlm", "nsp"])),
    bare=st.booleans(),
)
def test_tables_are_bijections(name, layers, pooler, heads, bare):
    family = family_named(name)
    config = EncoderConfig(num_layers=layers, pooler=pooler)
    pairs = family.pairs(config, frozenset(heads), "" if bare else family.prefix)
    ours, theirs = {ours for ours, _ in pairs}, {theirs for _, theirs in pairs}
    assert len(ours) == len(theirs) == len(pairs)


@pytest.mark.parametrize(("class_name", "config"), CLASSES, ids=IDS)
def test_tables_name_exactly_the_weights_that_transformers_saves(tmp_path, class_name, config):
    build(getattr(transformers, class_name), config).save_pretrained(tmp_path)
    loaded = load_model(tmp_path)
    family = family_named(loaded.family)
    heads = frozenset(family.heads) - set(loaded.missing_heads)
    pairs = family.pairs(loaded.config, heads, family.prefix if heads else "")
    assert {theirs for _, theirs in pairs} == tensors_of(tmp_path).keys()
    assert {ours for ours, _ in pairs} == loaded.state.keys()
    assert family.architecture(heads) == class_name
