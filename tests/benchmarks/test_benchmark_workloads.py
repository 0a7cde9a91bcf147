"""Made texts: the same every time, filled as stated, frequent words first; and steps taken apart are the steps."""

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import peers
from benchmarks.settings import Settings
from benchmarks.shapes import SHAPES, TINY, chosen, fitted
from benchmarks.workloads import (
    LONGEST,
    Example,
    Source,
    examples_of,
    fill,
    made_text,
    mlm_recipe,
    natural_lengths,
    text_for,
    zipf_ids,
)
from maskwright.core.errors import MaskwrightError
from maskwright.recipes.catalog import resolve
from maskwright.training.batches import StepBatch


@pytest.fixture
def quick(tmp_path: Path) -> Settings:
    return Settings(scratch=tmp_path, quick=True)


def steps_of(settings: Settings, count: int = 2, *, blocks: bool = False) -> list[StepBatch]:
    shape = fitted(TINY, settings)
    text = text_for(shape, settings, blocks=blocks)
    return Source(mlm_recipe(shape, dropout=0.1, batch=8), text).steps(count, seed=settings.seed)


def test_natural_lengths_fill_a_padded_batch_as_stated() -> None:
    for seed in range(5):
        lengths = natural_lengths(4096, seed)
        assert abs(fill(lengths) - 0.48) < 0.015
        assert lengths.max() == LONGEST
        assert lengths.min() >= 8


def test_lengths_scale_with_the_longest_sequence() -> None:
    assert abs(fill(natural_lengths(4096, 0, 512), 512) - 0.48) < 0.02


def test_texts_are_the_same_every_time(quick: Settings) -> None:
    assert np.array_equal(natural_lengths(500, 3), natural_lengths(500, 3))
    assert not np.array_equal(natural_lengths(500, 3), natural_lengths(500, 4))
    for one, other in zip(steps_of(quick), steps_of(quick), strict=True):
        for left, right in zip(one.micro_batches, other.micro_batches, strict=True):
            assert torch.equal(left.batch.ids, right.batch.ids)
            assert torch.equal(left.targets["mlm"].labels, right.targets["mlm"].labels)


def test_ids_follow_zipf_and_are_ordinary() -> None:
    ids = zipf_ids(200_000, 1000, 0)
    assert ids.min() == 5
    assert ids.max() < 1000
    counts = np.bincount(ids, minlength=1000)[5:]
    expected = 1 / (np.arange(995) + 3.7)
    expected *= len(ids) / expected.sum()
    assert np.abs(counts[:20] - expected[:20]).max() < 5 * np.sqrt(expected[0])
    assert counts[:100].sum() > 4 * counts[-500:].sum()


def test_blocks_are_full(quick: Settings) -> None:
    for step in steps_of(quick, blocks=True):
        assert step.num_tokens == step.num_slots == 8 * LONGEST


def test_every_document_is_a_sequence_of_its_length() -> None:
    lengths = natural_lengths(50, 0)
    recipe = mlm_recipe(TINY, dropout=0.0, batch=50)
    text = made_text(lengths, TINY.vocabulary, 0)
    (step,) = Source(recipe, text).steps(1)
    (texts,) = examples_of([step])
    assert sorted(len(each.ids) for each in texts) == sorted(lengths.tolist())


def test_steps_taken_apart_hold_the_same_tokens_and_targets(quick: Settings) -> None:
    (step,) = steps_of(quick, 1)
    (texts,) = examples_of([step])
    assert sum(len(each.ids) for each in texts) == step.num_tokens
    assert sum(int((each.labels >= 0).sum()) for each in texts) == step.counts["mlm"]
    for each in texts:
        asked = each.labels >= 0
        assert (each.original[0], each.original[-1]) == (2, 3)  # [CLS] and [SEP]
        assert np.array_equal(each.original[asked], each.labels[asked])
        assert np.array_equal(each.original[~asked], each.ids[~asked])


def test_padding_goes_to_the_longest_of_the_batch() -> None:
    texts = [Example(*(np.arange(length) + 5 for _ in range(3))) for length in (3, 7, 5)]
    batch = peers.padded(texts)
    assert batch["input_ids"].shape == (3, 7)
    assert batch["attention_mask"].sum(1).tolist() == [3, 7, 5]
    assert (batch["labels"][0, 3:] == -100).all()
    assert (batch["input_ids"][0, 3:] == 0).all()
    assert peers.fill([batch]) == 15 / 21


def test_grouping_by_length_pads_little_and_keeps_the_mix_of_lengths() -> None:
    lengths = natural_lengths(800, 0)
    pool = [Example(*(np.zeros(length, dtype=np.int64) for _ in range(3))) for length in lengths.tolist()]
    batches = peers.grouped_by_length(pool, 16, 10)
    assert {len(batch) for batch in batches} == {16}
    padded = [peers.padded(batch) for batch in batches]
    assert peers.fill(padded) > 0.93
    mean = peers.tokens(padded) / 160
    assert abs(mean - lengths.mean()) < 0.1 * lengths.mean()


def test_a_file_gives_its_documents_cut_at_the_longest(tmp_path: Path) -> None:
    words = [f"word{number} other{number % 7}" for number in range(40)]
    documents = [" ".join(words[: 8 + number]) + "." for number in range(30)]
    file = tmp_path / "text.txt"
    file.write_text("\n\n".join(documents))
    settings = Settings(scratch=tmp_path, corpus=file, vocabulary=200)
    text = text_for(fitted(TINY, settings), settings, length=32)
    sizes = np.diff(np.concatenate([[0], text.document_ends]))
    assert len(sizes) == len(documents)
    assert sizes.max() == 30
    assert text.vocab_size <= 200


def test_recipes_of_benchmarks_are_masked_language_modelling_alone() -> None:
    recipe = mlm_recipe(SHAPES[-1], dropout=0.1, batch=4)
    assert [objective.kind for objective in recipe.objectives] == ["mlm"]
    assert recipe.masking == resolve("bert/base").masking
    assert recipe.encoder.sharing == "all"
    assert recipe.encoder.hidden_dropout == recipe.encoder.attention_dropout == 0.1


def test_sizes_are_chosen_by_name(tmp_path: Path) -> None:
    assert [shape.name for shape in chosen(Settings(scratch=tmp_path, sizes=("base",)))] == ["base"]
    with pytest.raises(MaskwrightError, match="Did you mean 'small'"):
        chosen(Settings(scratch=tmp_path, sizes=("smal",)))
    assert {shape.vocabulary for shape in chosen(Settings(scratch=tmp_path, vocabulary=777))} == {777}


def test_typical_steps_are_near_the_mean_of_all() -> None:
    text = made_text(natural_lengths(2000, 0), TINY.vocabulary, 0)
    source = Source(mlm_recipe(TINY, dropout=0.0, batch=16), text)
    steps = source.typical_steps(3)
    padded = [peers.padded(texts) for texts in examples_of(steps)]
    assert abs(peers.fill(padded) - 0.48) < 0.03
    assert len({step.key for step in steps}) == 3
    assert [step.key for step in source.typical_steps(3)] == [step.key for step in steps]
