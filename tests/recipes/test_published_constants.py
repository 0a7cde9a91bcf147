"""Published constants that no other test holds: closed forms, ids, rows. docs/published_numbers.md lists them all."""

from pathlib import Path

import numpy as np
import pytest

from maskwright.core.types import SpecialTokens
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.huggingface.config_json import to_json
from maskwright.huggingface.families import family_named
from maskwright.model.sizes import count_parameters
from maskwright.pretext.masking import SpanMasking
from maskwright.recipes import catalog
from maskwright.recipes.sizing import sizes


def test_spanberts_lengths_are_normalised_not_piled_up_on_the_longest() -> None:
    masking = catalog.get("spanbert/base").masking
    assert isinstance(masking, SpanMasking)
    lengths = np.arange(1, 11)
    geometric = 0.8 ** (lengths - 1) * 0.2
    assert masking.length_shares == pytest.approx(geometric / geometric.sum(), abs=1e-12)
    assert masking.length_shares[0] == pytest.approx(0.22406, abs=5e-6)
    assert masking.length_shares @ lengths == pytest.approx(3.7971, abs=5e-5)
    clipped = np.append(geometric[:9], 0.8**9)  # what it would be if all beyond 10 became 10
    assert clipped.sum() == pytest.approx(1, abs=1e-12)
    assert clipped @ lengths == pytest.approx(4.4631, abs=5e-5)


@pytest.mark.parametrize(
    ("name", "layers", "hidden", "heads", "steps", "parameters"),
    [
        ("macbert/base", 12, 768, 12, 1_000_000, 102_267_648),
        ("macbert/large", 24, 1024, 16, 2_000_000, 325_522_432),
    ],
)
def test_macbert_is_as_published(name: str, layers: int, hidden: int, heads: int, steps: int, parameters: int) -> None:
    recipe = catalog.get(name)
    encoder, masking, replacement, training = recipe.encoder, recipe.masking, recipe.replacement, recipe.training
    assert (encoder.num_layers, encoder.hidden_size, encoder.num_heads) == (layers, hidden, heads)
    assert sizes(recipe).encoder_and_pooler == parameters
    assert (recipe.family, recipe.tokenizer.vocab_size, recipe.words.segmenter) == ("bert", 21128, "rjieba")
    assert recipe.format.model_dump()["second"] == "next_or_swapped"
    chosen = masking.model_dump()
    assert chosen["length_shares"] == (0.4, 0.3, 0.2, 0.1)
    assert sum(length * share for length, share in enumerate(chosen["length_shares"], 1)) == pytest.approx(2.0)
    assert (masking.kind, masking.rate, masking.rounding) == ("ngram", 0.15, "down")
    assert (chosen["budget"], chosen["order"]) == ("words", "left_to_right")
    shares = replacement.model_dump()
    assert (shares["similar"], shares["random"], shares["keep"], shares["max_stand_ins"]) == (0.8, 0.1, 0.1, 0.1)
    assert [(objective.kind, objective.weight) for objective in recipe.objectives] == [("mlm", 1.0), ("sop", 1.0)]
    assert (training.steps, training.batch_sequences, training.learning_rate) == (steps, 512, 1e-4)
    assert (training.optimizer.kind, training.max_length) == ("lamb", 512)


def test_robertas_first_token_stands_at_row_2_of_514() -> None:
    config = catalog.get("roberta/base").encoder
    assert count_parameters(config, 50265)["position embeddings"] == 514 * 768
    assert config.position_offset == 2
    names = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
    tokens = SpecialTokens(pad=1, unk=3, cls=0, sep=2, mask=50264, vocab_size=50265, names=names)
    written = to_json(family_named("roberta"), config, tokens, frozenset({"mlm"}), 512)
    assert (written["max_position_embeddings"], written["pad_token_id"]) == (514, 1)


def test_ernies_unknown_token_is_the_last_of_its_vocabulary(tmp_path: Path) -> None:
    # The released vocab.txt: [PAD] [CLS] [SEP] [MASK], then characters and words, [UNK] as number 17963.
    entries = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", *(f"word{number}" for number in range(17959)), "[UNK]"]
    (tmp_path / "vocab.txt").write_text("\n".join(entries) + "\n", encoding="utf-8")
    special = Tokenizer.from_folder(tmp_path).special_tokens
    assert (special.pad, special.cls, special.sep, special.mask, special.unk) == (0, 1, 2, 3, 17963)
    assert special.vocab_size == 17964 <= catalog.get("ernie/base").tokenizer.vocab_size == 18000
