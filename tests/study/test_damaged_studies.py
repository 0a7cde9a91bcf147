"""Damaged and missing files of a study: the same command restores or makes them again, to the same report."""

import itertools
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toy_studies import TOY, write_corpus

from damage import HARMS, flip_bit
from maskwright.core.errors import CheckpointError, DeviceError
from maskwright.core.storage.checksums import write_record
from maskwright.core.storage.files import read_json
from maskwright.reporting.reporter import Reporter
from maskwright.study.compare import Comparison, compare
from maskwright.training.steps.optimizer import Optimizer
from recording import Recorder

Again = Callable[..., Comparison]


def run(folder: Path, reporter: Reporter | None = None, **changes: Any) -> Comparison:
    options: dict[str, Any] = {"flops": 2e7, "seeds": 1, "tasks": ("masked",), "set": TOY}
    options |= {"clean": ("deduplicate=none",), "workers": 1, "cache": folder / "cache"}
    options |= {"out": folder / "study", "reporter": reporter or Reporter(), **changes}
    return compare(folder / "corpus.txt", ["bert/tiny"], **options)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studies")
    write_corpus(folder / "corpus.txt")
    assert run(folder).finished
    shutil.copytree(folder / "study", folder / "kept")
    return folder


@pytest.fixture
def again(finished: Path, monkeypatch: pytest.MonkeyPatch) -> Again:
    """The same command with one more task, in the undamaged study of `finished`; it trains nothing."""
    shutil.rmtree(finished / "study")
    shutil.copytree(finished / "kept", finished / "study")
    monkeypatch.setattr(Optimizer, "step", None)
    return lambda reporter=None, **changes: run(finished, reporter, **{"tasks": ("masked", "intrinsic"), **changes})


@pytest.fixture(scope="module")
def undamaged(finished: Path) -> dict[str, Any]:
    return results(run(finished, tasks=("masked", "intrinsic")))


def results(done: Comparison) -> dict[str, Any]:
    assert done.finished
    return {name: value for name, value in done.report.items() if name != "made_by"}


FILES = (
    "study.json",
    "text/text.json",
    "text/held_out.jsonl",
    "text/train/*.jsonl",
    "text/contents.json",
    "tokenizers/*/tokenizer.json",
    "tokenizers/*/contents.json",
    "runs/*/seed-0/run.json",
    "runs/*/seed-0/model.safetensors",
    "runs/*/seed-0/metrics.jsonl",
    "runs/*/seed-0/data_card.json",
    "measurements/*/seed-0/masked.json",
    "measurements/*/seed-0/samples.json",
)


@pytest.mark.filterwarnings("ignore:prepared data is damaged")
def test_a_study_with_damaged_files_is_extended_to_the_same_report(undamaged, again, finished):
    harms, written = itertools.cycle(HARMS.values()), {}
    for name, harm in zip(FILES, harms, strict=False):
        (path,) = (finished / "study").glob(name)
        if path.name not in ("study.json", "run.json"):  # Records of the time and the machine.
            written[path] = path.read_bytes()
        harm(path)
    assert results(again()) == undamaged
    assert {path: path.read_bytes() for path in written} == written


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:prepared data is damaged")
@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("name", FILES)
def test_a_study_with_any_damage_is_extended_to_the_same_report(name, harm, undamaged, again, finished):
    (path,) = (finished / "study").glob(name)
    HARMS[harm](path)
    assert results(again()) == undamaged


def test_what_is_restored_is_named(again: Again, finished: Path) -> None:
    for name in ("study.json", "runs/*/seed-0/model.safetensors", "measurements/*/seed-0/masked.json"):
        flip_bit(next((finished / "study").glob(name)))
    flip_bit(finished / "study" / "text" / "held_out.jsonl")
    recorder = Recorder()
    with pytest.warns(UserWarning, match=r"text: held_out\.jsonl is damaged"):
        again(recorder, tasks=("masked",))
    restored = recorder.on("restored")
    assert len(restored) == 3
    for name in ("study.json", "model.safetensors", "masked.json"):
        assert any(name in line for line in restored)


def test_text_that_cannot_be_made_again_is_refused(again: Again, finished: Path) -> None:
    flip_bit(finished / "study" / "text" / "held_out.jsonl")
    corpus = (finished / "corpus.txt").read_text()
    (finished / "corpus.txt").write_text(corpus.replace("captain", "sailor"))
    refused = pytest.raises(CheckpointError, match="text was damaged, and is not the same")
    try:
        with pytest.warns(UserWarning, match="is rebuilt"), refused:
            again()
        with pytest.raises(CheckpointError, match="text was damaged, and is not the same"):
            again()
    finally:
        (finished / "corpus.txt").write_text(corpus)


def test_a_record_damaged_with_its_copy_is_one_error(again: Again, finished: Path) -> None:
    for path in (finished / "study").rglob("study.json"):
        flip_bit(path)
    with pytest.raises(CheckpointError, match=r"study\.json is damaged: .* remove .*study to start again"):
        again()


def test_a_study_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "study").mkdir()
    write_record(tmp_path / "study" / "study.json", {"format": 1, "corpus": [str(tmp_path / "corpus.txt")]})
    write_corpus(tmp_path / "corpus.txt")
    with pytest.raises(CheckpointError, match=r"another version of maskwright: its format is 1.*another --out"):
        run(tmp_path)


def test_remains_of_kills_are_removed(again: Again, finished: Path) -> None:
    study = finished / "study"
    left = [study / ".text.0a1b2c3d.tmp", study / ".study.json.0a1b2c3d.tmp"]
    left += [next(study.glob("measurements/*/seed-0")) / ".masked.json.0a1b2c3d.tmp"]
    left[0].mkdir()
    for path in (left[0] / "held_out.jsonl", *left[1:]):
        path.write_text("{")
    assert again(tasks=("masked",)).finished
    assert not any(path.exists() for path in left)


@pytest.mark.skipif(sys.platform == "win32", reason="needs locks")
def test_a_second_process_is_refused(again: Again, finished: Path) -> None:
    class Second(Recorder):
        def message(self, topic: str, text: str) -> None:
            if topic == "study":
                with pytest.raises(CheckpointError, match="another process"):
                    again()
            super().message(topic, text)

    again(second := Second(), tasks=("masked",))
    assert second.on("study")
    assert read_json(finished / "study" / "report.json")["tasks"] == ["masked"]


def test_a_study_removed_while_it_works_is_not_made_anew(again: Again, finished: Path) -> None:
    class Removing(Recorder):
        def message(self, topic: str, text: str) -> None:
            if topic == "study":
                shutil.rmtree(finished / "study")

    with pytest.raises(DeviceError, match="was removed while this process worked in it"):
        again(Removing())
    assert not (finished / "study").exists()
    (finished / "study").mkdir()
