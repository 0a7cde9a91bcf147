"""Old, unusual, damaged and hostile model folders."""

import json
import pickle
import shutil

import pytest
import tiny_models as tiny
import torch
import transformers
from safetensors.torch import save_file

from maskwright.checkpoints.checkpoint import read_checkpoint
from maskwright.checkpoints.families import family_named
from maskwright.core.errors import ConversionError, JsonError


@pytest.fixture(scope="module")
def _original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("original")
    tiny.build(transformers.BertForPreTraining, tiny.bert_config()).save_pretrained(folder)
    return folder


@pytest.fixture
def folder(_original, tmp_path):
    shutil.copytree(_original, tmp_path / "model")
    return tmp_path / "model"


def _rewrite(folder, change):
    tensors = tiny.tensors_of(folder)
    save_file(change(tensors) or tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _configure(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def _fails(folder, *parts):
    with pytest.raises((ConversionError, JsonError)) as caught:
        read_checkpoint(folder)
    for part in parts:
        assert part in str(caught.value)
    return str(caught.value)


def _same_state(folder, expected):
    loaded = read_checkpoint(folder)
    assert loaded.state.keys() == expected.keys()
    assert all(torch.equal(value, expected[name]) for name, value in loaded.state.items())
    return loaded


@pytest.mark.parametrize(
    ("model_class", "config"),
    [
        (transformers.BertForPreTraining, tiny.bert_config()),
        (transformers.AlbertForPreTraining, tiny.albert_config()),
        (transformers.ElectraForPreTraining, tiny.electra_config()),
        (transformers.ElectraForMaskedLM, tiny.electra_config()),
        (transformers.DistilBertForMaskedLM, tiny.distilbert_config()),
        (transformers.ErnieForMaskedLM, tiny.ernie_config()),
    ],
    ids=["bert", "albert", "electra", "electra generator", "distilbert", "ernie"],
)
def test_old_files_of_every_family_are_understood(tmp_path, model_class, config):
    tiny.build(model_class, config).save_pretrained(tmp_path)
    expected = {name: value.half().float() for name, value in read_checkpoint(tmp_path).state.items()}
    prefix = model_class.base_model_prefix
    has_head = any(name.startswith("heads.mlm.") for name in expected)

    def age(tensors):
        tied = family_named(config.model_type).tied if has_head else ()
        old = {**tensors, **{second: tensors[first].clone() for second, first in tied}}
        names = {
            name: name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
            for name in old
        }
        aged = {names[name]: value.half() for name, value in old.items()}
        return aged | {f"{prefix}.embeddings.position_ids": torch.arange(24)[None]}

    _rewrite(tmp_path, age)
    assert _same_state(tmp_path, expected).unexpected == ()

    # The body alone, unprefixed.
    _rewrite(
        tmp_path,
        lambda tensors: {
            name.removeprefix(f"{prefix}."): value for name, value in tensors.items() if name.startswith(prefix)
        },
    )
    _same_state(tmp_path, {name: value for name, value in expected.items() if name.startswith("encoder.")})


def test_tied_second_names_are_dropped_and_can_stand_for_the_first(folder):
    expected = read_checkpoint(folder).state

    def tie(tensors):
        tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
        tensors["cls.predictions.decoder.bias"] = tensors.pop("cls.predictions.bias")

    _rewrite(folder, tie)
    _same_state(folder, expected)


def _untie(tensors):
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"] + 1e-3


@pytest.mark.parametrize(("tied", "rewrite"), [(True, _untie), (False, _untie), (False, lambda tensors: tensors)])
def test_untied_heads_are_ignored(folder, tied, rewrite):
    assert read_checkpoint(folder).heads == ("mlm", "nsp")
    _configure(folder, tie_word_embeddings=tied)
    _rewrite(folder, rewrite)
    loaded = read_checkpoint(folder)
    assert loaded.heads == ("nsp",)
    assert "cls.predictions.bias" in loaded.unexpected


def test_pickled_weights_are_refused_unread(folder):
    class Bomb:
        def __reduce__(self):
            return (open, (str(folder / "exploded"), "w"))

    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb()))
    # The class that the folder names: another one would add random heads. The tokenizer is converted too.
    message = _fails(
        folder, "pytorch_model.bin", "model.safetensors", f"AutoTokenizer.from_pretrained({str(folder)!r})"
    )
    assert f"transformers.BertForPreTraining.from_pretrained({str(folder)!r}).save_pretrained('converted')" in message
    assert "AutoModelForPreTraining" not in message
    assert not (folder / "exploded").exists()


