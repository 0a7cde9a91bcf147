"""Going on from a model: what is loaded, what is new, what must fit, and how it is reported."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from toy_models import save_toy, saved, small, toy_tokenizer

from maskwright.checkpoints.checkpoint import Checkpoint
from maskwright.core.errors import ConversionError, RecipeError
from maskwright.core.spec import override, parse_overrides
from maskwright.data.tokenizers.extension import extend_vocabulary
from maskwright.recipes.catalog import names, resolve
from maskwright.recipes.recipe import Recipe
from maskwright.training.start.existing import differences, differences_of_layers, open_existing, settings
from maskwright.training.start.initialization import (
    CONTINUED_RATE,
    InitialWeights,
    SourceModels,
    describe_changes,
    inherit_from_init,
    inherit_from_teacher,
    spread_layers,
    start_from,
    start_from_embeddings,
    start_from_teacher,
)
from maskwright.training.steps.model import build_model
from maskwright.training.steps.weights import all_weights, copy_weights, encoder_weights, generator_weights

SIZE = toy_tokenizer().special_tokens.vocab_size
POSITIONS = "encoder.position_embeddings.weight"


def toy(name: str, *overrides: str) -> Recipe:
    return resolve(name, small(SIZE, *overrides))


def begun(recipe: Recipe, start: InitialWeights | None = None) -> dict[str, Tensor]:
    model = build_model(recipe, SIZE)
    model.initialize(7)
    if start is not None:
        copy_weights(start.weights, model)
    return all_weights(model)


@pytest.mark.parametrize(
    ("layers", "of", "expected"),
    [
        (6, 12, (0, 2, 4, 7, 9, 11)),  # scripts/extract_distilbert.py
        (1, 2, (0,)),
        (1, 12, (0,)),
        (2, 4, (0, 3)),
        (4, 8, (0, 2, 5, 7)),
        (3, 4, (0, 2, 3)),
        (12, 24, (0, 2, 4, 6, 8, 10, 13, 15, 17, 19, 21, 23)),
        (5, 5, (0, 1, 2, 3, 4)),
    ],
)
def test_layers_are_spread_from_the_first_to_the_last(layers: int, of: int, expected: tuple[int, ...]) -> None:
    assert spread_layers(layers, of) == expected


def test_a_run_begins_with_every_weight_of_a_model_of_its_own_kind(bert: Checkpoint) -> None:
    recipe = inherit_from_init(toy("bert/tiny"), bert, ())
    start = start_from(recipe, bert, None)
    weights = begun(recipe, start)
    assert weights.keys() == bert.state.keys()
    assert all(torch.equal(weights[name], tensor) for name, tensor in bert.state.items())
    assert start.loaded == ("embeddings", "head 'mlm'", "head 'nsp'", "layers", "pooler", "segments")
    assert (start.new, start.ignored) == ((), ())


def kin() -> list[str]:
    """Every recipe at toy size whose encoder is BERT's under some name."""
    return [name for name in names() if name.endswith("/tiny") and resolve(name).family in ("bert", "ernie", "electra")]


@pytest.mark.parametrize("name", kin())
def test_bert_begins_every_system_whose_encoder_is_the_same(name: str, bert: Checkpoint) -> None:
    recipe = inherit_from_init(toy(name, "encoder.embedding_size=null"), bert, ())
    start = start_from(recipe, bert, None)
    weights = begun(recipe, start)
    for key, tensor in (begun(recipe) | dict(start.weights)).items():
        assert torch.equal(weights[key], tensor), key
    encoder_keys = {key for key in weights if key.startswith("encoder.") and not key.startswith("encoder.pooler")}
    assert encoder_keys <= start.weights.keys()
    assert all(torch.equal(weights[key], bert.state[key]) for key in encoder_keys)


