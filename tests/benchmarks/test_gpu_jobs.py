"""The jobs for a GPU: their recipes exist, they run at toy size on a CPU, and their results become tables."""

import gzip
import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard

from benchmarks.gpu import pack
from benchmarks.gpu.__main__ import main
from benchmarks.gpu.jobs import GLUE, JOBS, Job
from benchmarks.gpu.report import report
from benchmarks.gpu.run import Setup, run_case
from benchmarks.runner import ROOT
from maskwright.core.spec import override, parse_overrides
from maskwright.recipes.catalog import resolve
from tests.training.toy_runs import write_corpus

PROBED = ("train", "probe")
CASES = [case for job in JOBS.values() for case in job.cases]


def lines_of(*lines: dict[str, Any]) -> str:
    return "".join(json.dumps({"seconds": 1.0, **line}) + "\n" for line in lines)


def test_cases_of_all_jobs_have_different_names() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


def test_recipes_of_jobs_are_valid() -> None:
    for case in CASES:
        if case.recipe:
            override(resolve(case.recipe), parse_overrides(case.set))


def test_cases_need_runs_of_the_cases_before_them() -> None:
    trained = set[str]()
    for case in CASES:
        assert not case.run or case.run in trained
        trained |= {case.name} if case.kind == "train" else set()


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Setup:
    """Corpora and labeled sets of all jobs, a few lines each, in the files and columns of the published ones."""
    folder = tmp_path_factory.mktemp("gpu")

    def write(name: str, lines: Iterable[str]) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")

    texts = [f"the {('cat', 'dog')[number % 2]} sat on mat {number}" for number in range(24)]
    pairs = [f"{text}\tthe cat sat" for text in texts]
    labels = [number % 2 for number in range(24)]
    labeled = {
        "glue/SST-2": ("sentence\tlabel", [f"{text}\t{label}" for text, label in zip(texts, labels, strict=True)]),
        "glue/MRPC": (
            "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
            [f"{label}\t1\t2\t{pair}" for pair, label in zip(pairs, labels, strict=True)],
        ),
        "glue/STS-B": (
            "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
            [f"{n}\ta\tb\t2012\t1\tnone\tnone\t{pair}\t{n % 5}.0" for n, pair in enumerate(pairs)],
        ),
        "glue/RTE": (
            "index\tsentence1\tsentence2\tlabel",
            [f"{n}\t{pair}\t{'not_' * (n % 2)}entailment" for n, pair in enumerate(pairs)],
        ),
        "chnsenticorp": ("label\ttext_a", [f"{label}\t我爱{'北京' * label}天安门" for label in labels]),
    }
    for name, (header, rows) in labeled.items():
        for split in ("train", "dev"):
            write(f"{name}/{split}.tsv", [header, *rows])
    for split in ("train", "dev"):
        write(f"glue/CoLA/{split}.tsv", [f"gj04\t{label}\t\t{text}" for text, label in zip(texts, labels, strict=True)])
        write(f"afqmc/{split}.txt", [f"我爱北京{label}\t我爱天安门\t{label}" for label in labels])
        write(f"weibo_ner/weiboNER_2nd_conll.{split}", ["北0\tB-GPE.NAM\n京1\tI-GPE.NAM\n我0\tO\n"] * 12)
    for name in ("wnut17train.conll", "emerging.dev.conll"):
        write(f"wnut17_ner/{name}", ["Anna\tB-person\nlikes\tO\nbread\tO\n"] * 12)
    write("synonyms_en_oewn/oewn_synonyms.tsv", ["garden\tn\thouse", "dog\tn\tcat"])
    write("synonyms_zh_cilin/cilin_synonyms.tsv", ["Aa01A01=\t花园 房子 城市"])
    write("blimp/agreement.jsonl", ['{"sentence_good": "the cat sits", "sentence_bad": "the cat sit"}'] * 3)
    english = [str(write_corpus(folder / f"{seed}.txt", documents=200, seed=seed)) for seed in range(2)]
    chinese = folder / "zh.txt"
    hanzi = str.maketrans("abcdefghijklmnopqrstuvwxyz.", "我爱北京天安门你他们是的花园房子城市红色长路面包水山。")
    chinese.write_text(Path(english[0]).read_text(encoding="utf-8").lower().translate(hanzi), encoding="utf-8")
    (folder / "out").mkdir()
    scratch = folder / "scratch"
    scratch.mkdir()
    return Setup(
        data=folder, out=folder / "out", scratch=scratch, corpora=(*english,), device="cpu", toy=True,
    )  # fmt: skip


