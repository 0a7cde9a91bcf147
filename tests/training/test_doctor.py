"""The doctor's advice follows from what it measured."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from maskwright.core.errors import DeviceError
from maskwright.training import doctor as module
from maskwright.training.doctor import Hardware, advise, doctor, read_hardware
from maskwright.training.ranks.device import Machine

HARDWARE = Hardware(
    processor="A processor",
    cores=4,
    usable_cores=4.0,
    threads=4,
    instructions=("avx2",),
    memory=16 << 30,
    free_memory=8 << 30,
    gpus=(),
    unusable_gpu=False,
)
MACHINE = Machine(torch.device("cpu"), "A processor", 4, "onednn", 1e11, None)


def peaks(default: float = 1.0, onednn: float = 2.0, bf16: float = 2.0) -> dict[str, dict[str, float]]:
    return {"cpu": {"fp32": default * 1e11, "fp32_onednn": onednn * 1e11, "bf16": bf16 * 1e11}}


@pytest.mark.parametrize(
    ("hardware", "found", "machine", "expected"),
    [
        ({"threads": 1}, peaks(), {}, "1 of 4 cores"),
        ({"threads": 8}, peaks(), {}, "OMP_NUM_THREADS=4"),
        ({"usable_cores": 0.5, "threads": 2}, peaks(), {}, "OMP_NUM_THREADS=1"),
        ({"unusable_gpu": True}, peaks(), {}, "CUDA build"),
        ({"gpus": ("A GPU, 24 GiB",)}, peaks(), {}, "--device cuda"),
        ({}, peaks(bf16=4.0), {}, "2.0 times as fast as the fp32 in use: `--precision bf16`"),
        ({"free_memory": 1 << 30}, peaks(), {}, "1.0 GiB"),
        ({}, peaks(), {}, ""),
        ({"free_memory": None}, peaks(), {}, ""),
        ({}, peaks(bf16=4.0), {"autocast": torch.bfloat16}, ""),
    ],
)
def test_advice_names_what_would_help(
    hardware: dict[str, Any], found: Any, machine: dict[str, Any], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    advice = " ".join(advise(replace(HARDWARE, **hardware), found, replace(MACHINE, **machine)))
    assert expected in advice
    assert bool(expected) == bool(advice)


def test_this_machine_can_be_described() -> None:
    found = read_hardware()
    assert found.threads == torch.get_num_threads()
    assert found.cores >= 1
    assert found.usable_cores > 0
    assert found.memory > 1 << 28


@pytest.mark.parametrize(
    ("problems", "expected"),
    [
        ({"fp32": DeviceError("no C compiler", todo="Install gcc.")}, "fp32 are unavailable: no C"),
        ({"int8": DeviceError("no C compiler", todo="Install gcc.")}, "int8 are unavailable: no C"),
        # Another processor is no advice.
        ({"fp32": DeviceError("for Linux only"), "int8": DeviceError("no AVX512_VNNI")}, ""),
    ],
)
def test_missing_kernels_are_named_if_something_would_help(
    problems: dict[str, DeviceError], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "measure_peaks", peaks)
    monkeypatch.setattr(module, "read_hardware", lambda: HARDWARE)
    monkeypatch.setattr(module, "prepare_machine", lambda device, cache, precision: MACHINE)
    monkeypatch.setattr(module.ops, "inference_problem", problems.get)
    found = doctor(cache=tmp_path)
    assert expected in " ".join(found.advice)
    assert "unavailable" in " ".join(found.advice) or not expected
    data = json.loads(json.dumps(found.to_json()))
    assert data["peak_flops"] == peaks()
    assert data["training"]["matmul"] == "onednn"
    assert data["int8"] == ""  # Without the C code PyTorch computes it.
