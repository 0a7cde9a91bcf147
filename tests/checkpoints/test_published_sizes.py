"""Parameters of the models that transformers builds from our config.json are those that we count for the recipe."""

from dataclasses import replace

import pytest
import torch
import transformers
from tiny_models import BERT_TOKENS

from maskwright.checkpoints.config_json import to_json
from maskwright.checkpoints.families import family_named
from maskwright.recipes import catalog
from maskwright.recipes.sizing import sizes

CASES = [
    *((class_name, f"albert/{size}", ()) for class_name in ("AlbertModel", "AlbertForPreTraining")
      for size in ("base", "large", "xlarge", "xxlarge")),
    *(("AlbertModel", "albert/base", (override,)) for override in
      ("encoder.embedding_size=64", "encoder.embedding_size=256", "encoder.sharing=none")),
    ("AlbertModel", "albert/base", ("encoder.embedding_size=768", "encoder.embedding_projection=always")),
    *((f"Electra{kind}", f"electra/{size}", ()) for kind in ("Model", "ForPreTraining", "ForMaskedLM")
      for size in ("small", "base", "large")),
    ("ElectraForMaskedLM", "electra/small", ("generator.size=1",)),
    ("DistilBertModel", "distilbert/base", ()),
    ("DistilBertModel", "distilbert/base-cased", ()),
    ("DistilBertForMaskedLM", "distilbert/base", ()),
    ("ErnieModel", "ernie/base", ()),
    ("ErnieForPreTraining", "ernie/base", ()),
    ("ModernBertForMaskedLM", "modernbert/mini", ()),
    ("ModernBertForMaskedLM", "modernbert/base", ()),
    ("BertModel", "roberta-wwm/rbt3", ("encoder.pooler=true",)),
    ("BertModel", "roberta-wwm/rbtl3", ("encoder.pooler=true",)),
]  # fmt: skip
HEADS = {
    "AlbertForPreTraining": {"mlm", "sop"},
    "ErnieForPreTraining": {"mlm", "nsp"},
    "ElectraForPreTraining": {"rtd"},
}


@pytest.mark.parametrize(("class_name", "name", "overrides"), CASES)
def test_classes_of_transformers_have_as_many_parameters_as_the_recipe(class_name, name, overrides):
    recipe = catalog.resolve(name, overrides)
    counted, config, heads = sizes(recipe), recipe.encoder, HEADS.get(class_name, set())
    expected = counted.encoder_and_pooler + sum(counted.heads[kind] for kind in heads)
    if class_name.endswith("ForMaskedLM"):
        expected, heads = counted.masked_lm, {"mlm"}
        config = recipe.generator.config(config) if recipe.generator else config
    tokens = replace(BERT_TOKENS, vocab_size=recipe.tokenizer.vocab_size)
    data = to_json(family_named(recipe.family), config, tokens, frozenset(heads), 512)
    assert data["architectures"] == [class_name]
    with torch.device("meta"):
        model = getattr(transformers, class_name)(transformers.AutoConfig.for_model(**data))
    assert sum(parameter.numel() for parameter in model.parameters()) == expected
