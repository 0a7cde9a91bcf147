"""Each suite runs end to end at toy size, in this process and offline."""

import dataclasses
import os
import pkgutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import latency, texts
from benchmarks.__main__ import main
from benchmarks.ours import GPU_LEVERS, INFERENCE_LEVERS, LEVERS
from benchmarks.quality import LIMIT, RATES
from benchmarks.runner import Outcome, Settings
from benchmarks.suites import SIZES, prepare

pytest.importorskip("transformers")


@pytest.mark.parametrize(
    ("arguments", "rows"),
    [
        (["train", "--cases", "natural"], 4),
        (["train", "--cases", "electra"], 3),
        # transformers' trainer and datasets take seconds to import.
        pytest.param(["inference", "--cases", "1 x 16"], 8, marks=pytest.mark.slow),
        pytest.param(["finetune"], 4, marks=pytest.mark.slow),
        pytest.param(["corpus"], 2, marks=pytest.mark.slow),
        (["memory"], 3),
        pytest.param(["latency", "--cases", "quiet"], 8, marks=pytest.mark.slow),
        (["scaling", "--cases", "length"], 1),
        pytest.param(["scaling", "--cases", "processes"], 2, marks=pytest.mark.slow),
    ],
)
def test_a_suite_measures_every_contender(arguments, rows, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("MASKWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "environ", os.environ)  # datasets replaces it by a copy; rich reads the first.
    out = tmp_path / "tables.md"
    assert main([*arguments, "--quick", "--in-process", "--rounds", "1", "--out", str(out)]) == 0
    lines = [line for line in out.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert len([line for line in lines if "---" not in line]) >= rows + 1
    # A processor may lack bf16; nothing else may fail.
    assert [line for line in lines if "not measured" in line and "PrecisionWarning" not in line] == []
    assert out.read_text(encoding="utf-8").splitlines()[0] in capsys.readouterr().out


@pytest.mark.slow
def test_quality_trains_and_measures_both_sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASKWRIGHT_CACHE", str(tmp_path / "cache"))
    corpus, out = tmp_path / "corpus", tmp_path / "tables.md"
    generator = np.random.default_rng(0)
    corpus.mkdir()
    for number in range(40):
        words = [f"w{word}" for word in generator.zipf(1.5, 2000) % 500]
        sentences = [" ".join(words[first : first + 10]) + "." for first in range(0, len(words), 10)]
        (corpus / f"{number}.txt").write_text(" ".join(sentences), encoding="utf-8")
    assert (
        main(["quality", "--corpus", str(corpus), "--minutes", "0.01", "--cases", "maskwright/mini", "--out", str(out)])
        == 0
    )
    assert out.read_text(encoding="utf-8").count("| transformers") == len(RATES) + LIMIT


def test_unknown_suites_are_refused() -> None:
    with pytest.raises(SystemExit):
        main(["trian"])
    assert main(["train", "--quick", "--in-process", "--cases", "natrual"]) == 1


@pytest.mark.parametrize(
    "target",
    sorted({name for lever in (*LEVERS.values(), *GPU_LEVERS.values(), *INFERENCE_LEVERS.values()) for name in lever}),
)
def test_levers_name_functions_that_exist(target: str) -> None:
    assert callable(pkgutil.resolve_name(target))


def test_made_texts_have_the_requested_lengths(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    lengths = texts.natural_lengths(50)
    tokenizer = AutoTokenizer.from_pretrained(texts.write_tokenizer(tmp_path / "tokenizer", 500))
    encoded = tokenizer(texts.texts(lengths, 500))["input_ids"]
    assert [len(ids) for ids in encoded] == lengths.tolist()
    assert tokenizer.unk_token_id not in np.concatenate(encoded)


def test_masked_batches_are_those_of_the_collator() -> None:
    from benchmarks.peers import masked_batch

    generator = np.random.default_rng(0)
    ids = [[2, *generator.integers(5, 300, size).tolist(), 3] for size in (400, 100)]
    batch = {name: value.numpy() for name, value in masked_batch(ids, 300, generator).items()}
    selected = batch["labels"] != -100
    assert 0.1 < selected.sum() / batch["attention_mask"].sum() < 0.2
    assert (batch["labels"][selected] == batch["original"][selected]).all()
    assert (batch["original"][selected] > 4).all()
    assert (batch["input_ids"][~selected] == batch["original"][~selected]).all()
    assert 0.6 < (batch["input_ids"][selected] == 4).mean() < 0.95


def test_worktrees_are_removed() -> None:
    from benchmarks.__main__ import _revision

    try:
        with _revision("HEAD") as checkout:
            assert (checkout[1] / "maskwright" / "__init__.py").is_file()
    except (subprocess.CalledProcessError, FileNotFoundError):
        pytest.skip("not a git checkout")
    assert not checkout[1].exists()


def test_real_data_is_split_without_repetition(tmp_path: Path) -> None:
    from benchmarks.labeled import DATA

    glue = tmp_path / "glue" / "SST-2"
    glue.mkdir(parents=True)
    for name, rows in (("train", 3000), ("dev", 20)):
        lines = [f'{name} "{row % 2900}\t{row % 2}' for row in range(rows)]
        if name == "train":  # The same texts as others, with the other label.
            lines += [*(f'dev "{row}\t{1 - row % 2}' for row in range(20)), *(f'train "{row}\t2' for row in range(99))]
        (glue / f"{name}.tsv").write_text("\n".join(["sentence\tlabel", *lines]) + "\n", encoding="utf-8")
    files = DATA["sst-2"].write(tmp_path, tmp_path / "split", most=2000)
    parts = {part: Path(path).read_text(encoding="utf-8").splitlines() for part, path in files.items()}
    assert {part: len(lines) for part, lines in parts.items()} == {"train": 2001, "dev": 501, "test": 21}
    lines = [line for part in parts.values() for line in part]
    assert len({line.rpartition(",")[0] for line in lines}) == 2000 + 500 + 20 + 1
    assert parts["test"][1] == '"dev ""0",0'


def test_kept_runs_of_other_settings_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import labeled

    files = dict.fromkeys(("train", "dev", "test"), "words.conll")
    (tmp_path / "words.conll").write_text("w1\tO\n", encoding="utf-8")
    monkeypatch.setattr(labeled, "DATA", {"words": labeled.Data(kind="tagging", metric="f1", **files)})
    scores = {"score": 0.5, "baselines": {}, "settings": dict.fromkeys(labeled._SAME, 1)}
    outcome = Outcome("", [{"work": 1, "seconds": 1.0, "cpu": 1.0, "peak": 1, **scores}])
    runs = list[str]()
    monkeypatch.setattr(labeled, "measure", lambda made, *_, **__: runs.append(made[0].name) or [outcome])
    settings = Settings(scratch=tmp_path, data=tmp_path, results=tmp_path / "kept", set=("epochs=1",))
    (table,) = labeled.compare_scores(tmp_path, settings)
    assert [*labeled.compare_scores(tmp_path, settings)] == [table]
    assert runs == ["maskwright", "Trainer", "frozen"]
    with pytest.raises(RuntimeError, match="another set:"):
        list(labeled.compare_scores(tmp_path, dataclasses.replace(settings, set=("epochs=2",))))
    monkeypatch.setenv("OMP_NUM_THREADS", "77")
    (tmp_path / "words.conll").write_text("w2\tO\n", encoding="utf-8")
    with pytest.raises(RuntimeError, match="another train, dev, test, threads:"):
        list(labeled.compare_scores(tmp_path, settings))


def test_other_engines_have_the_threads_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    threads = []
    for name in ("_exported", "_pooled"):
        monkeypatch.setattr(latency, name, lambda *_: None)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)

    def session(path: object, options: Any = None) -> Any:
        threads.append(options and options.intra_op_num_threads)
        return SimpleNamespace(get_inputs=list)

    def compile_model(path: object, device: str, options: Mapping[str, Any] | None = None) -> Any:
        threads.append(options and options["INFERENCE_NUM_THREADS"])
        return SimpleNamespace(inputs=[], outputs=[])

    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    monkeypatch.setitem(sys.modules, "openvino", SimpleNamespace(compile_model=compile_model))
    for engine in ("onnx", "openvino"):
        latency._ENGINES[engine]("model", Path(), "int8")
    assert threads == [3, 3]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sts-b", "wnut-17"])
def test_real_data_compares_scores_and_keeps_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASKWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "environ", os.environ)
    task = prepare(Settings(scratch=tmp_path, quick=True, in_process=True), SIZES["tiny"])
    for part in ("train", "dev"):
        path = tmp_path / "glue" / "STS-B" / f"{part}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = ["\t".join([*"0123456", f"w{row} w1", f"{part} w3", f"{row % 5}.5"]) for row in range(560)]
        path.write_text("\n".join(["header", *lines]), encoding="utf-8")
    for file in ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"):
        path = tmp_path / "wnut17_ner" / file
        path.parent.mkdir(exist_ok=True)
        path.write_text("w1\tB-person\nw2\tO\n\t\n" * 30, encoding="utf-8")
    arguments = ["finetune", "--quick", "--in-process", "--cases", name, "--model", str(task.folder / "start")]
    arguments += ["--data", str(tmp_path), "--results", str(tmp_path / "kept"), "--out", str(tmp_path / "out.md")]
    tables = []
    for _ in range(2):  # The second call repeats no run.
        assert main(arguments) == 0
        tables.append((tmp_path / "out.md").read_text(encoding="utf-8"))
    assert tables[0] == tables[1]
    assert all(f"| {each} |" in tables[0] for each in ("maskwright", "Trainer", "maskwright, frozen"))