@pytest.mark.parametrize(
    ("keeps", "parts"),
    [
        (lambda name: "layer.1" not in name, ("layer.1.attention.output.LayerNorm.bias", "and 10 more")),
        (lambda name: name != "cls.seq_relationship.bias", ("cls.seq_relationship.bias",)),
    ],
)
def test_missing_weights_are_named(folder, keeps, parts):
    _rewrite(folder, lambda tensors: {name: value for name, value in tensors.items() if keeps(name)})
    _fails(folder, "num_hidden_layers", *parts)


@pytest.mark.parametrize(
    ("model_class", "config"),
    [
        (transformers.RobertaForMaskedLM, tiny.roberta_config(hidden_act="relu")),
        (transformers.ElectraForMaskedLM, tiny.electra_config(hidden_act="relu")),
    ],
    ids=["roberta", "electra"],
)
def test_heads_with_another_activation_than_the_encoder_are_ignored(tmp_path, model_class, config):
    tiny.build(model_class, config).save_pretrained(tmp_path)
    loaded = read_checkpoint(tmp_path)
    assert (loaded.config.hidden_activation, loaded.heads) == ("relu", ())


@pytest.mark.parametrize("name", ["XLMRoberta", "Camembert"])
def test_relatives_of_roberta_are_saved_as_roberta(tmp_path, name):
    config = getattr(transformers, f"{name}Config")(**tiny.roberta_config(num_labels=3).to_dict())
    theirs = tiny.build(getattr(transformers, f"{name}ForSequenceClassification"), config)
    theirs.save_pretrained(tmp_path / "theirs")
    loaded = read_checkpoint(tmp_path / "theirs")
    assert (loaded.family, loaded.heads, loaded.unexpected) == ("roberta", ("sequence",), ())
    tiny.save(tmp_path / "ours", loaded)
    ours = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "ours").eval()
    assert type(ours).__name__ == "RobertaForSequenceClassification"
    ids = torch.arange(5, 15)[None]
    with torch.no_grad():
        assert torch.equal(ours(ids).logits, theirs(ids).logits)


@pytest.mark.parametrize(
    ("saved", "changes", "parts"),
    [
        (1, {"num_hidden_groups": 4}, ("4 num_hidden_groups", "in 3 num_hidden_layers")),
        (1, {"inner_group_num": 2}, ("inner_group_num is 2", "Allowed: inner_group_num 1")),
        (1, {"num_hidden_groups": "two"}, ("num_hidden_groups is 'two'",)),
        (1, {"num_hidden_groups": 2}, ("lack", "albert_layer_groups.1.albert_layers.0")),
        (1, {"embedding_size": 24}, ("word_embeddings.weight is [73, 16], expected [73, 24]",)),
        (1, {"num_hidden_groups": 3, "sharing": "all", "num_groups": 4}, ("cannot be 4 groups",)),
        (3, {"num_hidden_groups": 1}, ("more layers than", "albert.encoder.albert_layer_groups.1.albert_layers.0")),
    ],
)
def test_alberts_that_do_not_fit_together_are_refused(tmp_path, saved, changes, parts):
    tiny.build(transformers.AlbertForMaskedLM, tiny.albert_config(num_hidden_groups=saved)).save_pretrained(tmp_path)
    _configure(tmp_path, **changes)
    _fails(tmp_path, *parts)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"model_type": "brt"}, ("unsupported model_type 'brt'", "Did you mean 'bert'?", "config.json")),
        ({"model_type": "deberta-v2"}, ("unsupported model_type 'deberta-v2'", "xlm-roberta", "Use transformers")),
        ({"model_type": None}, ("has no model_type",)),
        ({"hidden_act": "swish"}, ("unknown hidden_act 'swish'", "gelu_new")),
        ({"is_decoder": True}, ("is_decoder is True",)),
        ({"position_embedding_type": "relative_key"}, ("position_embedding_type is 'relative_key'",)),
        ({"num_attention_heads": 5}, ("num_heads 5 does not divide hidden_size 48",)),
        ({"hidden_size": "wide"}, ("hidden_size", "'wide'")),
        ({"vocab_size": "many"}, ("vocab_size is 'many'", "a whole number")),
        ({"type_vocab_size": 0}, ("config.json", "type_vocab_size 0")),
        ({"sharing": "attention"}, ("layers share weights", "Remove sharing")),
        ({"vocab_size": 80}, ("bert.embeddings.word_embeddings.weight is [73, 48], expected [80, 48]", "config.json")),
        ({"num_hidden_layers": 2}, ("more layers than", "bert.encoder.layer.2.attention.output.LayerNorm.bias")),
        ({"model_type": "ernie", "use_task_id": True}, ("use_task_id is True", "Allowed: use_task_id False")),
    ],
)
def test_configurations_that_are_not_supported_are_refused(folder, changes, parts):
    _configure(folder, **changes)
    _fails(folder, *parts)


