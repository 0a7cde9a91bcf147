"""SpanBERT, BERT-wwm, RoBERTa-wwm, ERNIE and PMI-masking as published."""

import inspect
import re

import pytest

from maskwright.core.errors import RecipeError
from maskwright.recipes import catalog
from maskwright.recipes.sizing import sizes
from maskwright.recipes.systems import bert_wwm


def shape(name):
    encoder = catalog.get(name).encoder
    return encoder.num_layers, encoder.hidden_size, encoder.num_heads


@pytest.mark.parametrize(
    ("name", "steps", "batch", "learning_rate"),
    [("spanbert/base", 300_000, 2048, 5e-4), ("spanbert/large", 2_400_000, 256, 1e-4)],
)
def test_spanbert_is_as_published(name, steps, batch, learning_rate):
    recipe = catalog.get(name)
    training, masking, replacement = recipe.training, recipe.masking, recipe.replacement
    assert (training.steps, training.batch_sequences, training.learning_rate) == (steps, batch, learning_rate)
    assert (training.warmup_steps, training.schedule, training.clip_norm) == (10_000, "linear", 1.0)
    optimizer = training.optimizer
    assert (optimizer.betas, optimizer.eps, optimizer.weight_decay) == ((0.9, 0.999), 1e-8, 0.1)
    assert (optimizer.decayed, optimizer.bias_correction) == ("all", True)
    assert (recipe.tokenizer.vocab_size, recipe.tokenizer.lowercase) == (28996, False)
    assert (recipe.format.kind, recipe.format.separator_after) == ("doc_sentences", "document")
    assert (masking.kind, masking.rate, masking.rounding, masking.counted) == ("span", 0.15, "up", "ordinary")
    assert (masking.geometric_p, masking.longest_span, masking.cut_last_word) == (0.2, 10, True)
    assert (replacement.mask, replacement.random, replacement.keep) == (0.8, 0.1, 0.1)
    assert (replacement.per, replacement.random_from) == ("unit", "corpus")
    assert [(each.kind, each.weight) for each in recipe.objectives] == [("mlm", 1.0), ("sbo", 1.0)]
    assert recipe.masks.copies is None
    assert (recipe.encoder.hidden_activation, recipe.encoder.layer_norm_eps) == ("gelu", 1e-12)
    assert recipe.encoder.pooler is False


def test_spanbert_has_the_published_number_of_parameters():
    base = sizes(catalog.get("spanbert/base"))
    assert (base.encoder, base.heads["sbo"]) == (107_719_680, 1_960_676)
    large = sizes(catalog.resolve("spanbert/large", ["objectives.sbo.max_places=15"]))
    assert (large.encoder, large.heads["sbo"]) == (332_529_664, 3_388_668)


@pytest.mark.parametrize(
    ("name", "steps", "shares"),
    [("bert-wwm/base", 200_000, (100, 100)), ("bert-wwm/base-ext", 1_400_000, (1000, 400))],
)
def test_bert_wwm_is_as_published(name, steps, shares):
    recipe = catalog.get(name)
    training = recipe.training
    assert (training.steps, training.batch_sequences, training.optimizer.kind) == (steps, 2560, "lamb")
    thousands = [round(phase.share * steps / 1000) for phase in training.phases]
    assert (*thousands,) == shares
    assert [phase.max_length for phase in training.phases] == [128, 512]
    assert (recipe.tokenizer.vocab_size, recipe.tokenizer.lowercase) == (21128, True)
    assert (recipe.words.segmenter, recipe.words.units, recipe.words.levels) == ("rjieba", "words", ())
    assert (recipe.masking.kind, recipe.masking.budget, recipe.masking.rate) == ("whole_word", "tokens", 0.15)
    assert (recipe.replacement.per, recipe.replacement.random_from) == ("token", "vocabulary")
    assert [each.kind for each in recipe.objectives] == ["mlm", "nsp"]
    assert sizes(recipe).encoder_and_pooler == 102_267_648


@pytest.mark.parametrize(
    ("name", "pair", "runs"),
    [("bert-wwm/base", 0, (100, 100)), ("bert-wwm/base-ext", 1, (1000, 400))],
)
def test_the_settings_for_bert_wwms_two_runs_give_those_two_runs(name, pair, runs):
    settings = re.findall(r'--set "(training=.*)"', inspect.getsource(bert_wwm))
    told = [catalog.resolve(name, [setting]).training for setting in settings[2 * pair : 2 * pair + 2]]
    for training, thousands, length, batch in zip(told, runs, (128, 512), (2560, 384), strict=True):
        assert (training.steps, training.batch_sequences) == (1000 * thousands, batch)
        assert training.warmup_steps == training.steps / 10
        assert [(phase.share, phase.max_length) for phase in training.phases] == [(1.0, length)]


@pytest.mark.parametrize(
    ("name", "plain"),
    [("large-english", "large"), ("large-english-cased", "large-cased"), ("base-english", "base")],
)
def test_english_whole_word_bert_differs_from_bert_in_its_masking_alone(name, plain):
    recipe, bert = catalog.get(f"bert-wwm/{name}"), catalog.get(f"bert/{plain}")
    assert recipe.masking.kind == "whole_word"
    same = ("name", "summary", "paper", "masking")
    assert recipe.model_dump(exclude=set(same)) == bert.model_dump(exclude=set(same))


