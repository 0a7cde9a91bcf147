"""The switch for native kernels belongs to a thread and is restored; where GPU kernels run."""

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from maskwright.kernels import setting
from maskwright.kernels.setting import has_kernels, kernels_enabled, use_kernels


def test_the_switch_leaves_other_threads_alone() -> None:
    with ThreadPoolExecutor(1) as other, use_kernels(False):
        assert not kernels_enabled()
        assert other.submit(kernels_enabled).result()


def fail_without_kernels() -> None:
    with use_kernels(False):
        raise KeyError


def test_the_switch_is_restored_after_an_error() -> None:
    with use_kernels(True), pytest.raises(KeyError):
        fail_without_kernels()
    with use_kernels(True):
        with use_kernels(False):
            assert not kernels_enabled()
        assert kernels_enabled()
    assert kernels_enabled()


GPU = torch.device("cuda", 0)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Triton's driver on a machine with a GPU, not yet compiled."""
    module = pytest.importorskip("triton.runtime").driver
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(module, "_active", None)
    monkeypatch.setattr(module, "_default", None)
    for cached in (has_kernels, setting._has_driver):
        cached.cache_clear()
    yield module
    for cached in (has_kernels, setting._has_driver):
        cached.cache_clear()


def test_gpu_kernels_need_a_driver_that_triton_compiles(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_default", SimpleNamespace())
    assert has_kernels(GPU)
    assert not has_kernels(torch.device("cpu"))


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("Failed to find C compiler. Please specify via CC"),
        subprocess.CalledProcessError(1, ["gcc", "main.c"]),
        FileNotFoundError(2, "No such file", "/sbin/ldconfig"),
        AssertionError("libcuda.so cannot found!\nPlease make sure GPU is set up"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_without_a_c_compiler_there_are_no_gpu_kernels(error, driver, monkeypatch):
    def fail(_: Any) -> None:
        raise error

    monkeypatch.setattr(type(driver), "active", property(fail))
    with pytest.warns(UserWarning, match="GPU kernels disabled: Triton cannot compile its driver") as caught:
        assert not has_kernels(GPU)
    assert "\n" not in str(caught[0].message)
    assert not has_kernels(torch.device("cuda", 1))
    assert len(caught) == 1
