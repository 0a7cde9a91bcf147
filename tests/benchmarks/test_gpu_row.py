"""The row of the GPU: its parts work on a processor, both sides compute the same, and without a GPU it says so."""

import operator
from pathlib import Path

import pytest
import torch

from benchmarks import __main__ as command
from benchmarks import gpu, gpu_parts, gpu_peer
from benchmarks.goals import OWN_BF16, OWN_PLAIN, TRAINER, TUNED
from benchmarks.gpu_parts import PARTS, Choice, Makers
from benchmarks.gpu_report import A100, report, scaled, sheet_of
from benchmarks.gpu_sides import Part
from benchmarks.render import render
from benchmarks.report import keep
from benchmarks.settings import Settings
from maskwright.core.errors import MaskwrightError

CPU = torch.device("cpu")
_OTHERS_WARN = pytest.mark.filterwarnings("default")  # Those of a compiler and of transformers are their own.


def _settings(folder: Path) -> Settings:
    return Settings(scratch=folder, quick=True, rounds=2)


def _part(folder: Path, name: str, peers: tuple[str, ...] = (TUNED,)) -> tuple[Makers, Part]:
    makers = Makers(_settings(folder), Choice(parts=(name,), peers=peers))
    return makers, makers.make(name)


def _task(makers: Makers, part: Part, folder: Path, side: str) -> gpu_peer.Message:
    torch.save(makers.batches(part), folder / "batches")
    return {
        "do": "set up",
        "side": side,
        "folder": str(makers.folder(part)),
        "batches": str(folder / "batches"),
        "scratch": str(folder / "scratch"),
        "device": "cpu",
        "backend": "eager",
        "dropout": 0.1,
        "share": 0.1,
    }


@pytest.mark.slow
@_OTHERS_WARN
def test_all_parts_and_sides_work_on_any_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.compiler.reset()
    found = gpu.measured(CPU, _settings(tmp_path), backend="eager", apart=False)
    assert found.sound, found.checks
    assert {check.what for check in found.checks} == {f"{name}: loss" for name in ("128", "512", "natural")}
    compared, anchored = found.tables
    all_sides = [TUNED, TRAINER, OWN_PLAIN, OWN_BF16]
    assert [row[2] for row in compared.rows] == [*all_sides, *all_sides, TUNED, OWN_BF16, *[OWN_BF16] * 3]
    assert [row[1] for row in anchored.rows] == ["blocks of 128", "blocks of 512"]
    assert all(len(row) == len(table.columns) for table in found.tables for row in table.rows)
    assert {each["part"] for each in found.measurements} == set(PARTS)
    for each in found.measurements:
        assert len(each["seconds"]) == len(each["tokens"]) == 2
        assert (each["flops"] is None) == (each["ratio"] is not None) == (each["side"] != OWN_BF16)
        assert (each["anchor"] is None) == (not each["part"].startswith("electra"))
        assert each["fill"] == 1.0 or (each["part"] == "natural" and 0.3 < each["fill"] < 1)
        if each["flops"]:
            assert 0 < max(map(operator.truediv, each["flops"], each["seconds"])) < each["peak"]
    told = capsys.readouterr().err
    assert all(f"{name}: {OWN_BF16}: " in told for name in PARTS)  # Even a run that is cut off has shown them.
    page = tmp_path / "page.md"
    page.write_text("<!-- benchmark: gpu -->\n<!-- end of benchmark -->\n")
    keep(found, tmp_path, "gpu", {"quick": True, **_facts()})
    assert render(tmp_path, page) == ["gpu"]
    assert "ELECTRA's joint step" in page.read_text()


def _facts() -> dict[str, object]:
    machine = {"processor": "", "instructions": [], "threads": 1, "fp32_library": "default"}
    machine |= {"allocator": "", "allocator_settings": {}}
    return {"machine": machine, "versions": {}, "measured": "2026-01-01", "quiet": True, "busy_cores": 0.0}


@pytest.mark.slow
@_OTHERS_WARN
def test_sides_compute_in_processes_of_their_own(tmp_path: Path) -> None:
    choice = Choice(parts=("128",), peers=(TUNED,))
    found = gpu.measured(CPU, _settings(tmp_path), choice=choice, backend="eager")
    assert found.sound, found.checks
    assert [row[2] for row in found.tables[0].rows] == [TUNED, OWN_BF16]