SECONDS_EACH = {job: [] if job in ("together", "muon") else [pytest.mark.slow] for job in JOBS}


@pytest.mark.parametrize("job", [pytest.param(job, marks=marks) for job, marks in SECONDS_EACH.items()])
def test_a_job_runs_at_toy_size(job: str, setup: Setup) -> None:
    """Run all runs of a job; of its probes the first of each kind and recipe, as the others are alike at toy size."""
    setup = replace(setup, out=setup.out / job)
    setup.out.mkdir()
    if job == "chinese":
        setup = replace(setup, corpora=(str(setup.data / "zh.txt"),))
    by_name, seen, parts = {case.name: case for case in CASES}, set[tuple[str, ...]](), set[tuple[str, str]]()
    for case in JOBS[job].cases:
        measured = by_name.get(case.run, case)
        key = (case.kind, measured.recipe, *case.probes)
        if case.kind in ("probe", "speed") and key in seen and case.probes != ("intrinsic",):
            continue
        seen.add(key)
        if case.run and not setup.run_of(case.run).exists():
            assert run_case(by_name[case.run], setup) == 0
        assert run_case(case, setup) == 0, setup.results.read_text(encoding="utf-8")[-3000:]
        parts |= {(case.name, part.partition("=")[0]) for part in (*case.probes * (case.kind in PROBED), "end")}
    lines = [json.loads(line) for line in setup.results.read_text(encoding="utf-8").splitlines()]
    assert parts <= {(line["case"], line["part"]) for line in lines}
    assert all(line["scores"] for line in lines if "scores" in line)
    assert all(line["run"]["finished"] for line in lines if line["part"] == "run")


