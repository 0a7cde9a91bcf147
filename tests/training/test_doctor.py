"""The doctor: what it says follows from what it found, and what was measured once is kept for that machine."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from maskwright.core.errors import DeviceError
from maskwright.kernels.cpu import fp32
from maskwright.kernels.cpu.int8_support import Int8Support
from maskwright.training import doctor as room
from maskwright.training.device import Machine
from maskwright.training.doctor import Peaks, advise, doctor, usage_of
from maskwright.training.hardware import Gpu, Hardware, look_at_hardware
from maskwright.training.probe import MatmulRate

HARDWARE = Hardware(
    system="Linux",
    processor="A processor",
    cores=4,
    usable_cores=4.0,
    threads=4,
    instructions=("AVX2",),
    memory=16 << 30,
    free_memory=8 << 30,
    load=0.1,
    gpus=(),
    card_without_torch=False,
    allocator="glibc 2.36",
    allocator_settings={"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"},
    huge_pages="madvise",
)
MACHINE = Machine(torch.device("cpu"), "A processor", 4, "onednn", 1e11, None)
CARD = Gpu(name="A card", memory=24 << 30, capability="9.0", bf16=True)


def peaks(
    default: float = 1.0, onednn: float = 2.0, bf16: float = 2.0, error: float = 1e-6, busy: float | None = 0.1
) -> dict[str, Peaks]:
    rates = {
        "fp32": MatmulRate(default * 1e11, 1e-7),
        "fp32_onednn": MatmulRate(onednn * 1e11, error),
        "bf16": MatmulRate(bf16 * 1e11, 4e-3),
    }
    return {"cpu": Peaks(matmul=rates, bandwidth=4e10, measured="2030-01-01T00:00:00+00:00", busy=busy)}


def told(hardware: Hardware = HARDWARE, found: dict[str, Peaks] | None = None, **machine: Any) -> str:
    return " ".join(advise(hardware, found or peaks(), usage_of(replace(MACHINE, **machine), hardware)))


def test_a_machine_in_order_needs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert told() == ""


@pytest.mark.parametrize(
    ("hardware", "found", "machine", "expected"),
    [
        (replace(HARDWARE, threads=1), peaks(), {}, "1 of 4 cores"),
        (replace(HARDWARE, threads=8), peaks(), {}, "OMP_NUM_THREADS=4"),
        (replace(HARDWARE, usable_cores=0.5, threads=2), peaks(), {}, "OMP_NUM_THREADS=1"),
        (replace(HARDWARE, card_without_torch=True), peaks(), {}, "built for CUDA"),
        (replace(HARDWARE, gpus=(CARD,)), peaks(), {}, "--device cuda"),
        (HARDWARE, peaks(), {"matmul": "default"}, "2.0 times as fast"),
        (HARDWARE, peaks(onednn=0.5), {}, "2.0 times as fast as oneDNN"),
        (HARDWARE, peaks(bf16=4.0), {}, "2.0 times as fast as the fp32 ones in use: `--precision bf16`"),
        (HARDWARE, peaks(busy=3.0), {}, "busy"),
        (replace(HARDWARE, allocator_settings={}), peaks(), {}, "glibc.malloc.hugetlb=1"),
        (replace(HARDWARE, huge_pages="never"), peaks(), {}, "switched off"),
        (replace(HARDWARE, free_memory=1 << 30), peaks(), {}, "1.0 GiB"),
    ],
)
def test_what_would_help_is_said(
    hardware: Hardware, found: dict[str, Peaks], machine: dict[str, Any], expected: str
) -> None:
    assert expected in told(hardware, found, **machine)


def test_a_fast_library_that_rounds_is_not_recommended() -> None:
    assert "oneDNN" not in told(found=peaks(error=1e-3), matmul="default")


def test_what_is_in_use_already_is_not_recommended() -> None:
    assert told(found=peaks(bf16=4.0), autocast=torch.bfloat16) == ""


def test_unknown_memory_and_load_give_no_advice() -> None:
    silent = replace(HARDWARE, free_memory=None, load=None, huge_pages=None)
    assert told(silent, peaks(busy=None)) == ""


def test_usage_names_the_attention_that_the_encoder_would_choose() -> None:
    used = usage_of(MACHINE, HARDWARE)
    assert used.attention["length 128, with dropout"] == "rows"
    assert used.attention["length 1024, without dropout"] == "sdpa"
    assert used.precision == "fp32"
    assert used.allocator == "glibc 2.36 (GLIBC_TUNABLES=glibc.malloc.hugetlb=1)"


def test_this_machine_can_be_described() -> None:
    found = look_at_hardware()
    assert found.threads == torch.get_num_threads()
    assert found.cores >= 1
    assert found.usable_cores > 0
    assert found.memory > 1 << 28


# --- what is kept


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Replace all measuring by fixed figures; return how often it was done."""
    calls = []

    def measure(hardware: Hardware) -> dict[str, Peaks]:
        calls.append(hardware)
        return peaks(default=float(len(calls)))

    monkeypatch.setattr(room, "measure_peaks", measure)
    monkeypatch.setattr(room, "prepare_machine", lambda device, cache, precision: MACHINE)
    monkeypatch.setattr(room, "look_at_hardware", lambda: HARDWARE)
    monkeypatch.setattr(room, "int8_support", lambda: Int8Support(by="compiled"))
    return lambda: len(calls)


