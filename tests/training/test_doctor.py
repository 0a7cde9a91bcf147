"""The doctor's advice follows from what it measured."""

import json
from dataclasses import replace
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
PEAKS = {"cpu": {"fp32": 1e11, "fp32_onednn": 2e11, "bf16": 2e11}}
MACHINE = Machine(torch.device("cpu"), "A processor", 4, "onednn", None)


@pytest.mark.parametrize(
    ("hardware", "expected"),
    [
        ({"threads": 1}, "1 of 4 cores"),
        ({"threads": 8}, "OMP_NUM_THREADS=4"),
        ({"usable_cores": 0.5, "threads": 2}, "OMP_NUM_THREADS=1"),
        ({"unusable_gpu": True}, "CUDA build"),
        ({"gpus": ("A GPU, 24 GiB",)}, "--device cuda"),
        ({"free_memory": 1 << 30}, "1.0 GiB"),
        ({}, ""),
        ({"free_memory": None}, ""),
    ],
)
def test_advice_names_what_would_help(hardware: dict[str, Any], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    advice = " ".join(advise(replace(HARDWARE, **hardware), MACHINE))
    assert expected in advice
    assert bool(expected) == bool(advice)


def test_this_machine_can_be_described() -> None:
    actual = read_hardware()
    assert actual.threads == torch.get_num_threads()
    assert actual.cores >= 1
    assert actual.usable_cores > 0
    assert actual.memory > 1 << 28


@pytest.mark.parametrize(
    ("problems", "expected"),
    [
        ({"fp32": DeviceError("no C compiler", hint="Install gcc.")}, "fp32 are unavailable: no C"),
        ({"int8": DeviceError("no C compiler", hint="Install gcc.")}, "int8 are unavailable: no C"),
        # Another processor is no advice.
        ({"fp32": DeviceError("for Linux only"), "int8": DeviceError("no AVX512_VNNI")}, ""),
    ],
)
def test_missing_kernels_are_named_if_something_would_help(problems, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "measure_peaks", lambda: PEAKS)
    monkeypatch.setattr(module, "read_hardware", lambda: HARDWARE)
    monkeypatch.setattr(module, "prepare_machine", lambda device, cache, precision: MACHINE)
    monkeypatch.setattr(module.ops, "inference_problem", problems.get)
    actual = doctor(cache=tmp_path)
    assert expected in " ".join(actual.advice)
    assert "unavailable" in " ".join(actual.advice) or not expected
    data = json.loads(json.dumps(actual.to_json()))
    assert data["peak_flops"] == PEAKS
    assert data["training"]["matmul"] == "onednn"
    assert data["int8"] == ""  # Without the C code PyTorch computes it.
