"""Code is needed only where it was said to be there."""

from pathlib import Path

import pytest

from maskwright.kernels.cpu.fp32 import CODE
from maskwright.kernels.cpu.library import Code


def test_code_that_is_needed_is_the_code_that_is_there() -> None:
    if CODE.library() is None:
        pytest.skip(str(CODE.problem()))
    assert CODE.needed() is CODE.library()


def test_code_that_is_needed_and_not_there_says_which_and_why(tmp_path: Path) -> None:
    code = Code(tmp_path / "nowhere.c", {}, lambda found: None)
    assert code.library() is None
    with pytest.raises(AssertionError, match=r"nowhere\.c is called where it is not there: \w+"):
        code.needed()
