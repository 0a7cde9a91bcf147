"""DistilBERT's tables, number by number, and the sizes of students."""

import pytest

from maskwright.core.errors import RecipeError
from maskwright.recipes import catalog
from maskwright.recipes.sizing import sizes
from maskwright.recipes.table import rows

NAMES = [name for name in catalog.names() if name.startswith(("distilbert/", "distilroberta/"))]


@pytest.mark.parametrize(
    ("name", "encoder", "masked_lm"),
    [
        ("distilbert/base", 66_362_880, 66_985_530),
        ("distilbert/base-cased", 65_190_912, 65_812_036),
        ("distilbert/base-multilingual-cased", 134_734_080, 135_445_755),
        ("distilroberta/base", 81_527_808, 82_170_201),
    ],
)
def test_students_have_the_published_number_of_parameters(name: str, encoder: int, masked_lm: int) -> None:
    counted = sizes(catalog.get(name))
    assert counted.encoder == counted.encoder_and_pooler == encoder
    assert counted.masked_lm == counted.pretraining == masked_lm  # Distillation has no weights of its own.


@pytest.mark.parametrize("size", ["tiny", "mini", "small", "medium", "base"])
def test_students_are_half_as_deep_as_those_they_are_called_after(size: str) -> None:
    for student, whole in (("distilbert", "bert"), ("distilroberta", "roberta")):
        mine, theirs = (catalog.get(f"{system}/{size}").encoder for system in (student, whole))
        assert 2 * mine.num_layers == theirs.num_layers
        assert (mine.hidden_size, mine.num_heads, mine.intermediate_size) == (
            theirs.hidden_size,
            theirs.num_heads,
            theirs.intermediate_size,
        )
        assert (mine.position_offset, mine.layer_norm_eps) == (theirs.position_offset, theirs.layer_norm_eps)


@pytest.mark.parametrize("name", NAMES)
def test_students_are_trained_as_published(name: str) -> None:
    recipe = catalog.get(name)
    losses = {objective.kind: objective.weight for objective in recipe.objectives}
    assert losses == {"soft_targets": 5.0, "mlm": 2.0, "cosine": 1.0}
    assert recipe.objectives[0].temperature == 2.0
    assert recipe.objectives[0].loss_at == "everywhere"
    masking = recipe.masking
    assert (masking.kind, masking.rate, masking.rounding, masking.counted) == ("token", 0.15, "up", "all")
    assert (masking.candidates, masking.favour, masking.smoothing) == ("ordinary", "rare", 0.7)
    replacement = recipe.replacement
    assert (replacement.mask, replacement.random, replacement.keep) == (0.8, 0.1, 0.1)
    assert replacement.random_from == "vocabulary"
    assert recipe.masks.copies is None
    training, encoder = recipe.training, recipe.encoder
    assert (training.learning_rate, training.batch_sequences, training.clip_norm) == (5e-4, 4000, 5.0)
    assert (training.schedule, training.warmup_steps / training.steps) == ("linear", 0.05)
    optimizer = training.optimizer
    assert (optimizer.betas, optimizer.eps, optimizer.weight_decay) == ((0.9, 0.98), 1e-6, 0.0)
    assert optimizer.bias_correction
    assert (encoder.hidden_activation, encoder.hidden_dropout, encoder.attention_dropout) == ("gelu", 0.1, 0.1)
    assert not encoder.pooler
    assert recipe.teacher is not None
    assert recipe.teacher.initialise == "layers"


def test_students_of_bert_have_no_segments_and_those_of_roberta_one() -> None:
    assert catalog.get("distilbert/base").encoder.type_vocab_size == 0
    assert catalog.get("distilbert/base").family == "distilbert"
    assert catalog.get("distilroberta/base").encoder.type_vocab_size == 1
    assert catalog.get("distilroberta/base").family == "roberta"


def test_the_teacher_is_told_in_words() -> None:
    told = {row.path: (row.label, row.value) for row in rows(catalog.get("distilbert/base"))}
    assert told["teacher.model"] == ("teacher", "set with --teacher")
    assert told["masking.favour"] == ("sampling", "rare tokens more often")
    assert told["masking.smoothing"] == ("weight of rare tokens", "count to the power -0.7")
    assert told["objectives.soft_targets.temperature"] == ("soft targets", "temperature 2")


def test_distillation_without_a_teacher_or_a_masked_token_head_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"'soft_targets' needs a teacher: set teacher\.model"):
        catalog.resolve("distilbert/base", ["teacher=null"])
    with pytest.raises(RecipeError, match="'soft_targets' needs a masked-token head"):
        catalog.resolve("distilbert/base", ["objectives=[soft_targets, cosine]"])
    with pytest.raises(RecipeError, match="no objective uses the teacher"):
        catalog.resolve("distilbert/base", ["objectives=[mlm]"])