def test_damaged_files_are_named(folder):
    weights = folder / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[: len(content) // 2])
    _fails(folder, "model.safetensors cannot be read", f"{len(content) // 2:,} bytes", "copy it again")
    weights.write_bytes(b"")
    _fails(folder, "model.safetensors cannot be read")
    (folder / "config.json").write_text("{")
    _fails(folder, "config.json is not valid JSON")
    (folder / "config.json").write_text("[]")
    _fails(folder, "config.json contains a list")
    (folder / "config.json").unlink()
    _fails(folder, "config.json is missing")


def test_missing_weights_folders_and_files_in_place_of_folders_are_named(folder):
    (folder / "model.safetensors").unlink()
    _fails(folder, "has no weights", "model.safetensors")
    _fails(folder / "nowhere", "nowhere", "there is no folder")
    _fails(folder / "config.json", "is a file")
    _fails(str(folder / "no" / "where"), "does not exist")
    _fails("maskwright-tests/no-such-model", "there is no folder 'maskwright-tests/no-such-model'", "hub")


def test_weights_that_do_not_fit_the_configuration_are_not_saved(folder, tmp_path):
    loaded = read_checkpoint(folder)
    for state, part in (
        ({**loaded.state, "heads.rtd.dense.bias": torch.zeros(1)}, "have no names for the head rtd"),
        ({**loaded.state, "encoder.more": torch.zeros(1)}, "unknown encoder.more"),
        ({}, "missing encoder.attention_blocks.0.key.bias"),
        (loaded.state, "encoder.embedding_size to 48"),
    ):
        config = loaded.config.replace(embedding_size=16) if "size" in part else loaded.config
        with pytest.raises(ConversionError, match=part):
            tiny.save(tmp_path / "out", loaded, config=config, state=state)
    assert not (tmp_path / "out").exists()


def test_saving_again_replaces_files_and_leaves_others(folder):
    (folder / "vocab.txt").write_text("[PAD]\n")
    loaded = read_checkpoint(folder)
    changed = {name: value + 1 for name, value in loaded.state.items()}
    tiny.save(folder, loaded, state=changed)
    _same_state(folder, changed)
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors", "vocab.txt"]


def test_modernbert_folders_of_either_notation_are_the_same(tmp_path):
    """Ettin and mmBERT state "sans_pos"; versions before 5 state the pattern and the bases as numbers."""
    tiny.build(transformers.ModernBertForMaskedLM, tiny.modernbert_config()).save_pretrained(tmp_path)
    expected = read_checkpoint(tmp_path).config
    path = tmp_path / "config.json"
    data = json.loads(path.read_text())
    thetas = {"global_rope_theta": 160_000.0, "local_rope_theta": 10_000.0, "global_attn_every_n_layers": 3}
    old = {name: value for name, value in data.items() if name not in ("rope_parameters", "layer_types")}
    path.write_text(json.dumps(old | thetas | {"position_embedding_type": "sans_pos"}))
    assert read_checkpoint(tmp_path).config == expected
    assert (expected.rope_theta, expected.attention_window, expected.global_attention_every) == (160_000.0, 3, 3)


@pytest.mark.parametrize(
    ("entries", "part"),
    [
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4, "rope_theta": 5e5}}, "scaled rotary positions"),
        ({"rope_parameters": {"full_attention": 5}}, "rope_parameters of full_attention are 5"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "{'rope_type': 'yarn'}"),
        ({"layer_types": 5}, "layer_types is 5"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "a list of 5 kinds"),
        ({"layer_types": ["sliding_attention"] * 5}, "no regular pattern"),
    ],
    ids=str,
)
def test_modernbert_folders_with_other_positions_or_layers_are_refused(tmp_path, entries, part):
    tiny.build(transformers.ModernBertForMaskedLM, tiny.modernbert_config()).save_pretrained(tmp_path)
    _configure(tmp_path, **entries)
    _fails(tmp_path, "config.json", part)


@pytest.mark.parametrize("config", [{"pooling_mode": "mean"}, None], ids=["config of a module", "no config"])
def test_a_part_of_a_model_suggests_the_model(config, folder):
    part = folder / "1_Pooling"
    part.mkdir()
    if config:
        (part / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for other in (part, folder.parent):
        _fails(other, f"Did you mean '{folder}'")


def test_reading_a_model_samples_no_weights(folder, monkeypatch):
    # On the meta device that imports PyTorch's compiler, which takes longer than all else.
    monkeypatch.setattr(torch.nn.init, "normal_", None)
    assert read_checkpoint(folder).build().heads
