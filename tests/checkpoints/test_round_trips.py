"""Bit-exact there and back, in both directions, and transformers finds nothing missing or left over."""

import json

import pytest
import tiny_models as tiny
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from maskwright.checkpoints.checkpoint import read_checkpoint
from maskwright.checkpoints.families import FAMILIES, family_named
from maskwright.model.config import EncoderConfig
from maskwright.model.encoder import Encoder

# What transformers leaves out of a safetensors file, since it is another weight under a second name.
TIED = {
    "bert": {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"},
    "ernie": {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"},
    "roberta": {"lm_head.decoder.weight", "lm_head.decoder.bias"},
    "albert": {"predictions.decoder.weight", "predictions.decoder.bias"},
    "electra": {"generator_lm_head.weight"},
    "distilbert": {"vocab_projector.weight"},
    "modernbert": {"decoder.weight"},
}


ROPE = {"global_rope_theta": "full_attention", "local_rope_theta": "sliding_attention"}
"""Names of earlier versions."""


def _first(tmp_path, class_name, config):
    """Save a model of transformers as "first", and load it."""
    tiny.build(getattr(transformers, class_name), config).save_pretrained(tmp_path / "first")
    return read_checkpoint(tmp_path / "first")


def _assert_same_tensors(first, second):
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert value.dtype == second[name].dtype
        assert torch.equal(value, second[name]), name


@pytest.mark.parametrize(
    ("class_name", "config"),
    [pytest.param(name, config, id=label) for (name, _, config), label in zip(tiny.CASES, tiny.IDS, strict=True)],
)
def test_folders_are_the_same_read_and_written_by_either(tmp_path, class_name, config):
    tiny.build(getattr(transformers, class_name), config).save_pretrained(tmp_path / "theirs")
    loaded = read_checkpoint(tmp_path / "theirs")
    assert loaded.unexpected == ()
    classes = family_named(loaded.family).architectures
    assert {head for heads, _ in classes for head in heads} >= set(loaded.heads)
    tiny.save(tmp_path / "ours", loaded)
    _assert_same_tensors(tiny.tensors_of(tmp_path / "theirs"), tiny.tensors_of(tmp_path / "ours"))
    again = read_checkpoint(tmp_path / "ours")
    assert again.config == loaded.config
    _assert_same_tensors(again.state, loaded.state)
    theirs, ours = (json.loads((tmp_path / who / "config.json").read_text()) for who in ("theirs", "ours"))
    assert ours["architectures"] == [class_name]
    assert ours.pop("trained_length") == config.max_position_embeddings - loaded.config.position_offset
    activation = {"distilbert": "activation", "modernbert": "hidden_activation"}.get(config.model_type, "hidden_act")
    if theirs[activation] == "gelu_new":
        assert ours.pop(activation) == "gelu_pytorch_tanh"
    if config.model_type == "roberta":
        special = tiny.BERT_TOKENS if config.pad_token_id == 0 else tiny.ROBERTA_TOKENS
        assert (ours.pop("bos_token_id"), ours.pop("eos_token_id")) == (special.cls, special.sep)
    if config.model_type == "modernbert":
        thetas = {name: ours["rope_parameters"][kind]["rope_theta"] for name, kind in ROPE.items()}
        assert {name: ours.pop(name) for name in ROPE} == thetas
        every = ours.pop("global_attn_every_n_layers")
        assert ours["layer_types"] == ["sliding_attention" if layer % every else "full_attention" for layer in range(5)]
    assert {name: theirs[name] for name in ours} == ours
    # And back.
    model, report = getattr(transformers, class_name).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    model.save_pretrained(tmp_path / "back")
    _assert_same_tensors(tiny.tensors_of(tmp_path / "ours"), tiny.tensors_of(tmp_path / "back"))
    assert read_checkpoint(tmp_path / "back").config == loaded.config
    # Nothing but second names is left out of the file.
    left_out = model.state_dict().keys() - tiny.tensors_of(tmp_path / "ours").keys()
    has_output_layer = "ForPreTraining" in class_name or "ForMaskedLM" in class_name
    assert left_out == (
        TIED[config.model_type] if has_output_layer and class_name != "ElectraForPreTraining" else set()
    )


def _our_logits(folder, batch):
    ours = tiny.Ours(read_checkpoint(folder))
    with torch.no_grad():
        hidden = ours.encoder(batch.flat).hidden
        return tiny.MLM.logits(ours.heads["mlm"], hidden, ours.encoder.word_embeddings.weight)


def _their_logits(class_name, folder, batch):
    model, report = getattr(transformers, class_name).from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"], report
    assert not report["mismatched_keys"], report
    with torch.no_grad():
        output = model.eval()(**batch.padded)
        return output[0][batch.real], report["unexpected_keys"]


def _assert_same_logits(class_name, folder):
    batch = tiny.ragged(0, 2)
    expected, unexpected = _their_logits(class_name, folder, batch)
    assert not unexpected
    torch.testing.assert_close(_our_logits(folder, batch), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("class_name", "config"),
    [("BertForMaskedLM", tiny.bert_config()), ("AlbertForMaskedLM", tiny.albert_config(num_hidden_groups=4))],
    ids=["bert", "albert"],
)
@pytest.mark.parametrize(
    "sharing",
    [
        {"sharing": "attention"},  # The paper's comparison (Table 4), which its own code cannot express.
        {"sharing": "ffn", "num_groups": 2},
        {"sharing": "all", "blocks_per_group": 2},
    ],
)
def test_other_sharing_of_layers_is_written_per_layer_and_loaded_as_shared(tmp_path, class_name, config, sharing):
    config.num_hidden_layers = 4
    tiny.build(getattr(transformers, class_name), config).save_pretrained(tmp_path / "apart")
    apart = read_checkpoint(tmp_path / "apart")
    shared = apart.config.replace(**sharing)
    used = {f"encoder.{name}" for name in Encoder(shared, apart.vocab_size).state_dict()}
    state = {name: value for name, value in apart.state.items() if name in used or name.startswith("heads.")}
    assert len(state) < len(apart.state)
    tiny.save(tmp_path / "shared", apart, config=shared, state=state)
    assert tiny.tensors_of(tmp_path / "shared").keys() == tiny.tensors_of(tmp_path / "apart").keys()
    again = read_checkpoint(tmp_path / "shared")
    assert again.config == shared
    _assert_same_tensors(again.state, state)
    _assert_same_logits(class_name, tmp_path / "shared")


def test_an_identity_is_written_for_albert_without_a_projection_and_removed_again(tmp_path):
    loaded = _first(tmp_path, "AlbertForMaskedLM", tiny.albert_config(embedding_size=48))
    assert loaded.config.embedding_projection == "always"
    plain = loaded.config.replace(embedding_projection="if_needed")
    state = {name: value for name, value in loaded.state.items() if "embedding_projection" not in name}
    tiny.save(tmp_path / "ours", loaded, config=plain, state=state)
    again = read_checkpoint(tmp_path / "ours")
    assert again.config == plain
    _assert_same_tensors(again.state, state)
    _assert_same_logits("AlbertForMaskedLM", tmp_path / "ours")


@pytest.mark.parametrize(
    ("class_name", "config", "theirs"),
    [("BertForPreTraining", tiny.bert_config(), "nsp"), ("AlbertForPreTraining", tiny.albert_config(), "sop")],
    ids=["bert", "albert"],
)
def test_either_pair_head_is_saved_under_the_name_of_the_classes(tmp_path, class_name, config, theirs):
    loaded = _first(tmp_path, class_name, config)
    assert loaded.heads == ("mlm", theirs)
    other = {"nsp": "sop", "sop": "nsp"}[theirs]
    state = {name.replace(f"heads.{theirs}.", f"heads.{other}."): value for name, value in loaded.state.items()}
    tiny.save(tmp_path / "ours", loaded, state=state)
    _assert_same_tensors(tiny.tensors_of(tmp_path / "ours"), tiny.tensors_of(tmp_path / "first"))
    model, report = getattr(transformers, class_name).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    # transformers keeps what the file says of it.
    model.save_pretrained(tmp_path / "again")
    for folder in ("ours", "again"):
        read = read_checkpoint(tmp_path / folder)
        assert read.heads == ("mlm", other)
        _assert_same_tensors(read.state, state)


@pytest.mark.parametrize(
    ("class_name", "config"),
    [
        pytest.param(name, config, id=name)
        for name, special, config in tiny.CASES
        if name.endswith(("ForMaskedLM", "ElectraForPreTraining")) and not special
    ],
)
def test_heads_that_no_class_has_are_kept_and_ignored(tmp_path, class_name, config):
    loaded = _first(tmp_path, class_name, config)
    head = tiny.SBO.head(loaded.config.head_shape(73)).state_dict()
    extra = {f"heads.sbo.{name}": torch.randn_like(value) for name, value in head.items()}
    extra |= {"heads.tenth.dense.weight": torch.randn(3, 5), "heads.tenth.bias": torch.randn(3)}
    tiny.save(tmp_path / "ours", loaded, state=loaded.state | extra)
    again = read_checkpoint(tmp_path / "ours")
    assert set(again.heads) == {*loaded.heads, "tenth", "sbo"}
    assert again.unexpected == ()
    _assert_same_tensors(again.state, loaded.state | extra)
    names = tiny.tensors_of(tmp_path / "ours").keys()
    assert {"maskwright.heads.tenth.bias", "cls.pair_target_predictions.mlp_layer_norm.linear1.weight"} < names
    batch = tiny.ragged(config.pad_token_id, tiny.segments_of(config))
    actual, unexpected = _their_logits(class_name, tmp_path / "ours", batch)
    expected, _ = _their_logits(class_name, tmp_path / "first", batch)
    assert len(unexpected) == len(extra)
    torch.testing.assert_close(actual, expected, atol=0, rtol=0)


def test_an_electra_with_pooler_and_order_head_round_trips(tmp_path):
    loaded = _first(tmp_path, "ElectraForPreTraining", tiny.electra_config())
    extra = {
        "encoder.pooler.weight": torch.randn(48, 48),
        "encoder.pooler.bias": torch.randn(48),
        "heads.sop.classifier.weight": torch.randn(2, 48),
        "heads.sop.classifier.bias": torch.randn(2),
    }
    config = loaded.config.replace(pooler=True)
    tiny.save(tmp_path / "ours", loaded, config=config, state=loaded.state | extra)
    again = read_checkpoint(tmp_path / "ours")
    assert (again.config, again.heads) == (config, ("rtd", "sop"))
    _assert_same_tensors(again.state, loaded.state | extra)
    _, unexpected = _their_logits("ElectraForPreTraining", tmp_path / "ours", tiny.ragged(0, 2))
    assert len(unexpected) == len(extra)


def test_trained_length_is_kept_also_by_transformers(tmp_path):
    loaded = _first(tmp_path, "BertForMaskedLM", tiny.bert_config())
    assert loaded.max_length == 24
    tiny.save(tmp_path / "ours", loaded, max_length=16)
    transformers.BertForMaskedLM.from_pretrained(tmp_path / "ours").save_pretrained(tmp_path / "theirs")
    assert read_checkpoint(tmp_path / "theirs").max_length == 16


@settings(max_examples=60)
@given(
    name=st.sampled_from(sorted(FAMILIES)),
    layers=st.integers(1, 14),
    projects=st.booleans(),
    pooler=st.booleans(),
    order=st.booleans(),
    heads=st.sets(st.sampled_from(["mlm", "nsp", "rtd", "sbo"])),
    bare=st.booleans(),
)
def test_tables_are_bijections(name, layers, projects, pooler, order, heads, bare):
    family = family_named(name)
    config = EncoderConfig(num_layers=layers, pooler=pooler, embedding_size=128 if projects else None)
    kinds = frozenset({"sop" if order and kind == "nsp" else kind for kind in heads} & family.heads.keys())
    pairs = family.pairs(config, kinds, "" if bare else family.prefix)
    ours, theirs = {ours for ours, _ in pairs}, {theirs for _, theirs in pairs}
    assert len(ours) == len(theirs) == len(pairs)
    pair_kind = "sop" if "sop" in kinds else "nsp"
    assert family.heads_among(frozenset(theirs), pair_kind) == kinds
