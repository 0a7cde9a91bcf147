"""The catalog: finding, reading, writing and overriding recipes; errors for unknown names."""

import json
import sys

import pytest

from maskwright.core.errors import JsonError, RecipeError
from maskwright.core.fields import field_paths
from maskwright.recipes import catalog
from maskwright.recipes.recipe import Recipe


def test_every_recipe_has_its_name_paper_and_summary_and_round_trips_through_json(tmp_path):
    file = tmp_path / "recipe.json"
    for name in catalog.names():
        recipe = catalog.get(name)
        assert recipe.name == name
        assert recipe.summary, name
        assert "arXiv:" in recipe.paper, name
        assert Recipe.model_validate_json(recipe.model_dump_json()) == recipe
        file.write_text(json.dumps(recipe.model_dump(mode="json")))
        assert catalog.resolve(str(file)) == catalog.resolve(str(tmp_path)) == recipe


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bert/bse", r"'bert' has no size 'bse'\. Allowed: bert/tiny, .*Did you mean 'bert/base'\?"),
        ("bret/base", r"Did you mean 'bert/base'\?"),
        ("roberta_wwm/tiny", r"Did you mean 'roberta-wwm/tiny'\?"),
        ("bert-base-uncased", r"Did you mean 'bert/base'\?"),
        ("roberta", r"'roberta' needs a size\. Allowed: roberta/tiny, roberta/mini"),
        # Other systems are not misspelled ones: all systems are listed, without sizes.
        ("deberta/base", r"unknown system 'deberta'\. Allowed: albert, bert, bert-wwm, .*lists all recipes\.$"),
        ("xlnet", r"unknown recipe 'xlnet'\. Allowed: albert, bert, .*lists all recipes\.$"),
    ],
)
def test_get_of_an_unknown_name_lists_systems_or_sizes(name, message):
    with pytest.raises(RecipeError, match=message):
        catalog.get(name)


@pytest.mark.parametrize("name", ["bert/tiny", "roberta/base"])
def test_every_field_of_a_recipe_can_be_overridden_with_itself(name):
    recipe = catalog.get(name)
    overrides = [f"{path}={json.dumps(value)}" for path, value in _leaves(recipe.model_dump(mode="json"))]
    assert len(overrides) > 40
    assert catalog.resolve(name, overrides) == recipe


def _leaves(data, prefix=""):
    for key, value in data.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("lr=1", "Did you mean 'training.learning_rate'?"),
        (
            "format=full_sentences",
            "'nsp' needs pairs labeled next or random, which format 'full_sentences' as configured does not make",
        ),
        ("encoder.pooler=false", "objective 'nsp' needs the pooled vector: set encoder.pooler=true"),
        ("encoder.max_positions=128", "training.phases reach length 512, encoder.max_positions is 128"),
        ("encoder.num_heads=5", "encoder: num_heads 5 does not divide hidden_size 128"),
        ("training.phases=[{share: 0.5}]", "training: the shares of the length phases add up to 0.5"),
        ("objectives=[mlm, mlm]", "contain a duplicate"),
        ("replacement.mask=0.9", "add up to"),
        (
            "replacement={mask: 0, random: 0, keep: 1}",
            "'mlm' predicts the selected tokens, but replacement 'mask_random_keep' leaves all of them unchanged",
        ),
        (
            "replacement={kind: similar_word, similar: 0, random: 0, keep: 1}",
            "replacement 'similar_word' leaves all of them unchanged: decrease replacement.keep",
        ),
        ("objectives=[nsp]", "masks 15 % of the tokens, but none of the objectives ['nsp'] predicts them: add 'mlm'"),
        ("training.steps=100", "training: warmup_steps 10000 is more than steps 100"),
    ],
)
def test_resolve_explains_invalid_overrides(override, message):
    with pytest.raises(RecipeError) as caught:
        catalog.resolve("bert/tiny", [override])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "override", "message"),
    [
        ("bert/base", "objectives=[mlm, sbo]", "'sbo' needs spans of adjacent tokens"),
        ("pmi/base", "words.phrases=[]", r"'pmi' needs phrase spans.*words\.phrases"),
        (
            "bert/base",
            "masking=pmi",
            r"'pmi' needs phrase spans.*`--set words\.phrases=\[collocations\]` \(allowed: segmenter, collocations,",
        ),
        ("ernie/base", "words.entities=[]", r"'levels' needs entity spans.*words\.entities"),
        ("spanbert/base", "masking.candidates=all", "spans never cross special tokens"),
        ("distilbert/base", "teacher=null", r"'soft_targets' needs a teacher: set teacher\.model"),
        ("distilbert/base", "objectives=[soft_targets, cosine]", "'soft_targets' needs a masked-token head"),
        (
            "distilbert/base",
            "objectives=[mlm]",
            "no objective uses the teacher.*recipes`.*, add 'cosine' or 'relations' or 'sentence_vectors' or 'soft_t",
        ),
        ("electra/base", "objectives=[mlm]", "no objective uses the generator.*, add 'replace_mlm' or 'rtd'"),
        ("bert/base", "objectives=[mlm, replace_mlm]", r"'replace_mlm' needs a generator.*set generator=\{\}"),
    ],
)
def test_combinations_that_make_no_sense_are_refused(name, override, message):
    with pytest.raises(RecipeError, match=message):
        catalog.resolve(name, [override])


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("bert-wwm/base", ["objectives=[mlm, sbo, nsp]"]),
        ("pmi/base", ["objectives=[mlm, sbo]"]),
        ("bert/base", ["masking=span"]),
        ("ernie/base", ["masking={basic: 0.5, phrase: 0.5, entity: 0, order: mixed}", "words.entities=[]"]),
    ],
)
def test_combinations_that_make_sense_are_allowed(name, overrides):
    assert catalog.resolve(name, overrides).name == name


