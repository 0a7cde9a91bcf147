"""What pretraining is worth: parts of files, blind scores, cells that are not repeated, one table of both halves."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import score_sets, scores
from benchmarks.score_baseline import blind_scores
from benchmarks.score_sets import SETS, ScoredSet, chosen_sets, write_parts
from maskwright.core.errors import MaskwrightError
from maskwright.core.spec import override, parse_overrides
from maskwright.finetuning import finetuning
from maskwright.finetuning.benchmarks import BENCHMARKS
from maskwright.finetuning.hyperparameters import Hyperparameters

CATS = ScoredSet(
    name="cats",
    title="Cats",
    task="sst-2",
    language="en",
    form="table",
    files={"train": ("cats/train.tsv",), "dev": ("cats/dev.tsv",)},
    shown=("accuracy",),
)
ASKED = ScoredSet(
    name="asked",
    title="Asked",
    task="squad-1.1",
    language="en",
    form="articles",
    files={"train": ("asked/a.json", "asked/b.json"), "dev": ("asked/dev.json",)},
    shown=("f1", "exact_match"),
    weight=0.5,
    later=2,
)


def write_cats(folder: Path, rows: int = 40) -> Path:
    (folder / "cats").mkdir(parents=True)
    for part, first in (("train", 0), ("dev", 101)):
        lines = [
            f"the {('dog', 'cat')[number % 2]} sat on the {('mat', 'tree')[number // 2 % 2]} !\t{number % 2}"
            for number in range(first, first + rows)
        ]
        (folder / "cats" / f"{part}.tsv").write_text("\n".join(["sentence\tlabel", *lines]) + "\n", encoding="utf-8")
    return folder


def write_asked(folder: Path) -> Path:
    (folder / "asked").mkdir(parents=True)
    cat = [{"text": "cat", "answer_start": 4}]
    for name, count in (("a", 6), ("b", 4), ("dev", 5)):
        paragraphs = [
            {
                "context": f"the cat sat on the mat {name} {number}",
                "qas": [{"id": f"{name}{number}-{place}", "question": "the", "answers": cat} for place in range(2)],
            }
            for number in range(count)
        ]
        path = folder / "asked" / f"{name}.json"
        path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}), encoding="utf-8")
    return folder


def contexts(path: Path) -> list[str]:
    (article,) = json.loads(path.read_text(encoding="utf-8"))["data"]
    return [paragraph["context"] for paragraph in article["paragraphs"]]


# --- the sets


def test_every_set_names_a_benchmark_its_metrics_and_known_settings() -> None:
    assert len({each.name for each in SETS}) == len(SETS) == 11
    for each in SETS:
        row = BENCHMARKS[each.task]
        assert row.language == each.language
        assert set(each.shown) <= set(row.metrics or ("f1", "exact_match"))
        own = [(name, value) for name, value in parse_overrides(each.settings) if not name.startswith("task.")]
        override(Hyperparameters(), own)


def test_a_misspelt_set_is_answered_with_the_nearest() -> None:
    with pytest.raises(MaskwrightError, match="Did you mean 'mrpc'"):
        chosen_sets(["mprc"])
    assert chosen_sets([]) == list(SETS)


def test_a_part_of_a_table_keeps_its_heading_and_is_spread_evenly(tmp_path: Path) -> None:
    data = write_cats(tmp_path / "data")
    files = write_parts(CATS, data, tmp_path / "out", {"train": 10, "dev": None})
    heading, *rows = files["train"][0].read_text(encoding="utf-8").splitlines()
    whole = (data / "cats" / "train.tsv").read_text(encoding="utf-8").splitlines()[1:]
    assert heading == "sentence\tlabel"
    assert rows == [whole[place] for place in range(2, 40, 4)]
    assert files["dev"][0].read_text(encoding="utf-8") == (data / "cats" / "dev.tsv").read_text(encoding="utf-8")


def test_texts_keep_their_questions_and_the_first_of_dev_may_be_learnt_from(tmp_path: Path) -> None:
    data = write_asked(tmp_path / "data")
    files = write_parts(ASKED, data, tmp_path / "all", {})
    learnt, scored = contexts(files["train"][0]), contexts(files["dev"][0])
    assert len(learnt) == 6 + 4 + 2
    assert [text[-5:] for text in learnt[-2:]] == ["dev 0", "dev 1"]
    assert [text[-5:] for text in scored] == ["dev 2", "dev 3", "dev 4"]
    assert not set(learnt) & set(scored)
    some = contexts(write_parts(ASKED, data, tmp_path / "some", {"train": 6, "dev": 2})["train"][0])
    assert len(some) == 3
    assert set(some) < set(learnt)


def test_sentences_and_records_are_cut_whole(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("a\tO\nb\tB-X\n\n\nc\tO\n\n" * 3, encoding="utf-8")
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"id": number, "questions": ["q"] * 2}) + "\n" for number in range(8)), encoding="utf-8"
    )
    form = score_sets._FORMS["sentences"]
    pieces = form.read(tmp_path / "a.conll")
    assert pieces == ["a\tO\nb\tB-X\n", "c\tO\n"] * 3
    form.write(tmp_path / "b.conll", pieces)
    assert form.read(tmp_path / "b.conll") == pieces
    records = score_sets._FORMS["records"]
    sizes = [records.examples(piece) for piece in records.read(tmp_path / "a.jsonl")]
    chosen = score_sets._spread(records.read(tmp_path / "a.jsonl"), sizes, 8)
    assert [json.loads(line)["id"] for line in chosen] == [1, 3, 5, 7]


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=50), most=st.integers(1, 100))
def test_a_part_holds_each_piece_once_in_order_and_about_what_was_asked(sizes: list[int], most: int) -> None:
    chosen = score_sets._spread(range(len(sizes)), sizes, most)
    assert chosen == sorted(set(chosen))
    if sum(sizes) <= most:
        assert len(chosen) == len(sizes)
    else:
        assert abs(len(chosen) - len(sizes) * most / sum(sizes)) <= 1


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MaskwrightError, match=r"cats/train\.tsv, of the set Cats, is not there"):
        write_parts(CATS, tmp_path, tmp_path / "out", {})


# --- blind scores


def test_the_most_frequent_class_is_said_blindly(tmp_path: Path) -> None:
    texts = {"train": "good\t1\nbad\t0\nnice\t1\n", "dev": "x\t1\ny\t0\nz\t0\nw\t0\n"}
    files = {}
    for part, rows in texts.items():
        files[part] = [tmp_path / f"{part}.tsv"]
        files[part][0].write_text("sentence\tlabel\n" + rows, encoding="utf-8")
    assert blind_scores("sst-2", files) == {"accuracy": 0.25}


def test_the_mean_correlates_with_nothing_and_a_blind_tagger_finds_nothing(tmp_path: Path) -> None:
    rows = "".join(f"{number}\tg\tf\ty\to\ts\ts\ta text\tanother\t{number}\n" for number in range(5))
    table = tmp_path / "sts.tsv"
    heading = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
    table.write_text(heading + rows, encoding="utf-8")
    assert blind_scores("sts-b", {"train": [table], "dev": [table]}) == {"spearman": 0.0, "pearson": 0.0}
    tagged = tmp_path / "tagged.conll"
    tagged.write_text("Ann\tB-person\nlives\tO\nhere\tO\n\n" * 4, encoding="utf-8")
    found = blind_scores("wnut17", {"train": [tagged], "dev": [tagged]})
    assert found is not None
    assert found["f1"] == 0.0
    assert found["accuracy"] == pytest.approx(2 / 3)


def test_no_answer_is_said_of_every_question(tmp_path: Path) -> None:
    files = write_parts(ASKED, write_asked(tmp_path / "data"), tmp_path / "out", {})
    assert blind_scores("squad-1.1", files) is None


# --- the command


@pytest.fixture
def command(tmp_path: Path, bert_folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Words that measure the set of cats with a tiny model."""
    import torch

    from maskwright.training.device import Machine

    machine = Machine(torch.device("cpu"), "a machine", 1, "default", 1e9, None)
    monkeypatch.setattr(finetuning, "prepare_machine_again", lambda *_: (machine, ""))
    for room in (score_sets, scores):
        monkeypatch.setattr(room, "SETS", (CATS, ASKED))
    write_asked(write_cats(tmp_path / "data"))
    settings = [f"--set={each}" for each in ("batch_size=8", "learning_rate=5e-3")]
    return [
        "--data", str(tmp_path / "data"), "--english", str(bert_folder), "--out", str(tmp_path / "out"),
        "--only", "cats", "--epochs", "2", "--seeds", "2", *settings,
    ]  # fmt: skip


