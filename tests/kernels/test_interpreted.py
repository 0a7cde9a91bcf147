"""The tests of GPU kernels (`test_gpu_*.py`) in Triton's interpreter on a CPU; `pytest -m gpu` runs them on a GPU."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from maskwright.kernels import ops


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")
@pytest.mark.slow
def test_kernels_are_right_in_the_interpreter() -> None:
    """In a process of their own: the interpreter is chosen when Triton is imported."""
    environment = os.environ | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    files = sorted(map(str, Path(__file__).parent.glob("test_gpu_*.py")))
    # 64-bit products are meant to overflow, and NumPy warns.
    command = [sys.executable, "-m", "pytest", "-q", "-W", "ignore::RuntimeWarning", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-p", "no:randomly", "--noconftest", *files],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_triton_is_imported_only_where_kernels_are_launched() -> None:
    folder = Path(ops.__file__).parent
    for path in folder.rglob("*.py"):
        top_level = re.findall(r"^(?:import|from) .*(?:triton|_kernels\b).*$", path.read_text("utf-8"), re.MULTILINE)
        assert path.stem.endswith("_kernels") or not [line for line in top_level if "setting" not in line], path
