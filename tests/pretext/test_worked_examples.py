"""The examples that papers and courses explain the systems with, word for word; docs/worked_examples.md tells them."""

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
from pretext_samples import SPECIAL, VOCABULARY, repeated, rng_for, within
from similar_tables import knowing, table_of

from maskwright.core.types import BoolArray, Examples, Instances, IntArray, Selection
from maskwright.pretext.masking import KnowledgeMasking, NgramMasking, SpanMasking, TokenMasking, WholeWordMasking
from maskwright.pretext.objectives import SpanBoundaryObjective
from maskwright.pretext.replacement import MaskRandomKeep, SimilarWord
from maskwright.recipes.catalog import get
from maskwright.recipes.recipe import MaskSampling
from maskwright.training.steps.sampler import mask_sample_of

FIRST_ID = 100
"""Id of a sentence's first token; the others follow."""


def times(words: list[list[str]], count: int) -> Instances:
    """The same sentence `count` times, given as words of one or more tokens."""
    ids = itertools.count(FIRST_ID)
    return repeated([[next(ids) for _ in word] for word in words], count)


def masked_in(instances: Instances, selection: Selection) -> BoolArray:
    """Return which tokens of each copy of the sentence are masked. Shape (copies, tokens of the sentence)."""
    masked = np.zeros(len(instances.ids), dtype=bool)
    masked[selection.positions] = True
    return masked.reshape(len(instances), -1)


def one_unit(instances: Instances, start: int, end: int) -> Selection:
    """The same unit of each copy, by places in the sentence; [CLS] stands at 0."""
    return Selection(instances.cu_seqlens[:-1] + start, instances.cu_seqlens[:-1] + end)


def test_my_dog_is_hairy() -> None:
    """Devlin et al. 2019, appendix A.1: the fourth word is chosen; 80 % [MASK], 10 % a random word, 10 % hairy."""
    instances = times([["my"], ["dog"], ["is"], ["hairy"]], 50_000)
    hairy = FIRST_ID + 3
    after = MaskRandomKeep().replace_tokens(instances, one_unit(instances, 4, 5), rng_for(instances), VOCABULARY)
    seen = after.reshape(-1, 6)
    assert (seen[:, [0, 1, 2, 3, 5]] == instances.ids[:6][[0, 1, 2, 3, 5]]).all()
    masked, kept = seen[:, 4] == SPECIAL.mask, seen[:, 4] == hairy
    # A random word is [MASK] or hairy itself once in 1000 times each.
    assert within(float(masked.mean()), 0.8 + 0.0001, len(seen))
    assert within(float(kept.mean()), 0.1 + 0.0001, len(seen))
    assert len(set(seen[~masked & ~kept, 4].tolist())) > 900


def test_philammon_is_masked_as_one_word_or_not_at_all() -> None:
    """README of google-research/bert, 31 May 2019: `phil ##am ##mon` with whole-word masking and without."""
    sentence = "the man jumped up , put his basket on phil|##am|##mon ' s head"
    instances = times([word.split("|") for word in sentence.split()], 5000)
    name = slice(10, 13)
    whole = masked_in(instances, WholeWordMasking(rate=0.3).select(instances, rng_for(instances)))[:, name]
    assert (whole.all(axis=1) == whole.any(axis=1)).all()
    assert 0.1 < whole.any(axis=1).mean() < 0.5
    single = masked_in(instances, TokenMasking(rate=0.3).select(instances, rng_for(instances)))[:, name]
    assert (single.all(axis=1) != single.any(axis=1)).mean() > 0.3


def test_an_american_football_game_is_masked_as_one_and_predicted_from_its_boundaries() -> None:
    """Joshi et al. 2020, figure 1, from the masking on; the recipe's choices but for the rate."""
    words = ["Super", "Bowl", "50", "was", "an", "American", "football", "game", "to", "determine", "the", "champion"]
    instances = times([[word] for word in words], 20_000)
    recipe, rng = get("spanbert/base"), rng_for(instances)
    masking, replacement = recipe.masking.replace(rate=0.3), recipe.replacement  # 4 of 12 words instead of 2
    assert isinstance(masking, SpanMasking)
    selection = masking.select(instances, rng)
    assert (masked_in(instances, selection).sum(axis=1) == 4).all()
    assert (selection.ends - selection.starts).max() <= 4
    game = (selection.starts % 14 == 5) & (selection.ends % 14 == 9)
    assert 0.02 < game.sum() / len(instances) < 0.2

    counts = np.zeros(SPECIAL.vocab_size, dtype=np.int64)
    counts[500:510] = 1  # random words come from a corpus of other words
    facts = replace(VOCABULARY, token_counts=counts)
    after = replacement.replace_tokens(instances, selection, rng, facts)
    starts = selection.starts[game]
    seen = after[starts[:, None] + np.arange(4)]
    masked, kept = seen == SPECIAL.mask, seen == np.arange(FIRST_ID + 4, FIRST_ID + 8)
    for fates, share in ((masked, 0.8), (kept, 0.1), (~masked & ~kept, 0.1)):
        assert (fates.all(axis=1) == fates.any(axis=1)).all()  # one decision for the span
        assert within(float(fates.all(axis=1).mean()), share, len(starts))

    targets = SpanBoundaryObjective().targets(Examples(instances=instances, selection=selection, corrupted=after))
    of_game = np.isin(targets.positions, starts[:, None] + np.arange(4))
    assert of_game.sum() == 4 * len(starts)
    # "football", x7, is predicted from x4, "was", x9, "to", and its place, 3; [CLS] is x0.
    columns = (
        targets.anchors["left"] % 14,
        targets.positions % 14,
        targets.anchors["right"] % 14,
        targets.extra["position"],
    )
    rows = set(zip(*(column[of_game].tolist() for column in columns), strict=True))
    assert rows == {(4, 5, 9, 1), (4, 6, 9, 2), (4, 7, 9, 3), (4, 8, 9, 4)}
    assert np.array_equal(targets.labels, instances.ids[targets.positions])