def test_both_sides_are_measured_once_and_laid_side_by_side(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: Counter[tuple[bool, int]] = Counter()
    whole = finetuning.finetune

    def counted(*given: Any, **named: Any) -> Any:
        asked[named["from_scratch"], named["seeds"]] += 1
        return whole(*given, **named)

    monkeypatch.setattr(finetuning, "finetune", counted)
    assert scores.main(command) == 0
    assert asked == {(False, 2): 1, (True, 2): 1}
    held = json.loads((tmp_path / "out" / "scores.json").read_text(encoding="utf-8"))
    (row,) = held["rows"]
    assert row[:4] == ["Cats", "accuracy", "40", "dev 40"]
    assert "±" in row[4]
    assert "±" in row[5]
    assert row[7] == "0.500"
    assert held["cells"][0]["results"]["from_scratch"] is False
    assert held["cells"][1]["results"]["from_scratch"] is True
    assert held["cells"][0]["results"]["settings"]["learning_rate"] == 5e-3
    page = (tmp_path / "out" / "scores.md").read_text(encoding="utf-8")
    assert "| Cats | accuracy | 40 | dev 40 |" in page
    capsys.readouterr()
    assert scores.main(command) == 0  # Nothing is left to do.
    assert sum(asked.values()) == 2
    assert "cats-scratch is done already" in capsys.readouterr().err
    assert scores.main([*command, "--seeds", "3"]) == 0  # One more seed of each.
    again = json.loads((tmp_path / "out" / "scores.json").read_text(encoding="utf-8"))["cells"]
    assert [len(cell["results"]["seeds"]) for cell in again] == [3, 3]
    assert again[0]["results"]["seeds"][:2] == held["cells"][0]["results"]["seeds"]
    assert again[0]["seconds"] >= held["cells"][0]["seconds"]


def test_an_interruption_ends_with_130_and_the_rest_is_rendered(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = finetuning.finetune

    def stopped(*given: Any, **named: Any) -> Any:
        if named["from_scratch"]:
            return finetuning.FineTuning(folder=named["out"], finished=False, results=None, stopped_by="SIGINT")
        return whole(*given, **named)

    monkeypatch.setattr(finetuning, "finetune", stopped)
    assert scores.main(command) == 130
    assert scores.main(["--render", "--out", str(tmp_path / "out")]) == 0
    (row,) = json.loads((tmp_path / "out" / "scores.json").read_text(encoding="utf-8"))["rows"]
    assert row[5:7] == ["-", "-"]


def test_what_is_missing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert scores.main(["--out", str(tmp_path)]) == 2
    assert "no data was given" in capsys.readouterr().err
    assert scores.main(["--out", str(tmp_path), "--data", str(tmp_path)]) == 2
    assert "no model was given" in capsys.readouterr().err
    assert scores.main(["--out", str(tmp_path), "--render"]) == 2
    assert "holds no finished cell" in capsys.readouterr().err
