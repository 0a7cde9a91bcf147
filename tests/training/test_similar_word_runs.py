"""A run that replaces by similar words: what it says, that it repeats itself, and that it fails early."""

from pathlib import Path

import numpy as np
import pytest
import torch
from test_batches import recipe as bert_recipe
from test_batches import toy_text
from toy_runs import TOY, train_toy, write_corpus

from maskwright.checkpoints.checkpoint import read_checkpoint
from maskwright.core.errors import DataError
from maskwright.training.start.preparation import measured_outcomes
from recording import Recorder


def run(folder: Path, out: str, source: str) -> Recorder:
    recorder = Recorder()
    table = f"replacement={{kind: similar_word, table: {{source: {source}}}}}"
    train_toy(folder, out, steps=3, set=(*TOY, table, "masking=whole_word"), reporter=recorder)
    return recorder


def test_a_run_reports_the_coverage_of_its_table_and_is_reproducible(tmp_path: Path) -> None:
    thesaurus = tmp_path / "synonyms.txt"
    thesaurus.write_text("cat dog sister captain teacher river\nwatches follows likes\n", encoding="utf-8")
    recorder = run(tmp_path, "a", str(thesaurus))
    table, outcomes = recorder.on("similar")
    assert "synonyms.txt: 2 groups of synonyms" in table
    assert "% of the words in the corpus have a similar word" in table
    assert "% similar word" in outcomes
    assert "% random word (no similar word)" in outcomes
    topics = [topic for topic, _ in recorder.messages]
    assert topics.index("tokens") < topics.index("similar") < topics.index("plan")
    run(tmp_path, "b", str(thesaurus))
    first, second = (read_checkpoint(tmp_path / name).state for name in "ab")
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_table_that_hardly_covers_anything_is_warned_of(tmp_path: Path) -> None:
    few, many = tmp_path / "few.txt", tmp_path / "many.txt"
    few.write_text("cat dog\n", encoding="utf-8")
    words = sorted(set((write_corpus(tmp_path / "corpus.txt")).read_text(encoding="utf-8").replace(".", " ").split()))
    many.write_text(" ".join(words) + "\n", encoding="utf-8")
    (warned,) = run(tmp_path, "a", str(few)).on("warning", "similar")
    assert "of the selected tokens become random words" in warned
    assert "replacement.table.source" in warned
    assert not run(tmp_path, "b", str(many)).on("warning", "become random words")


def test_a_table_without_words_of_the_corpus_stops_the_run(tmp_path: Path) -> None:
    thesaurus = tmp_path / "other.txt"
    thesaurus.write_text("北京 上海\n", encoding="utf-8")
    with pytest.raises(DataError, match="no word of the corpus has a similar word"):
        run(tmp_path, "a", str(thesaurus))


def test_a_source_that_is_not_there_is_missed_before_any_work(tmp_path: Path) -> None:
    recorder, source = Recorder(), f"replacement.table.source={tmp_path / 'missing.txt'}"
    with pytest.raises(DataError, match="missing"):
        train_toy(tmp_path, recipe="macbert/tiny", set=(source,), reporter=recorder)
    assert not recorder.on("corpus")


def test_outcomes_are_measured_on_sequences_of_the_corpus() -> None:
    text = toy_text()
    counted = measured_outcomes(bert_recipe("replacement=similar_word"), text, 0)
    total = sum(counted.values())
    # Every word of the toy's table has similar ones.
    assert counted["random word (no similar word)"] == 0
    assert abs(counted["similar word"] / total - 0.8) < 4.5 * np.sqrt(0.16 / total)
    assert measured_outcomes(bert_recipe(), text, 0) == {}
