"""The tables of recipes: complete, in words, and honest about what differs."""

import pytest

from maskwright.core.errors import RecipeError
from maskwright.core.spec import Spec, override
from maskwright.recipes import catalog
from maskwright.recipes.table import ABSENT, diff, format_field, rows


def test_rows_show_every_field_that_has_an_effect_once():
    for recipe in map(catalog.get, catalog.names()):
        listed = rows(recipe)
        paths = [row.path for row in listed]
        assert len(paths) == len(set(paths)), recipe.name
        assert all(row.axis and row.label and row.value for row in listed), recipe.name
        for part in ("tokenizer", "format", "masking", "replacement", "encoder"):
            assert set(leaves(part, getattr(recipe, part))) <= set(paths), recipe.name


def leaves(path, value):
    """The paths of all fields below a value that have an effect; a part of a part has fields of its own."""
    if not isinstance(value, Spec):
        return [path]
    used = [name for name in type(value).model_fields if name not in value.unused(dict(value))]
    return [leaf for name in used for leaf in leaves(f"{path}.{name}", getattr(value, name))]


@pytest.mark.parametrize("name", ["bert/base", "roberta/large"])
def test_paths_of_rows_are_those_that_overrides_take(name):
    recipe = catalog.get(name)
    data = recipe.model_dump()
    for row in rows(recipe):
        steps = row.path.split(".")
        if steps[0] != "objectives":
            value = data
            for step in steps:
                value = value[step]
            assert override(recipe, [(row.path, value)]) == recipe
    assert override(recipe, [("objectives.mlm.weight", 1.0)]) == recipe


def test_rows_are_formatted_as_in_papers():
    words, distilled = (
        {row.path: (row.label, row.value) for row in rows(catalog.get(name))}
        for name in ("bert/base", "distilbert/base")
    )
    assert distilled["teacher.model"] == ("teacher", "set with --teacher")
    assert distilled["masking.sampling"] == ("sampling", "rare tokens more often")
    assert distilled["masking.smoothing"] == ("weight of rare tokens", "count to the power -0.7")
    assert distilled["objectives.soft_targets.temperature"] == ("soft targets", "temperature 2")
    assert words["masking.rate"] == ("masking rate", "15 %")
    assert words["training.steps"] == ("steps", "1M")
    assert words["training.learning_rate"] == ("learning rate", "1e-4")
    assert words["training.phases"] == ("sequence length", "90 % at 128 + 10 % at 512")
    assert words["training.batch_sequences"] == ("batch size", "256 sequences")
    assert words["masks.copies"] == ("sampled", "10 times, then repeated (static masking)")
    assert words["tokenizer.vocab_size"] == ("vocabulary size", "30,522")
    assert words["encoder.layer_norm_eps"] == ("LayerNorm epsilon", "1e-12")
    assert words["encoder.embedding_size"] == ("embedding size", "same as hidden size")
    assert words["objectives.nsp.weight"] == ("next sentence prediction", "weight 1")
    assert words["training.optimizer.betas"] == ("betas", "0.9, 0.999")


def test_values_are_formatted():
    for path, value, words in (
        ("training.clip_norm", 0.0, "off"),
        ("training.phases", catalog.get("roberta/base").training.phases, "512"),
        ("encoder.sharing", "all", "attention and feed-forward"),
        ("encoder.sharing", "ffn", "feed-forward"),
        ("encoder.sharing", "none", "none"),
        ("masking.max_targets", 20, "20"),
        ("masking.length_shares", (0.4, 0.3, 0.2, 0.1), "40 %, 30 %, 20 %, 10 %"),
        ("masking.order", "left_to_right", "left to right"),
        ("training.optimizer.kind", "lamb", "LAMB"),
        ("some.new_field", True, "yes"),
        ("some.new_field", "new_choice", "new choice"),
        ("some.new_field", None, "none"),
    ):
        assert format_field(path, value)[1] == words


def test_diff_names_what_differs_only():
    lines = diff(catalog.get("bert/base"), catalog.get("bert/large"))
    assert {line.path: (line.left, line.right) for line in lines} == {
        "encoder.num_layers": ("12", "24"),
        "encoder.hidden_size": ("768", "1,024"),
        "encoder.num_heads": ("12", "16"),
        "encoder.intermediate_size": ("3,072", "4,096"),
    }


def test_diff_marks_fields_that_one_side_lacks():
    compared = {line.path: line for line in diff(catalog.get("bert/base"), catalog.get("roberta/base"))}
    assert compared["format.short_share"].right == ABSENT
    assert compared["format.separator_after"].left == ABSENT
    pair = compared["objectives.nsp.weight"]
    assert (pair.left, pair.right) == ("weight 1", ABSENT)
    assert all(line.differs for line in compared.values())


def test_fields_without_effect_are_neither_shown_nor_set() -> None:
    bert, modernbert = (catalog.get(f"{name}/base") for name in ("bert", "modernbert"))
    without_windows = override(modernbert, [("encoder.attention_window", None)])
    shown = [{row.path for row in rows(recipe)} for recipe in (bert, modernbert, without_windows)]
    for path, uses in {
        "encoder.rope_theta": [False, True, True],
        "encoder.local_rope_theta": [False, True, False],
        "encoder.global_attention_every": [False, True, False],
        "encoder.first_attention_norm": [False, True, True],
        "encoder.position_offset": [True, False, False],
        "encoder.num_groups": [False, False, False],
        "training.decay_share": [False, True, True],
    }.items():
        assert [path in paths for paths in shown] == uses, path
    for path, value in (("rope_theta", 2e4), ("local_rope_theta", 2e4), ("global_attention_every", 2)):
        with pytest.raises(RecipeError, match=rf"{path} {value:g} has no effect with"):
            override(bert, [(f"encoder.{path}", value)])


def test_fields_of_one_recipe_are_beside_their_neighbors() -> None:
    paths = [each.path for each in diff(catalog.get("bert/base"), catalog.get("modernbert/base"))]
    position = paths.index("encoder.positions")
    assert paths[position : position + 3] == [
        f"encoder.{name}" for name in ("positions", "rope_theta", "local_rope_theta")
    ]
    assert paths.index("training.decay_share") == paths.index("training.schedule") + 1