@pytest.mark.parametrize("change", ["tie_word_embeddings", "hidden_act"])
def test_a_masked_token_head_that_recipes_do_not_train_is_left_out(change: str, tmp_path: Path) -> None:
    import transformers

    folder = save_toy(tmp_path / "toy", "bert/tiny")
    size = len(transformers.AutoTokenizer.from_pretrained(folder))
    shape = {"vocab_size": size, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    value = {"tie_word_embeddings": False, "hidden_act": "relu"}[change]
    config = transformers.ElectraConfig(**shape, intermediate_size=64, **{change: value})
    transformers.ElectraForMaskedLM(config).save_pretrained(folder)
    assert not any(name.startswith("heads.") for name in open_existing(str(folder)).state)


def test_heads_that_the_recipe_does_not_train_are_ignored(bert: Checkpoint) -> None:
    recipe = toy("bert/tiny", "objectives=[mlm]", "encoder.pooler=false", "format.second=next")
    start = start_from(inherit_from_init(recipe, bert, ()), bert, None)
    assert start.ignored == ("head 'nsp'", "pooler")
    assert start.new == ()
    assert "ignored: head 'nsp', pooler" in start.describe()
    assert start.to_json()["fingerprint"] == bert.fingerprint


def test_a_generator_comes_from_its_folder_beside_the_model(tmp_path: Path) -> None:
    folder = save_toy(tmp_path / "electra", "electra/tiny")
    model, generator = open_existing(str(folder)), open_existing(str(folder / "generator"))
    recipe = inherit_from_init(toy("electra/tiny"), model, ())
    start = start_from(recipe, model, generator)
    assert start.new == start.ignored == ()
    built = build_model(recipe, SIZE)
    built.initialize(7)
    copy_weights(start.weights, built)
    for weights, source in ((generator_weights(built), generator), (encoder_weights(built), model)):
        assert weights.keys() == source.state.keys()
        assert all(torch.equal(weights[name], tensor) for name, tensor in source.state.items())


def test_without_its_generator_or_with_one_of_another_shape_a_new_one_is_drawn(tmp_path: Path) -> None:
    folder = save_toy(tmp_path / "electra", "electra/tiny")
    model, generator = open_existing(str(folder)), open_existing(str(folder / "generator"))
    recipe = inherit_from_init(toy("electra/tiny"), model, ())
    assert start_from(recipe, model, None).new == ("generator", "generator's head 'mlm'")
    wider = inherit_from_init(toy("electra/tiny", "generator.size=1"), model, ())
    start = start_from(wider, model, generator)
    assert start.new[0].startswith("generator (encoder.hidden_size is 32, the model's")
    assert start.new[1:] == ("generator's head 'mlm'",)


def test_defaults_of_the_model_are_kept_unless_the_user_sets_them(tmp_path: Path) -> None:
    other = ("encoder.hidden_activation=relu", "encoder.layer_norm_eps=1e-5", "encoder.hidden_dropout=0.3")
    model = saved(tmp_path / "other", "bert/tiny", *other)
    followed = inherit_from_init(toy("bert/tiny"), model, ())
    assert followed.encoder.hidden_activation == "relu"
    # Dropout is the run's own affair.
    assert (followed.encoder.layer_norm_eps, followed.encoder.hidden_dropout) == (1e-5, 0.1)
    kept = inherit_from_init(toy("bert/tiny"), model, {"encoder.hidden_activation"})
    assert (kept.encoder.hidden_activation, kept.encoder.layer_norm_eps) == ("gelu_tanh", 1e-5)
    described = describe_changes(toy("bert/tiny").encoder, followed.encoder)
    assert described.startswith("hidden_activation relu (recipe: gelu_tanh), layer_norm_eps 1e-05 (recipe: 1e-12)")
    assert describe_changes(followed.encoder, followed.encoder) == ""


def test_a_family_that_has_no_other_activation_keeps_its_own_where_that_is_nearly_the_same(bert, tmp_path):
    # ELECTRA's head has the exact GELU, BERT the one by tanh.
    electra = inherit_from_init(toy("electra/tiny", "encoder.embedding_size=null"), bert, ())
    assert electra.encoder.hidden_activation == "gelu"
    start = start_from(electra, bert, None)
    assert start.new == ("generator", "generator's head 'mlm'", "head 'rtd'")
    assert start.ignored == ("head 'mlm'", "head 'nsp'", "pooler")
    other = saved(tmp_path / "relu", "bert/tiny", "encoder.hidden_activation=relu")
    assert inherit_from_init(electra, other, ()).encoder.hidden_activation == "relu"


def test_a_recipe_loads_the_positions_that_it_needs_and_the_model_has(bert: Checkpoint) -> None:
    assert inherit_from_init(toy("bert/tiny", "encoder.max_positions=512"), bert, ()).encoder.max_positions == 40
    short = inherit_from_init(toy("bert/tiny", "encoder.max_positions=33"), bert, {"encoder.max_positions"})
    start = start_from(short, bert, None)
    assert torch.equal(start.weights[POSITIONS], bert.state[POSITIONS][:33])
    assert "positions from 33 on" in start.ignored
    with pytest.raises(RecipeError, match=r"max_positions is 512.*has 40 positions.*max_positions=40"):
        inherit_from_init(toy("bert/tiny", "encoder.max_positions=512"), bert, {"encoder.max_positions"})
    long = toy("bert/tiny", "encoder.max_positions=512", "training.phases=[{max_length: 128}]")
    with pytest.raises(RecipeError, match=r"reach length 128.*has 40 positions.*max_length: 40"):
        inherit_from_init(long, bert, ())


def test_layers_that_share_must_share_alike(tmp_path: Path) -> None:
    model = saved(tmp_path / "shared", "bert/tiny", "encoder.sharing=ffn", "encoder.num_groups=2")
    with pytest.raises(RecipeError, match=r"sharing is none, the model's ffn; encoder\.num_groups is 1, the model's 2"):
        inherit_from_init(toy("bert/tiny"), model, ())
    same = inherit_from_init(toy("bert/tiny", "encoder.sharing=ffn", "encoder.num_groups=2"), model, ())
    assert start_from(same, model, None).new == ()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((), ("encoder.sharing=all", "encoder.num_groups=2")),
        (("encoder.sharing=all",), ()),
        (("encoder.sharing=ffn", "encoder.blocks_per_group=2"), ("encoder.sharing=ffn", "encoder.num_groups=2")),
    ],
)
def test_the_settings_for_the_model_s_sharing_are_all_named_at_once(first, second):
    recipe, other = toy("bert/tiny", "encoder.num_layers=4", *first), toy("bert/tiny", "encoder.num_layers=4", *second)
    named = shlex.split(settings(differences(recipe.encoder, other.encoder)).replace("--set ", ""))
    mended = override(recipe, parse_overrides(named))
    assert not differences(mended.encoder, other.encoder)
    # A student chooses its layers, whatever they share.
    assert not differences_of_layers(recipe.encoder, other.encoder)


