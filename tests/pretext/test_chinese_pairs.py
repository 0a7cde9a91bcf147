"""The pairs that Chinese courses explain NSP and SOP with: two poems, two lines each."""

from collections import Counter

from pretext_samples import documents_of, rows_of

from maskwright.pretext.formats import Format, SegmentPair, SentencePair

POEMS = (("锄禾日当午", "汗滴禾下土"), ("鹅鹅鹅", "曲项向天歌"))
CHARACTERS = [character for poem in POEMS for line in poem for character in line]
DOCUMENTS = documents_of([[len(line) for line in poem] for poem in POEMS])
NEXT = {("锄禾日当午", "汗滴禾下土"), ("鹅鹅鹅", "曲项向天歌")}
SWAPPED = {(second, first) for first, second in NEXT}


def text_of(tokens: list[int]) -> str:
    return "".join(CHARACTERS[token] for token in tokens)


def pairs(format: Format, samples: int = 200) -> Counter[tuple[str, str, int]]:
    """All pairs that many drawings of the two poems give, as (first, second, label), with how often."""
    plans = (format.plan(DOCUMENTS, 32, 0, mask_sample) for mask_sample in range(samples))
    rows = (row for plan in plans for row in rows_of(plan))
    return Counter((text_of(first), text_of(second), label) for first, second, label in rows)


def test_next_sentence_pairs_are_real_within_a_poem_and_random_across_poems() -> None:
    seen = pairs(SentencePair())
    assert {(first, second) for first, second, label in seen if label == 0} == NEXT
    poem_of = {line: number for number, poem in enumerate(POEMS) for line in poem}
    random = {(first, second): count for (first, second, label), count in seen.items() if label == 1}
    assert {("锄禾日当午", "鹅鹅鹅"), ("鹅鹅鹅", "锄禾日当午")} <= random.keys()
    assert SWAPPED.isdisjoint(random)
    # Ten tries to hit the other of two poems fail once in 1024 (create_pretraining_data.py:283).
    unlucky = sum(count for (first, second), count in random.items() if poem_of[first] == poem_of[second])
    assert unlucky <= 0.01 * sum(random.values())


def test_segments_of_a_poem_are_its_lines_and_random_ones_are_the_other_poems() -> None:
    seen = pairs(SegmentPair(short_share=0.0))
    assert {(first, second) for first, second, label in seen if label == 0} == NEXT
    random = {(first, second) for first, second, label in seen if label == 1}
    assert ("锄禾日当午", "鹅鹅鹅曲项向天歌") in random
    assert all(label in (0, 1) for _, _, label in seen)


def test_sentence_order_pairs_are_the_same_lines_in_order_or_swapped() -> None:
    seen = pairs(SegmentPair(second="next_or_swapped", short_share=0.0))
    assert seen.keys() == {(*pair, 0) for pair in NEXT} | {(*pair, 1) for pair in SWAPPED}