def test_peaks_are_measured_once_a_machine(tmp_path: Path, measured: Callable[[], int]) -> None:
    first, second = doctor(cache=tmp_path), doctor(cache=tmp_path)
    assert measured() == 1
    assert (first.kept, second.kept) == (False, True)
    assert second.peaks == first.peaks == peaks()


def test_speeds_of_a_busy_machine_are_not_kept(
    tmp_path: Path, measured: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "measure_peaks", lambda _: peaks(onednn=0.1, bf16=9.0, busy=3.9))
    found = doctor(cache=tmp_path)
    assert len(found.advice) == 1  # and nothing is concluded from them
    assert "busy" in found.advice[0]
    assert not list(tmp_path.iterdir())


def test_fresh_measures_again_and_keeps_that(tmp_path: Path, measured: Callable[[], int]) -> None:
    doctor(cache=tmp_path)
    assert doctor(cache=tmp_path, fresh=True).peaks == peaks(default=2.0)
    assert doctor(cache=tmp_path).peaks == peaks(default=2.0)
    assert measured() == 2


def test_another_machine_is_measured_by_itself(
    tmp_path: Path, measured: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    doctor(cache=tmp_path)
    monkeypatch.setattr(room, "look_at_hardware", lambda: replace(HARDWARE, threads=2))
    assert not doctor(cache=tmp_path).kept
    # What changes from call to call is no other machine.
    monkeypatch.setattr(room, "look_at_hardware", lambda: replace(HARDWARE, threads=2, load=9.0, free_memory=1))
    assert doctor(cache=tmp_path).kept
    assert measured() == 2


def test_damaged_figures_are_measured_again(tmp_path: Path, measured: Callable[[], int]) -> None:
    doctor(cache=tmp_path)
    (kept,) = tmp_path.glob("doctor-*.json")
    for damage in ("", "{", '{"peaks": {"cpu": {"matmul": {}}}}', '{"peaks": null}'):
        kept.write_text(damage)
        assert not doctor(cache=tmp_path).kept
    assert measured() == 5


def test_a_cache_that_cannot_be_written_costs_a_measurement_no_more(
    tmp_path: Path, measured: Callable[[], int]
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert not doctor(cache=blocked).kept
    assert not doctor(cache=blocked).kept


def test_int8_without_compiled_code_says_what_would_help(
    tmp_path: Path, measured: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "int8" not in " ".join(doctor(cache=tmp_path).advice)
    lacking = Int8Support(by="libraries", why="there is no C compiler here", todo="Install gcc.")
    monkeypatch.setattr(room, "int8_support", lambda: lacking)
    found = doctor(cache=tmp_path)
    assert found.int8 == lacking
    assert "since there is no C compiler here; by our own code it is faster. Install gcc." in found.advice[-1]
    # Nothing is advised that would not help: other instructions are no setting.
    monkeypatch.setattr(room, "int8_support", lambda: Int8Support(by="libraries", why="no AVX512_VNNI"))
    assert "int8" not in " ".join(doctor(cache=tmp_path).advice)


def test_json_is_plain(tmp_path: Path, measured: Callable[[], int]) -> None:
    import json

    data = json.loads(json.dumps(doctor(cache=tmp_path).to_json()))
    assert data["peaks"]["cpu"]["matmul"]["bf16"] == {"flops": 2e11, "error": 4e-3}
    assert data["hardware"]["processor"] == "A processor"
    assert data["usage"]["matmul"] == "onednn"
    assert data["int8"] == {"by": "compiled", "why": "", "todo": ""}


def test_fp32_inference_without_compiled_code_says_what_would_help(
    tmp_path: Path, measured: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fp32.CODE, "_found", DeviceError("there is no C compiler here", todo="Install gcc."))
    assert "fp32 are unavailable: there is no C compiler here. Install gcc." in " ".join(doctor(cache=tmp_path).advice)
    # Another processor is no advice.
    monkeypatch.setattr(fp32.CODE, "_found", DeviceError("the C code is for Linux"))
    assert "unavailable" not in " ".join(doctor(cache=tmp_path).advice)