def test_harbin_is_masked_by_characters_then_as_a_phrase_then_as_an_entity() -> None:
    """README of ERNIE 1.0: 哈尔滨 is the capital of 黑龙江. Characters are masked first, whole names later."""
    text, names = "哈尔滨是黑龙江的省会", ("哈尔滨", "黑龙江")
    instances = times([[character] for character in text], 4000)
    begins = {"phrase": [*names, "省会"], "entity": list(names)}
    span_starts = {}
    for level, units in begins.items():
        starts = np.ones(len(text) + 2, dtype=bool)
        for unit in units:
            first = 1 + text.index(unit)
            starts[first + 1 : first + len(unit)] = False
        span_starts[level] = np.tile(starts, len(instances))
    instances = replace(instances, span_starts=span_starts)
    masking = get("ernie/base").masking
    assert isinstance(masking, KnowledgeMasking)
    torn = []
    for (_, stage), whole in zip(masking.stages, ((), (*names, "省会"), names), strict=True):
        hidden = masked_in(instances, stage.select(instances, rng_for(instances)))
        parts = {unit: hidden[:, 1 + text.index(unit) : 1 + text.index(unit) + len(unit)] for unit in (*names, "省会")}
        torn.append({unit for unit, part in parts.items() if (part.all(axis=1) != part.any(axis=1)).any()})
        assert not torn[-1] & set(whole)
    assert torn == [{*names, "省会"}, set(), {"省会"}]


def test_four_words_become_similar_words_and_never_mask_tokens() -> None:
    """Cui et al. 2021 (journal version), table II: 使用语言模型来预测下一个词的概率, masked by n-grams of words."""
    words = ["使用", "语言", "模型", "来", "预测", "下", "一个", "词", "的", "概率"]
    instances = times([list(word) for word in words], 3000)
    masking = get("macbert/base").masking.replace(rate=0.4)  # 4 of 10 words instead of 1
    assert isinstance(masking, NgramMasking)
    selection = masking.select(instances, rng_for(instances))
    length = len("".join(words)) + 2
    units = Counter(zip(selection.starts % length, selection.ends % length, strict=True))
    first_token = {word: 1 + "".join(words).index(word) for word in words}
    bounds = {*first_token.values(), length - 1}
    assert {bound for unit in units for bound in unit} <= bounds  # never half a word
    assert units[first_token["语言"], first_token["下"]] > 20  # 语言 模型 来 预测: four words, seven characters
    ids = {word: tuple(range(FIRST_ID + at - 1, FIRST_ID + at - 1 + len(word))) for word, at in first_token.items()}
    similar = {ids[word]: [tuple(id + 300 for id in ids[word])] for word in words}
    replacement = SimilarWord(similar=1, random=0, keep=0)
    after = replacement.replace_tokens(instances, selection, rng_for(instances), knowing(VOCABULARY, table_of(similar)))
    assert not (after == SPECIAL.mask).any()
    expected = instances.ids.copy()
    expected[selection.positions] += 300
    assert np.array_equal(after, expected)


def masks(sampling: MaskSampling, epochs: int) -> list[IntArray]:
    """Return the masked positions of a sentence of 60 words in each epoch."""
    instances = times([["word"]] * 60, 1)
    return [
        TokenMasking()
        .select(instances, rng_for(instances, mask_sample=mask_sample_of(epoch, sampling.copies)))
        .positions
        for epoch in range(epochs)
    ]


def test_ten_static_masks_are_each_used_four_times_in_forty_epochs_and_dynamic_ones_once() -> None:
    """Liu et al. 2019, section 4.1: static masks were drawn ten times for forty epochs of training."""
    static, dynamic = get("bert/base").masks, get("roberta/base").masks
    assert Counter(mask.tobytes() for mask in masks(static, 40)) == {mask.tobytes(): 4 for mask in masks(static, 10)}
    assert len({mask.tobytes() for mask in masks(static, 40)}) == 10
    assert len({mask.tobytes() for mask in masks(dynamic, 40)}) == 40
