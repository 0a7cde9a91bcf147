"""Tags of words: pieces as transformers makes them, every word predicted once, entities with their positions."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maskwright.core.errors import DataError
from maskwright.finetuning.examples import TaggedExample
from maskwright.finetuning.features import FeatureCollator, Layout
from maskwright.finetuning.tasks import make_task, task_from_json
from maskwright.finetuning.tasks.tagging import Tagging

KINDS = ("wordpiece", "byte_bpe", "unigram")
BIO = Tagging(
    labels=("O", "B-LOC", "I-LOC", "B-PER", "I-PER"), entities=True, metrics=("f1", "precision", "recall", "accuracy")
)
# With two words that WordPiece's cleaning drops.
WORDS = ("Angela", "Merkel", "visited", "New", "York", "\u200b", "\ufffd", "😀", "Größe", ",", "don't", "2019")
AWKWARD = ("\x08", "\u200b", "\ufffd", "😀", "", "\u00a0", "a", "Donaudampfschifffahrt", "北京")


def sentence(words, tags=None, key="1"):
    return TaggedExample(key=key, words=tuple(words), tags=None if tags is None else tuple(tags))


def made(task, examples, tokenizer, max_length=512):
    return task.features(examples, Layout(tokenizer, max_length, True), training=False)


def test_words_are_the_pieces_of_running_text(kind, tokenizers):
    plain = [word for word in WORDS if word.isprintable()]
    features = made(BIO, [sentence(plain)], tokenizers[kind])
    assert features.ids[1:-1].tolist() == tokenizers[kind].encode(" ".join(plain)).ids.tolist()


def test_words_are_cut_and_tagged_where_transformers_puts_them(kind, tokenizers, auto_tokenizers):
    features = made(BIO, [sentence(WORDS)], tokenizers[kind])
    # A byte-level tokenizer of transformers takes words only if it may put a space before the first one, too.
    words = [f" {word}" if number else word for number, word in enumerate(WORDS)] if kind == "byte_bpe" else WORDS
    backend = auto_tokenizers[kind].backend_tokenizer
    encoding = backend.encode(list(words), is_pretokenized=True)
    assert features.ids.tolist() == encoding.ids
    first_pieces = [encoding.word_ids.index(word) for word in sorted({w for w in encoding.word_ids if w is not None})]
    assert features.positions.tolist() == first_pieces
    assert (len(first_pieces) < len(WORDS)) == (kind == "wordpiece")


def test_characters_are_joined_by_nothing(kind, tokenizers):
    text = "今天的天气很好，我们去公园散步吧！"
    task = Tagging(labels=BIO.labels, entities=True, joined="nothing")
    tokenizer = tokenizers[kind]
    features = made(task, [sentence(text)], tokenizer)
    assert len(features.positions) == len(text)
    pieces = tokenizer.tokens(features.ids[1:-1].tolist())
    if kind == "wordpiece":
        assert pieces == list(text)
    elif kind == "unigram":
        assert "".join(pieces) == tokenizer.backend.normalizer.normalize_str(f"▁{text}")
        assert sum("▁" in piece for piece in pieces) == 1
    else:
        assert tokenizer.decode(features.ids[1:-1].tolist()) == text
        assert not any("Ġ" in piece for piece in pieces)


# Windows.

some_words = st.lists(st.sampled_from([*WORDS, *AWKWARD]), max_size=30)


@given(st.lists(some_words, max_size=5), st.integers(3, 24), st.sampled_from(KINDS))
def test_every_word_with_a_piece_is_predicted_once_and_in_order(tokenizers, sentences, max_length, kind):
    tokenizer, max_pieces = tokenizers[kind], max_length - 2
    examples = [sentence(words, ["O"] * len(words)) for words in sentences]
    features = made(BIO, examples, tokenizer, max_length)
    wanted = []  # (sentence, the word's pieces), word by word
    cut = set()
    for number, words in enumerate(sentences):
        for index, word in enumerate(words):
            text = f" {word}" if kind == "byte_bpe" and index else word
            pieces = tokenizer.encode(text).ids.tolist()
            if pieces:
                wanted.append((number, pieces[:max_pieces]))
            if len(pieces) > max_pieces:
                cut.add(number)
    predicted = []
    special = tokenizer.special_tokens
    bounds = features.cu_seqlens.tolist()
    for unit in range(features.num_units):
        begin, end = bounds[unit : unit + 2]
        ids = features.ids[begin:end].tolist()
        assert (ids[0], ids[-1]) == (special.cls, special.sep)
        assert len(ids) <= max_length
        positions = [position - begin for position in features.positions.tolist() if begin <= position < end]
        assert positions, "no unit without a prediction"
        for position in positions:
            expected = wanted[len(predicted)][1]
            seen = ids[position:-1][: len(expected)]
            assert seen == expected[: len(seen)]
            assert len(seen) == len(expected) or len(expected) > max_pieces // 8, "short words are whole"
            if position > 1 and unit and features.examples[unit] == features.examples[unit - 1]:
                assert position - 1 >= max_pieces // 8, "every word has tokens before it"
            predicted.append((int(features.examples[unit]), expected))
    assert predicted == wanted
    assert len(features.truncated) == len(cut)


# Labels.


def test_training_labels_are_those_of_the_words_with_pieces(tokenizers):
    examples = [
        sentence(["Angela", "\u200b", "York"], ["B-PER", "I-PER", "O"]),
        sentence(["\u200b"], ["O"]),
        sentence(["New", "York"], ["B-LOC", "I-LOC"]),
    ]
    features = BIO.features(examples, Layout(tokenizers["wordpiece"], 64, True), training=True)
    assert features.labels.tolist() == [3, 0, 1, 2]
    assert features.examples.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("tags", "entities", "labels", "outside"),
    [
        ("O B-PER I-PER B-LOC", True, ("O", "B-LOC", "B-PER", "I-PER"), "O"),
        ("S-PER B-LOC I-LOC E-LOC O", True, ("O", "B-LOC", "E-LOC", "I-LOC", "S-PER"), "O"),
        ("NOUN VERB NOUN ADP", False, ("ADP", "NOUN", "VERB"), "NOUN"),
    ],
)
def test_tags_are_found(tags, entities, labels, outside):
    task = make_task("tagging", None, [sentence(tags.split(), tags.split()), sentence(["x"])], {})
    assert (task.entities, task.labels, task.outside, task.joined) == (entities, labels, outside, "space")
    assert task.metrics[0] == ("f1" if entities else "accuracy")
    assert task_from_json(json.loads(json.dumps(task.to_json()))) == task


@pytest.mark.parametrize("tag", ["b-PER", "B_PER", "PER", "o"])
def test_tag_that_marks_no_entity_is_refused(tag):
    with pytest.raises(DataError, match=f"example 1: '{tag}' is not a tag of entities"):
        BIO.check([sentence(["Ada", "codes"], ["B-PER", tag])])


# Scores.


def scored(task, examples, tags, tokenizer, max_length=9):
    """Score so that each word with pieces gets the wanted tag with probability 0.9 (of all together)."""
    features = made(task, examples, tokenizer, max_length)
    flat = [tag for of_text in tags for tag in of_text]
    wanted = [task.labels.index(flat[word]) for word in features.words]
    table = np.zeros((len(wanted), len(task.labels)), dtype=np.float32)
    table[np.arange(len(wanted)), wanted] = math.log(9 * (len(task.labels) - 1))
    return task.predictions(table, features, examples)


def test_predictions_name_tags_entities_and_their_positions(tokenizers):
    examples = [
        sentence(["In", "New", "York", "met", "Angela", "Merkel", "Größe", "Größe", "Größe"], key="a"),
        sentence(["\u200b"], key="b"),
        sentence(["Angela", "\u200b", "York", "Paris"], key="c"),
    ]
    tags = [
        ["O", "B-LOC", "I-LOC", "O", "B-PER", "I-PER", "I-PER", "O", "I-LOC"],
        ["B-PER"],
        ["B-PER", "I-PER", "I-PER", "B-LOC"],
    ]
    first, unseen, third = scored(BIO, examples, tags, tokenizers["wordpiece"])
    assert (first.key, first.value) == ("a", tags[0])
    assert first.score is None, "each word and entity has its own"
    assert first.details["probabilities"] == pytest.approx([0.9] * 9)
    # The last tag, I after O, starts an entity, as in the metric.
    text = "In New York met Angela Merkel Größe Größe Größe"
    assert [(e["label"], e["text"], e["first_word"], e["end_word"]) for e in first.details["entities"]] == [
        ("LOC", "New York", 1, 3),
        ("PER", "Angela Merkel Größe", 4, 7),
        ("LOC", "Größe", 8, 9),
    ]
    for entity in first.details["entities"]:
        assert text[entity["start"] : entity["end"]] == entity["text"]
        assert entity["score"] == pytest.approx(0.9)
    assert (unseen.value, unseen.score) == (["O"], None)
    assert unseen.details == {"probabilities": [None], "unseen": 1, "entities": []}
    assert third.value == ["B-PER", "O", "I-PER", "B-LOC"]
    assert third.details["unseen"] == 1
    assert third.details["probabilities"][1] is None
    assert [entity["text"] for entity in third.details["entities"]] == ["Angela", "York", "Paris"]
    json.dumps([prediction.details for prediction in (first, unseen, third)])


def test_measures_are_of_entities_and_words(tokenizers):
    words = ["In", "New", "York", "met", "Angela", "Merkel"]
    gold = ["O", "B-LOC", "I-LOC", "O", "B-PER", "I-PER"]
    predicted = ["O", "B-LOC", "O", "O", "B-PER", "I-PER"]
    examples = [sentence(words, gold), sentence(words, gold)]
    predictions = scored(BIO, examples, [gold, predicted], tokenizers["byte_bpe"])
    measured = BIO.measure(predictions, examples)
    # Four entities are there, four are told, three of them right; one of twelve words is wrong.
    assert measured == pytest.approx({"f1": 3 / 4, "precision": 3 / 4, "recall": 3 / 4, "accuracy": 11 / 12})
    assert list(measured) == list(BIO.metrics)
    speech = Tagging(labels=("N", "V"), outside="N")
    tagged = [sentence(["a", "b"], ["N", "V"])]
    assert speech.measure(scored(speech, tagged, [["N", "N"]], tokenizers["unigram"]), tagged) == {"accuracy": 0.5}
    assert "entities" not in scored(speech, tagged, [["N", "N"]], tokenizers["unigram"])[0].details


def test_loss_is_the_summed_surprise_at_the_tags(tokenizers):
    examples = [
        sentence(["In", "New", "York", "met", "Angela", "Merkel", "the", "dog"], ["O", "B-LOC", "I-LOC", *["O"] * 5]),
        sentence(["York"], ["B-LOC"]),
    ]
    features = BIO.features(examples, Layout(tokenizers["wordpiece"], 7, True), training=True)
    batch = FeatureCollator(features, tokens=999, device=torch.device("cpu")).batch(np.arange(features.num_units))
    scores = np.random.default_rng(1).normal(size=(9, 5)).astype(np.float32)
    loss = BIO.loss(torch.tensor(scores), batch.labels, batch)
    surprise = 0.0
    for row, label in zip(scores.tolist(), [0, 1, 2, 0, 0, 0, 0, 0, 1], strict=True):
        surprise -= math.log(math.exp(row[label]) / sum(map(math.exp, row)))
    assert float(loss) == pytest.approx(surprise, abs=1e-5)
