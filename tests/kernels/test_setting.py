"""The switch for native kernels belongs to a thread and is restored."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from maskwright.kernels.setting import native_kernels_enabled, use_native_kernels


def test_the_switch_is_restored_and_leaves_other_threads_alone() -> None:
    with ThreadPoolExecutor(1) as other:
        with pytest.raises(KeyError), use_native_kernels(False):
            assert not native_kernels_enabled()
            with use_native_kernels(True):
                assert native_kernels_enabled()
            assert not native_kernels_enabled()
            assert other.submit(native_kernels_enabled).result()
            raise KeyError
        assert native_kernels_enabled()
