"""The switch for native kernels belongs to a thread and is restored."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from maskwright.kernels.setting import kernels_enabled, use_kernels


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