@pytest.mark.parametrize(
    ("recipe", "reason"),
    [
        ("roberta/tiny", "roberta counts positions from its padding id"),
        ("albert/tiny", "albert has one block for all layers"),
        ("distilbert/tiny", "neither segments nor a pooler.*--teacher"),
    ],
)
def test_incompatible_families_are_refused_with_the_reason(recipe: str, reason: str, bert: Checkpoint) -> None:
    with pytest.raises(RecipeError, match=rf"cannot load .*family bert: .*{reason}"):
        inherit_from_init(resolve(recipe), bert, ())


def test_a_student_takes_embeddings_head_and_spread_layers(bert: Checkpoint) -> None:
    recipe = inherit_from_teacher(toy("distilbert/tiny", "encoder.num_layers=2", "teacher.model=x"), bert, ())
    assert recipe.encoder.hidden_activation == "gelu_tanh"
    start = start_from_teacher(recipe, bert)
    weights = begun(recipe, start)
    for layer, source in ((0, 0), (1, 3)):
        for part in ("attention_blocks", "ffn_blocks"):
            of_layer = {name: tensor for name, tensor in weights.items() if f"{part}.{layer}." in name}
            assert of_layer
            for name, tensor in of_layer.items():
                assert torch.equal(tensor, bert.state[name.replace(f".{layer}.", f".{source}.", 1)]), name
    for name, tensor in weights.items():
        if "_blocks." not in name:
            assert torch.equal(tensor, bert.state[name]), name
    assert start.new == ()
    assert start.loaded == ("embeddings", "head 'mlm'", "layers 0, 3 of 4")
    assert start.ignored == ("head 'nsp'", "other layers", "pooler", "segments")


