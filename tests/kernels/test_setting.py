"""The switch for native kernels belongs to a thread and is restored."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

from maskwright.kernels.setting import kernels_enabled, use_kernels


def test_the_switch_leaves_other_threads_alone() -> None:
    with ThreadPoolExecutor(1) as other, use_kernels(False):
        assert not kernels_enabled()
        assert other.submit(kernels_enabled).result()


def test_the_switch_is_restored_also_after_an_error() -> None:
    with contextlib.suppress(KeyError), use_kernels(False):
        raise KeyError
    with use_kernels(True):
        with use_kernels(False):
            assert not kernels_enabled()
        assert kernels_enabled()
