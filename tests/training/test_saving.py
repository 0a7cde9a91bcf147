"""What could not be saved is known before any work: also the padding id of a vocabulary that is not learnt yet."""

import pytest

from maskwright.core.errors import ConversionError
from maskwright.data.tokenizers.spec import ByteBPE, Unigram, WordPiece
from maskwright.data.tokenizers.training import train_byte_bpe, train_unigram, train_wordpiece
from maskwright.recipes.catalog import names, resolve
from maskwright.training.checkpoint import check_savable

TEXTS = ["The cat watches the old captain.", "A dog follows the long road, and the river."] * 20


def test_the_padding_id_of_a_kind_is_that_of_a_vocabulary_learnt() -> None:
    learnt = (
        train_wordpiece(WordPiece(vocab_size=120), TEXTS, TEXTS),
        train_unigram(Unigram(vocab_size=120), TEXTS, TEXTS),
        train_byte_bpe(ByteBPE(vocab_size=300), TEXTS),
    )
    for kind, tokenizer in zip((WordPiece, Unigram, ByteBPE), learnt, strict=True):
        assert kind.pad == tokenizer.special_tokens.pad, kind


@pytest.mark.parametrize("name", names())
def test_every_recipe_can_be_saved(name: str) -> None:
    recipe = resolve(name)
    check_savable(recipe, recipe.tokenizer.pad)


def test_a_generator_s_folder_is_asked_for_too() -> None:
    # ELECTRA's generator class has the exact GELU only.
    recipe = resolve("electra/tiny", ["encoder.hidden_activation=gelu_tanh"])
    with pytest.raises(ConversionError, match="hidden_activation gelu_tanh"):
        check_savable(recipe, 0)
