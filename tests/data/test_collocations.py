import math
import random
from collections import Counter
from itertools import product
from pathlib import Path

from token_samples import clean_corpus_of

from maskwright.data.words.collocations import collocations_of, find_collocations, running_text
from maskwright.data.words.segmenters import open_segmenter
from maskwright.data.words.spec import Words


def text_with_phrases(seed: int = 0, sentences: int = 600) -> list[str]:
    """Return sentences of random words among which some phrases always stand together."""
    rng = random.Random(seed)
    words = [f"{a}{b}ra" for a, b in product("bcdfgklm", "aeiou")]
    generated = []
    for _ in range(sentences):
        parts: list[str] = rng.choices(words, k=8)
        parts.insert(rng.randrange(8), rng.choice(["Puerto Rico", "state of the arts", "quick brown foxes", "the day"]))
        generated.append(" ".join(parts) + ".")
    return generated


def plainly(sentences: list[str]) -> dict[tuple[str, ...], tuple[float, float]]:
    """Return score and normalized score of every n-gram over 10 times, counted one by one: the oracle."""
    runs = [sentence.rstrip(".").lower().split() for sentence in sentences]
    total = sum(len(run) + 2 for run in runs)  # the full stop and the sentence's end stand among the words
    counts = Counter(
        tuple(run[start : start + n]) for run in runs for n in range(1, 6) for start in range(len(run) - n + 1)
    )

    def cuts(gram: tuple[str, ...]) -> list[float]:
        first = [math.log(counts[gram] / total)]
        return first + [
            math.log(counts[gram[:at]] / total) + rest for at in range(1, len(gram)) for rest in cuts(gram[at:])
        ]

    scored = {}
    for gram, count in counts.items():
        if len(gram) > 1 and count > 10:
            whole, *parts = cuts(gram)
            scored[gram] = (2 * whole - max(parts), (whole - max(parts)) / -whole)
    return scored


def test_phrases_are_those_of_the_plain_count_in_its_order() -> None:
    sentences = text_with_phrases()
    edge = {"the", "of"}
    expected = [
        (gram, score)
        for gram, (score, npmi) in plainly(sentences).items()
        if npmi >= 0.3 and gram[0] not in edge and gram[-1] not in edge
    ]
    actual = collocations_of(sentences)
    assert sorted(actual) == sorted(" ".join(gram) for gram, _ in expected)
    scores = {" ".join(gram): (len(gram), -score) for gram, score in expected}
    assert [scores[phrase] for phrase in actual] == sorted(scores.values())
    assert {"puerto rico", "state of the arts", "quick brown foxes"} <= set(actual)
    assert "the day" not in actual


def test_marks_numbers_and_sentence_ends_break_phrases() -> None:
    together = [
        "quick, brown" if number % 3 == 0 else "slow 7 green" if number % 3 == 1 else "hidden" for number in range(90)
    ]
    assert collocations_of([*together, *["treasure."] * 30]) == []
    assert collocations_of([]) == []


def test_chinese_phrases_are_written_without_spaces() -> None:
    rng = random.Random(0)
    others = ["我们", "今天", "写字", "使用", "研究", "公园", "天气", "音乐", "城市", "历史"]
    sentences = ["".join([*rng.choices(others, k=3), "机器学习", *rng.choices(others, k=3)]) + "。" for _ in range(60)]
    assert "机器学习" in collocations_of(sentences, open_segmenter(Words(segmenter="rjieba")))
    assert "机器学习" in collocations_of(sentences)


def test_letters_keep_their_marks_and_joints() -> None:
    words = running_text(["हिन्दी भाषा don't co-operate Ünïted 2019 x_1.", "模型Linux", "می\u200cخواهم"], None)
    names = ["हिन्दी", "भाषा", "don't", "co-operate", "ünïted", "x_1", "模", "型", "linux", "می\u200cخواهم"]
    assert words.names == names
    assert words.ids.tolist() == [0, 1, 2, 3, 4, -1, 5, -1, -1, 6, 7, 8, -1, 9, -1]
    assert words.surface(0, 2) == "हिन्दी भाषा"
    assert words.surface(9, 3) == "模型linux"


def test_phrases_are_kept_by_fingerprint(tmp_path: Path) -> None:
    sentences = text_with_phrases()
    clean = clean_corpus_of(tmp_path / "text", [[sentences]])
    reported: list[tuple[str, int, int | None]] = []
    first, again = (
        find_collocations(clean, Words(), cache=tmp_path, progress=lambda *stage: reported.append(stage))
        for _ in range(2)
    )
    assert first == again
    phrases = collocations_of(sentences)
    assert first.read_text(encoding="utf-8").splitlines() == phrases
    stage = "finding collocations (phrases)"
    assert reported == [(stage, 0, None), (stage, len(phrases), len(phrases))]
    assert find_collocations(clean, Words(segmenter="rjieba"), cache=tmp_path) != first
