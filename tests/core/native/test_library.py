"""Code is needed only where it was said to be there."""

from pathlib import Path

import pytest

from maskwright.core.native.library import Code
from maskwright.model.native.fp32 import CODE


def test_code_that_is_needed_is_the_code_that_is_there() -> None:
    if CODE.library() is None:
        pytest.skip(str(CODE.problem()))
    assert CODE.needed() is CODE.library()


def test_code_that_is_needed_and_not_there_says_which_and_why(tmp_path: Path) -> None:
    code = Code(tmp_path / "nowhere.c", {}, lambda found: None)
    assert code.library() is None
    with pytest.raises(AssertionError, match=r"nowhere\.c is called where it is not there: \w+"):
        code.needed()