@pytest.mark.parametrize(
    ("name", "layers", "hidden", "heads", "steps", "batch", "parameters"),
    [
        ("base", 12, 768, 12, 1_000_000, 384, 102_267_648),
        ("large", 24, 1024, 16, 2_000_000, 512, 325_522_432),
        ("rbt3", 3, 768, 12, 1_000_000, 384, 38_476_800),
        ("rbt4", 4, 768, 12, 1_000_000, 384, 45_564_672),
        ("rbt6", 6, 768, 12, 1_000_000, 384, 59_740_416),
        ("rbtl3", 3, 1024, 16, 1_000_000, 384, 61_001_728),
    ],
)
def test_roberta_wwm_is_as_published(name, layers, hidden, heads, steps, batch, parameters):
    recipe = catalog.get(f"roberta-wwm/{name}")
    assert shape(recipe.name) == (layers, hidden, heads)
    training = recipe.training
    assert (training.steps, training.batch_sequences, training.optimizer.kind) == (steps, batch, "adamw")
    assert [(phase.share, phase.max_length) for phase in training.phases] == [(1.0, 512)]
    assert (recipe.family, recipe.tokenizer.kind) == ("bert", "wordpiece")
    assert (recipe.format.kind, recipe.masking.kind, recipe.masks.copies) == ("segment_pair", "whole_word", 10)
    assert [each.kind for each in recipe.objectives] == ["mlm"]
    with_pooler = catalog.resolve(recipe.name, ["encoder.pooler=true"])
    assert sizes(with_pooler).encoder_and_pooler == parameters


def test_ernie_is_as_published():
    recipe = catalog.get("ernie/base")
    training, encoder, masking = recipe.training, recipe.encoder, recipe.masking
    assert shape("ernie/base") == (12, 768, 12)
    assert (encoder.hidden_activation, encoder.layer_norm_eps, encoder.max_positions) == ("relu", 1e-5, 513)
    assert (recipe.family, recipe.tokenizer.vocab_size) == ("ernie", 18000)
    counted = sizes(recipe)
    assert (counted.encoder_and_pooler, counted.pretraining) == (99_866_112, 100_477_778)
    assert (training.steps, training.learning_rate, training.warmup_steps) == (1_000_000, 1e-4, 5000)
    assert (training.schedule, training.clip_norm) == ("linear_jump", 1.0)
    assert training.batch_sequences * training.max_length == 8 * 8192
    optimizer = training.optimizer
    assert (optimizer.eps, optimizer.weight_decay, optimizer.decayed) == (1e-8, 0.01, "matrices")
    assert optimizer.bias_correction
    assert (masking.kind, masking.rate, masking.order) == ("levels", 0.15, "staged")
    assert [stage.levels for _, stage in masking.stages] == [set(), {"phrase"}, {"entity"}]
    assert (recipe.words.units, recipe.words.levels) == ("characters", ("phrase", "entity"))
    # Of u <= .15, .03 and more is masked, .015 and more random, the rest kept (batching.py:25-117).
    replacement = recipe.replacement
    thresholds = (replacement.keep * masking.rate, (replacement.keep + replacement.random) * masking.rate)
    assert thresholds == pytest.approx((0.015, 0.03))
    assert [each.kind for each in recipe.objectives] == ["mlm", "nsp"]
    assert recipe.masks.copies is None


def test_ernie_on_dialogues_differs_in_what_it_reads_and_is_asked():
    plain, dialogues = catalog.get("ernie/base"), catalog.get("ernie/base-dialogue")
    assert (dialogues.format.kind, dialogues.format.fake_share) == ("dialogue", 0.5)
    assert [each.kind for each in dialogues.objectives] == ["mlm", "dlm"]
    same = {"name", "summary", "format", "objectives"}
    assert dialogues.model_dump(exclude=same) == plain.model_dump(exclude=same)


def test_pmi_masks_collocations_of_the_corpus():
    recipe = catalog.get("pmi/base")
    assert (recipe.masking.kind, recipe.words.phrases) == ("pmi", ("collocations",))
    assert [each.kind for each in recipe.objectives] == ["mlm"]
    assert [(phase.share, phase.max_length) for phase in recipe.training.phases] == [(1.0, 512)]


@pytest.mark.parametrize(
    ("name", "override", "message"),
    [
        ("bert/base", "objectives=[mlm, sbo]", "'sbo' needs spans of adjacent tokens"),
        ("pmi/base", "words.phrases=[]", r"'pmi' needs phrase spans.*words\.phrases"),
        ("ernie/base", "words.entities=[]", r"'levels' needs entity spans.*words\.entities"),
        ("ernie/base", "objectives=[mlm, dlm]", "'dlm' needs"),
        ("ernie/base-dialogue", "encoder.type_vocab_size=1", r"'dialogue' needs two segment types.*type_vocab_size=2"),
        ("ernie/base-dialogue", "encoder.type_vocab_size=0", r"encoder.type_vocab_size is 0"),
        ("roberta/base", "format=dialogue", "encoder.type_vocab_size=2"),
        ("spanbert/base", "masking.candidates=all", "spans never cross special tokens"),
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
        ("ernie/base", ["format=dialogue", "objectives=[mlm, dlm]"]),
        ("ernie/base-dialogue", ["encoder.type_vocab_size=3"]),
        ("ernie/base", ["masking={basic: 0.5, phrase: 0.5, entity: 0, order: mixed}", "words.entities=[]"]),
    ],
)
def test_combinations_that_make_sense_are_allowed(name, overrides):
    assert catalog.resolve(name, overrides).name == name