def test_a_student_of_a_teacher_that_shares_takes_the_blocks_its_layers_used(tmp_path: Path) -> None:
    teacher = saved(tmp_path / "shared", "bert/tiny", "encoder.sharing=attention", "encoder.blocks_per_group=2")
    recipe = inherit_from_teacher(toy("distilbert/tiny", "encoder.num_layers=3", "teacher.model=x"), teacher, ())
    weights = begun(recipe, start_from_teacher(recipe, teacher))
    # Of as many layers, too, each has a block of its own.
    whole = inherit_from_teacher(toy("distilbert/tiny", "encoder.num_layers=4", "teacher.model=x"), teacher, ())
    assert start_from_teacher(whole, teacher).new == ()
    for layer, block in ((0, 0), (1, 0), (2, 1)):  # Layers 0, 2 and 3.
        name = "encoder.attention_blocks.{}.query.weight"
        assert torch.equal(weights[name.format(layer)], teacher.state[name.format(block)])


def test_error_of_a_student_of_another_shape_names_the_right_one(bert: Checkpoint) -> None:
    with pytest.raises(RecipeError, match=r"hidden_size is 64, the model's 32.*teacher\.initialize=none"):
        inherit_from_teacher(toy("distilbert/tiny", "encoder.hidden_size=64", "teacher.model=x"), bert, ())
    with pytest.raises(RecipeError, match=r"has 5 layers, its teacher .* 4\..*num_layers=2"):
        inherit_from_teacher(toy("distilbert/tiny", "encoder.num_layers=5", "teacher.model=x"), bert, ())
    with pytest.raises(
        RecipeError,
        match=r"positions start at row 0, the recipe's at 2.*--set family=bert --set encoder.position_offset=0",
    ):
        inherit_from_teacher(toy("distilroberta/tiny", "teacher.model=x", "tokenizer.vocab_size=300"), bert, ())


def test_every_head_with_a_vocabulary_gets_the_new_words(tmp_path: Path) -> None:
    model = saved(tmp_path / "spans", "spanbert/tiny")
    # What was trained is far from 0, where a new head's bias would begin.
    trained = {**model.state, "heads.sbo.bias": torch.linspace(1, 2, SIZE)}
    longer = replace(model, state=trained).extended(extend_vocabulary(model.tokenizer, ["catamaran", "zebu"]))
    for name in ("heads.mlm.bias", "heads.sbo.bias"):
        assert torch.equal(longer.state[name][:SIZE], trained[name])
        pieces = torch.from_numpy(model.tokenizer.encode("zebu").ids)
        assert longer.state[name][SIZE + 1] == trained[name][pieces].mean()
    recipe = toy("spanbert/tiny")
    start = start_from(inherit_from_init(recipe, longer, ()), longer, None)
    assert (start.new, start.ignored) == ((), ())
    assert torch.equal(start.weights["heads.sbo.bias"], longer.state["heads.sbo.bias"])


def test_a_generator_learns_the_new_words_too(tmp_path: Path) -> None:
    folder = save_toy(tmp_path / "electra", "electra/tiny")
    model, generator = (open_existing(str(each)) for each in (folder, folder / "generator"))
    extension = extend_vocabulary(model.tokenizer, ["catamaran", "zebu"])
    longer, its_generator = model.extended(extension), generator.extended(extension)
    assert len(its_generator.state["heads.mlm.bias"]) == SIZE + 2
    recipe = toy("electra/tiny")
    start = start_from(inherit_from_init(recipe, longer, ()), longer, its_generator)
    assert (start.new, start.ignored) == ((), ())
    for name, tensor in its_generator.state.items():
        assert torch.equal(start.weights.get(name.replace("encoder.", "generator."), start.weights.get(name)), tensor)