def test_a_probe_without_its_run_says_so(setup: Setup, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpora = [f"--corpus={corpus}" for corpus in setup.corpora]
    assert main(["tuned", "--toy", *corpora, f"--data={setup.data}", f"--out={tmp_path}"]) == 1
    assert "tuned bert rte: not run, there is no run of the case 'together bert' in" in capsys.readouterr().out
    assert "| CPU |" in report([(tmp_path / "results.jsonl").read_text(encoding="utf-8")])


@pytest.mark.slow
def test_a_job_continues(setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    teacher, student = [case for case in JOBS["distil"].cases if case.kind == "train"][:2]
    monkeypatch.setitem(JOBS, "muon", Job("", (student, teacher)))  # type: ignore[arg-type]
    corpora = [f"--corpus={corpus}" for corpus in setup.corpora]
    arguments = ["muon", "--toy", *corpora, f"--data={setup.data}", f"--out={tmp_path}", "--workers=1"]
    assert main(arguments) == 0
    text = (tmp_path / "results.jsonl").read_text(encoding="utf-8")
    ended = [line["case"] for line in map(json.loads, text.splitlines()) if line["part"] == "end"]
    assert ended == [f"prepare {teacher.name}", teacher.name, student.name]
    assert main(arguments) == 0
    assert (tmp_path / "results.jsonl").read_text(encoding="utf-8") == text
    assert "2 of 2 cases ended" in report([text])


def test_report_has_a_row_for_each_run_and_names_the_next_job() -> None:
    def run(loss: float, f1: float) -> str:
        result = {"tokens": 2_000_000, "seconds": 4.0, "flops": 3e15}
        scores = {"f1": {"mean": f1, "sd": 0.02, "best": f1}, "accuracy": {"mean": 0.0, "sd": 0.0, "best": 0.0}}
        return lines_of(
            {"case": "pairs NSP", "part": "run", "run": result, "messages": {"kernels": ["verified"]}},
            {"case": "pairs NSP", "part": "masked", "scores": {"word_loss": loss, "word_accuracy": 0.25}},
            {"case": "pairs NSP", "part": "end"},
            {"case": "pairs NSP mrpc", "part": "mrpc", "metric": "f1", "split": "dev", "seeds": 3, "scores": scores},
            {"case": "pairs NSP blimp", "part": "error", "error": "Traceback\nOSError: no pairs"},
        )

    call = {"part": "call", "jobs": ["pairs"], "date": "2026-11-27", "device": "H100", "cases": 3, "not_ended": 1}
    one = run(4.0, 0.5) + lines_of({**call, "minutes": 7.5})
    text = report([one])
    row = "| NSP | 2.00 | 3.00 | 4.00 | 500,000 | verified | 4.00 | 25.0 | 50.0 ± 2.0 (3) | OSError: no pairs |"
    assert "mrpc, f1 (dev), % | error |" in text
    assert row in text
    assert "| 2026-11-27 | pairs | H100 | 7.50 | 2 of 3 cases ended |" in text
    assert "Next: `checks`." in text
    assert report([one, one]) == text  # A file that another one continues.
    assert "| 5.00 ± 1.4 (2) | 25.0 ± 0 (2) |" in report([run(4.0, 0.5), run(6.0, 0.5)])
    done = lines_of(*({"case": case.name, "part": "end"} for case in JOBS["checks"].cases))
    assert "Next: `speed`." in report([done])
    again = lines_of({"case": "pairs NSP blimp", "part": "end"})
    assert "no pairs" not in report([one + again])


def test_report_keeps_tables_that_a_case_measured() -> None:
    table = {"title": "natural", "columns": ["contender", "tokens/s"], "rows": [["maskwright", "5"]], "words": 1}
    text = report([lines_of({"case": "speed natural", "part": "natural", **table})])
    assert "**natural**\n\n| contender | tokens/s |\n| --- | ---: |\n| maskwright | 5 |" in text


def test_pack_writes_a_small_corpus_labeled_sets_and_wheels(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    modern, novels = ([json.dumps({"text": f"{name} {n}"}) for n in range(40)] for name in ("modern", "novel"))
    (setup.data / "corpus").mkdir()
    text = "\n".join([*modern, ""]).encode()
    (setup.data / "corpus/en_modern.jsonl.zst").write_bytes(zstandard.compress(text))
    (setup.data / "corpus/en_novels.jsonl.gz").write_bytes(gzip.compress("\n".join(novels).encode()))
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr("subprocess.run", lambda command, check: commands.append(command))
    monkeypatch.setattr(pack, "WORDS", 61)
    monkeypatch.setattr(pack, "TRAINING_LINES", 9)

    assert pack.main(["--data", str(setup.data), "--to", str(tmp_path)]) == 0

    data = tmp_path / "data"
    lines = zstandard.decompress((data / "corpus/en_10m.jsonl.zst").read_bytes()).decode().splitlines()
    kept = [line for line in modern if hashlib.sha256(f"{line}\n".encode()).digest()[0] < 128]
    assert 0 < len(kept) < 30
    assert lines == kept + novels[: 30 - len(kept)]
    assert {path.name for path in data.iterdir()} == {"corpus", "blimp", "glue", "synonyms_en_oewn", "wnut17_ner"}
    for probe in GLUE:
        folder = probe.partition("=")[2]
        for source in (setup.data / folder).iterdir():
            read = source.read_text(encoding="utf-8").splitlines()
            cut = read[:9] if source.name == "train.tsv" else read
            assert (data / folder / source.name).read_text(encoding="utf-8").splitlines() == cut
    assert [command[4] for command in commands] == ["wheel", "download"]
    assert commands[1][-len(pack.WHEELS) :] == pack.WHEELS
    assert "of at most 64 MiB" in capsys.readouterr().out

    monkeypatch.setattr(pack, "MAX_BYTES", 100)
    assert pack.main(["--data", str(setup.data), "--to", str(tmp_path)]) == 1
    monkeypatch.setattr(pack, "SETS", ("squad",))
    with pytest.raises(SystemExit, match="has no files in squad/"):
        pack.pack_data(setup.data, tmp_path)


def test_wheels_to_pack_have_versions_in_constraints() -> None:
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert all(f"\n{name}==" in pins for name in pack.WHEELS)
