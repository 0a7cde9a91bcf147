"""Every verb is also a Python function of the same name; importing the package loads nothing."""

import subprocess
import sys

import pytest

import maskwright


@pytest.mark.parametrize(
    "name", ["doctor", "evaluate", "finetune", "load", "predict", "pretrain", "quickstart", "show"]
)
def test_verbs_are_functions_of_the_package(name: str) -> None:
    found = getattr(maskwright, name)
    assert callable(found)
    assert found.__name__ == name
    assert name in dir(maskwright)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'pretrian'"):
        maskwright.pretrian  # noqa: B018


def test_importing_the_package_loads_nothing() -> None:
    code = "import sys, maskwright; sys.exit(','.join({'torch', 'numpy', 'pydantic'} & set(sys.modules)) or 0)"
    subprocess.run([sys.executable, "-c", code], check=True)