def test_resolve_explains_files_that_cannot_be_read(tmp_path):
    with pytest.raises(RecipeError, match=r"there is no recipe file 'missing\.json'"):
        catalog.resolve("missing.json")
    file = tmp_path / "mine.json"
    for content, kind, message in (
        (b'{"name": \n oops}', JsonError, r"mine\.json is not valid JSON: line 2, column 2"),
        (b'{"name": "x", "encodr": {}}', RecipeError, r"mine\.json: .*encodr: unknown field; did you mean 'encoder'"),
        (b"\xff\xfe\x00", JsonError, "'utf-8' codec can't decode"),
    ):
        file.write_bytes(content)
        with pytest.raises(kind, match=message):
            catalog.resolve(str(file))


TENTH = """
from maskwright.pretext.masking import WholeWordMasking
from maskwright.recipes.systems import roberta


def recipes():
    for recipe in roberta.recipes():
        size = recipe.name.removeprefix("roberta/")
        yield recipe.replace(name=f"tenth/{size}", masking=WholeWordMasking(rate=0.123))
"""


def test_a_new_system_is_one_new_file(tmp_path, monkeypatch):
    shipped = catalog.names()
    assert not any(name.startswith("tenth/") or catalog.get(name).masking.rate == 0.123 for name in shipped)
    (tmp_path / "tenth_system.py").write_text(TENTH)
    monkeypatch.setattr(catalog.systems, "__path__", [*catalog.systems.__path__, str(tmp_path)])
    catalog._recipes.cache_clear()
    try:
        recipe = catalog.get("tenth/base")
        assert (recipe.masking.kind, recipe.masking.rate) == ("whole_word", 0.123)
        assert catalog.resolve("tenth/tiny", ["masking.rate=0.2"]).masking.rate == 0.2
        sizes = {name.removeprefix("roberta/") for name in shipped if name.startswith("roberta/")}
        assert set(catalog.names()) == {*shipped, *(f"tenth/{size}" for size in sizes)}
    finally:
        catalog._recipes.cache_clear()
        # Otherwise later tests would find the imported module without its file.
        sys.modules.pop("maskwright.recipes.systems.tenth_system", None)
        vars(catalog.systems).pop("tenth_system", None)


def test_synonyms_name_existing_fields():
    assert set(Recipe.synonyms.values()) - {"training.phases.0.max_length"} <= set(field_paths(Recipe))
