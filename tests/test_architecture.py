"""The page on the architecture names files that exist; packages are small."""

import re
from collections import Counter

from tests.docs_pages import ROOT, page


def test_files_of_the_architecture_page_exist() -> None:
    named = {path for path in re.findall(r"`([\w./-]+/[\w.]+\.py)`", page("architecture.md")) if "NAME" not in path}
    assert len(named) > 60
    assert [
        path for path in sorted(named) if not any((ROOT / folder / path).is_file() for folder in ("src/maskwright", ""))
    ] == []


def test_no_package_has_more_than_16_modules_at_one_level() -> None:
    sizes = Counter(str(path.parent) for path in (ROOT / "src/maskwright").rglob("*.py"))
    assert {name: size for name, size in sizes.items() if size > 16} == {}