@pytest.mark.slow
@_OTHERS_WARN
def test_what_fails_takes_nothing_else_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    electra = Makers._electra

    def broken(self: Makers, name: str) -> Part:
        if name == "electra-128":
            raise ValueError("broken")
        return electra(self, name)

    monkeypatch.setattr(Makers, "_electra", broken)
    choice = Choice(parts=("128", "electra-128", "electra-512"), peers=(TUNED,))
    found = gpu.measured(CPU, _settings(tmp_path), choice=choice, backend="no such thing", apart=False)
    failed = {check.what: check.found for check in found.checks if not check.passed}
    assert failed.keys() == {f"128: {TUNED}", "electra-128"}
    assert failed["electra-128"] == "ValueError: broken"
    assert [each["part"] for each in found.measurements] == ["128", "electra-512"]


def test_a_part_for_which_no_time_is_left_is_skipped(tmp_path: Path) -> None:
    found = gpu.measured(CPU, _settings(tmp_path), choice=Choice(parts=("tiny", "electra-128"), seconds=0.0))
    assert found.sound
    assert not found.measurements
    assert "No time was left for tiny, electra-128." in found.notes


@pytest.mark.slow
@_OTHERS_WARN
@pytest.mark.parametrize("side", [TUNED, TRAINER])
def test_a_side_short_of_memory_at_first_is_compiled_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    torch.compiler.reset()
    backward = torch.Tensor.backward if side == TRAINER else torch.autograd.backward
    left = [1]

    def short(*args: object, **kwargs: object) -> None:
        if left and left.pop():
            raise torch.OutOfMemoryError("CUDA out of memory")
        backward(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(torch.Tensor if side == TRAINER else torch.autograd, "backward", short)
    makers, part = _part(tmp_path, "128", (side,))
    worker = gpu_peer.Worker()
    answer = worker.answer(_task(makers, part, tmp_path, side))
    assert answer.get("told") == "compiled, short of memory as yet", answer
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert graphs
    for _ in range(2):
        assert 0 < worker.answer({"do": "turn"})["seconds"] < 60
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs  # No turn pays for compiling.


def test_without_a_gpu_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    found = gpu.run(Settings(scratch=tmp_path, quick=True))
    assert found.sound
    assert not found.measured
    assert "needs a CUDA GPU" in found.notes[0]


def test_without_a_gpu_what_was_measured_before_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    words = ["gpu", "--quick", "--results", str(tmp_path), "--allocator", "plain"]
    assert command.main(words) == 0
    assert not list(tmp_path.iterdir())
    (tmp_path / "gpu.json").write_text("measured on a GPU")
    assert command.main(words) == 0
    assert (tmp_path / "gpu.json").read_text() == "measured on a GPU"


def test_a_padded_batch_is_not_left_without_its_mask() -> None:
    mask = torch.tensor([[1, 1], [1, 0]])
    with pytest.raises(ValueError, match="unequal length"):
        gpu_parts._unmasked({"input_ids": mask, "attention_mask": mask})


def test_texts_of_natural_length_are_padded_to_one(tmp_path: Path) -> None:
    makers, part = _part(tmp_path, "natural")
    small, *batches = makers.batches(part)
    assert {values.shape[1] for batch in (small, *batches) for values in batch.values()} == {128}
    assert sum(int(batch["attention_mask"].sum()) for batch in batches) == sum(each.num_tokens for each in part.steps)
    assert all((batch["labels"][batch["attention_mask"] == 0] == -100).all() for batch in batches)


def test_what_the_environment_may_ask_for() -> None:
    assert Choice.of({}) == Choice()
    asked = Choice.of({"GPU_ROW_PARTS": "512,natural", "GPU_ROW_PEERS": "tuned,plain", "GPU_ROW_SECONDS": "90"})
    assert asked == Choice(parts=("512", "natural"), peers=(TUNED, OWN_PLAIN), seconds=90.0)
    assert Choice.of({"GPU_ROW_PEERS": "none"}).peers == ()
    for wrong in ({"GPU_ROW_PARTS": "64"}, {"GPU_ROW_PEERS": "all"}):
        with pytest.raises(MaskwrightError, match="unknown"):
            Choice.of(wrong)


def test_sizes_choose_parts(tmp_path: Path) -> None:
    settings = Settings(scratch=tmp_path, sizes=("base", "tiny"))
    assert Makers(settings, Choice()).names == ["128", "512", "natural", "tiny"]


def test_a_published_speed_grows_with_the_peak() -> None:
    assert scaled(122_000, A100) == 122_000
    assert scaled(122_000, 2.5 * A100) == 305_000
    assert sheet_of("NVIDIA H100 80GB HBM3") == 989e12
    assert sheet_of("a processor, not a GPU") == 0
    assert not report((), {}, (), "a GPU", 0.0).measured
