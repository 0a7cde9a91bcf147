"""ERNIE on dialogues from a file of turns: a line is a turn, of however many sentences, and comes to training whole."""

from pathlib import Path

import numpy as np
import pytest
from toy_runs import train_toy

from maskwright.core.errors import DataError
from maskwright.data.shards.corpus import Corpus
from maskwright.training.pretrain import Run

# Each of two sentences, in small letters without a full stop, or of the words that every shop says.
GREETING = "good morning and welcome to our shop. what can I do for you today?"
QUESTIONS = [
    f"I am looking for {thing}. do you have any" for thing in ("bread", "paper", "shoes", "tea", "ink", "rope")
]
ANSWERS = ["yes, it is over there. help yourself", "no, I am sorry. come again tomorrow", "perhaps. let me have a look"]
DIALOGUES = [[GREETING, question, answer] for question in QUESTIONS for answer in ANSWERS]


def trained(folder: Path, dialogues: list[list[str]], **more: object) -> Run:
    file = folder / "dialogues.txt"
    file.write_text("\n\n".join("\n".join(turns) for turns in dialogues), encoding="utf-8")
    return train_toy(folder, corpus=file, recipe="ernie/base-dialogue", steps=2, **{"clean": (), **more})


def prepared(folder: Path) -> list[list[str]]:
    """Read back what training was given: the dialogues with their turns."""
    [tokens] = (folder / "cache").glob("tokens-*")
    corpus = Corpus.open(tokens)
    tokenizer, documents = corpus.tokenizer(), corpus.documents
    ends = np.asarray(documents.sentence_ends)
    starts = np.concatenate([[0], ends[:-1]])
    turns = [corpus.take(starts[[turn]], ends[[turn]]).ids.tolist() for turn in range(len(ends))]
    texts = ["".join(map(tokenizer.token_text, turn)).replace("##", "") for turn in turns]
    return [texts[first:last] for first, last in zip(documents.first, documents.last, strict=True)]


def as_tokens(dialogues: list[list[str]]) -> list[list[str]]:
    return [["".join(turn.lower().split()) for turn in turns] for turns in dialogues]


def test_turns_of_several_sentences_stay_turns_and_a_dialogue_that_comes_again_is_left_out(tmp_path: Path) -> None:
    assert trained(tmp_path, DIALOGUES + DIALOGUES[:3]).finished
    assert prepared(tmp_path) == as_tokens(DIALOGUES)


def test_the_user_has_the_last_word_on_cleaning(tmp_path: Path) -> None:
    assert trained(tmp_path, DIALOGUES + DIALOGUES[:3], clean=("deduplicate=none",)).finished
    assert prepared(tmp_path) == as_tokens(DIALOGUES + DIALOGUES[:3])


def test_dialogues_without_three_lines_are_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no training sequence in this input format"):
        trained(tmp_path, [[" ".join(turns)] for turns in DIALOGUES])
