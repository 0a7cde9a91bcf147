"""Packages are small."""

from collections import Counter

from tests.docs_pages import ROOT


def test_no_package_has_more_than_16_modules_at_one_level() -> None:
    sizes = Counter(str(path.parent) for path in (ROOT / "src/maskwright").rglob("*.py"))
    assert {name: size for name, size in sizes.items() if size > 16} == {}
