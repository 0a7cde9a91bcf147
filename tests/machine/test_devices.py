"""A device by name: what is allowed, and what an error says."""

import pytest
import torch

from maskwright.core.errors import DeviceError
from maskwright.machine.devices import choose_device


def _gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


@pytest.mark.parametrize(
    ("name", "gpus", "chosen"),
    [("auto", 0, "cpu"), ("auto", 2, "cuda"), ("cpu", 2, "cpu"), ("cuda", 2, "cuda"), ("cuda:1", 2, "cuda:1")],
)
def test_choose_device_returns_the_device_of_that_name(monkeypatch, name, gpus, chosen):
    _gpus(monkeypatch, gpus)
    assert choose_device(name) == torch.device(chosen)


@pytest.mark.parametrize("name", ["cuda", "cuda:0"])
def test_choose_device_without_a_gpu_is_an_error(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    _gpus(monkeypatch, 0)
    with pytest.raises(DeviceError, match=rf"'{name}': PyTorch finds no CUDA GPU here.*Allowed: auto, cpu\."):
        choose_device(name)


def test_choose_device_beyond_the_last_gpu_names_those_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    _gpus(monkeypatch, 2)
    with pytest.raises(DeviceError, match=r"no device 'cuda:2' here\. Allowed: auto, cpu, cuda, cuda:0, cuda:1\."):
        choose_device("cuda:2")


@pytest.mark.parametrize(
    ("name", "guess"),
    [("cdua", "cuda"), ("CPU0", ""), ("cuda:-1", "cuda"), ("", ""), ("GPU", "cuda"), ("gpu:0", "cuda")],
)
def test_choose_device_refuses_other_names(name: str, guess: str) -> None:
    with pytest.raises(DeviceError) as caught:
        choose_device(name)
    assert str(caught.value).startswith(f"unknown device {name!r}. Allowed: auto, cpu, cuda, cuda:N.")
    assert str(caught.value).endswith(f"Did you mean {guess!r}?") == bool(guess)