def test_a_weight_of_another_shape_is_newly_initialized_and_described(tmp_path: Path) -> None:
    model = saved(tmp_path / "spans", "spanbert/tiny")
    start = start_from(inherit_from_init(toy("spanbert/tiny", "objectives.sbo.max_tokens=15"), model, ()), model, None)
    assert start.new == ("heads.sbo.place_embeddings.weight (15 x 200, the model's 20 x 200)",)
    assert start.ignored == ()
    assert start.new[0] in start.describe()


def test_rows_without_a_vocabulary_entry_are_ignored(tmp_path: Path) -> None:
    # As ERNIE's: 18,000 rows for 17,964 entries.
    folder = save_toy(tmp_path / "model", "spanbert/tiny")
    shorter = toy_tokenizer().backend
    state = json.loads(shorter.to_str())
    last = max(state["model"]["vocab"], key=state["model"]["vocab"].get)
    del state["model"]["vocab"][last]
    (folder / "tokenizer.json").write_text(json.dumps(state), encoding="utf-8")
    model = open_existing(str(folder))
    for name in ("encoder.word_embeddings.weight", "heads.mlm.bias", "heads.sbo.bias"):
        assert len(model.state[name]) == SIZE - 1, name


def test_a_tokenizer_with_more_entries_than_rows_is_refused(tmp_path: Path) -> None:
    folder = save_toy(tmp_path / "model", "bert/tiny")
    extend_vocabulary(toy_tokenizer(), ["zebu"]).tokenizer.save(folder)
    with pytest.raises(ConversionError, match=f"has {SIZE + 1} entries, the weights beside it .* for {SIZE}"):
        open_existing(str(folder))


def test_fingerprints_differ_between_models_but_not_between_copies(tmp_path: Path) -> None:
    one, same, other = (
        saved(tmp_path / name, "bert/tiny", seed=seed).fingerprint
        for name, seed in (("one", 1), ("same", 1), ("other", 2))
    )
    assert one == same != other


def test_rates_for_random_weights_and_large_batches_are_lowered(bert: Checkpoint) -> None:
    lowered = {name for name in names() if SourceModels(init=bert).limit_rate(resolve(name), ())[1]}
    assert {"modernbert/base", "modernbert/mini", "roberta/base"} <= lowered
    assert not lowered & {"bert/base", "electra/small", "albert/base", "maskwright/mini"}
    recipe = resolve("modernbert/base")
    limited, (choice,) = SourceModels(init=bert).limit_rate(recipe, ())
    assert (limited.training.learning_rate, choice.published, choice.chosen) == (CONTINUED_RATE, 8e-4, CONTINUED_RATE)
    assert SourceModels(init=bert).limit_rate(recipe, {"training.learning_rate"}) == (recipe, ())
    assert SourceModels().limit_rate(recipe, ()) == (recipe, ())


STUDENT = ("teacher.model=x", "teacher.initialize=embeddings", "objectives=[relations, mlm]")


def test_position_embeddings_are_shifted_by_the_difference_of_the_offsets(bert: Checkpoint) -> None:
    rows = bert.state[POSITIONS]
    shifted = {**bert.state, POSITIONS: torch.cat([torch.ones(2, rows.shape[1]), rows])}
    teacher = replace(bert, state=shifted, config=bert.config.replace(position_offset=2))
    recipe = toy("distilbert/tiny", *STUDENT)
    loaded, expected = (start_from_embeddings(recipe, each).weights[POSITIONS] for each in (teacher, bert))
    torch.testing.assert_close(loaded, expected, rtol=0, atol=0)


def test_positions_of_a_student_of_a_rotary_teacher_are_reported_as_new(tmp_path: Path) -> None:
    teacher = saved(tmp_path, "modernbert/tiny", "tokenizer.vocab_size=300")
    start = start_from_embeddings(toy("distilbert/tiny", *STUDENT), teacher)
    assert (POSITIONS in start.weights, "position embeddings" in start.new) == (False, True)
    # Initial attention is computed from random positions; the embeddings are the teacher's.
    not_fitted = SourceModels(teacher=teacher, student_weights="embeddings").not_fitted
    assert not_fitted == {"encoder.initial_embeddings"}
