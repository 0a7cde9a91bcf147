"""The page's tables and plots, written from the results that lie in a folder: between markers, nothing else is touched.

<!-- benchmark: natural -->
... what stands here is replaced ...
<!-- end of benchmark -->
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.catalog import ROWS
from benchmarks.machine import told
from maskwright.core.errors import MaskwrightError, unknown_name
from maskwright.core.files import write_text

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "performance.md"
_BLOCK = re.compile(r"(<!-- benchmark: (?P<name>\S+) -->\n).*?(<!-- end of benchmark -->)", re.DOTALL)
_BEGIN, _END = re.compile(r"<!-- benchmark: "), re.compile(r"<!-- end of benchmark -->")


def render(results: Path, page: Path = PAGE) -> list[str]:
    """Write every row that has results into the page, its plots into the folder `plots` beside it.

    Args:
        results: Folder of the JSON files.
        page: A Markdown page with markers.

    Returns:
        The rows that were written.

    Raises:
        MaskwrightError: If a marker names no row or is not closed, or results of tiny settings would reach the
            project's own page.
    """
    text = page.read_text(encoding="utf-8")
    if len(_BEGIN.findall(text)) != len(_END.findall(text)) or len(_BEGIN.findall(text)) != len(_BLOCK.findall(text)):
        raise MaskwrightError(
            f"{page}: the markers of benchmarks are not in pairs",
            allowed="<!-- benchmark: NAME --> ... <!-- end of benchmark -->",
        )
    written: list[str] = []

    def block(found: re.Match[str]) -> str:
        name = found["name"]
        if name not in ROWS:
            problem, allowed, todo = unknown_name("benchmark", name, ROWS)
            raise MaskwrightError(f"{page}: {problem}", allowed=allowed, todo=todo)
        kept = report.read(results, name)
        if kept is None:
            return found[0]
        if kept["quick"] and page == PAGE:
            raise MaskwrightError(
                f"the results of {name!r} in {results} were taken with tiny settings and mean nothing",
                todo=f"Run `python -m benchmarks {name}`, or choose another --page.",
            )
        written.append(name)
        plots = _plots(kept, page.parent / "plots")
        return found[1] + "\n" + _markdown(kept, plots) + "\n" + found[3]

    write_text(page, _BLOCK.sub(block, text))
    return written


def _markdown(kept: Mapping[str, Any], plots: list[str]) -> str:
    parts = [_table(table) for table in kept["tables"]]
    parts += [f"![{title}](plots/{name})" for name, title in _pairs(kept, plots)]
    failed = [check for check in kept["checks"] if not check["passed"]]
    if failed:
        parts.append(
            "**Checks that failed:**\n\n"
            + "\n".join(f"- {check['what']}: {check['found']}, allowed {check['allowed']}" for check in failed)
        )
    elif kept["checks"]:
        parts.append(f"All checks hold ({len(kept['checks'])}).")
    if kept["checks"]:
        parts.append(f"<details><summary>What was checked</summary>\n\n{_checks(kept['checks'])}\n\n</details>")
    parts += kept["notes"]
    parts.append(f"*{told(kept)}. In brackets: quartiles of the rounds.*")
    return "\n\n".join(parts) + "\n"


def _checks(checks: Sequence[Mapping[str, Any]]) -> str:
    rows = [[check["what"], check["found"], check["allowed"], "" if check["passed"] else "fails"] for check in checks]
    return _table({"title": "", "columns": ["what", "found", "allowed", ""], "rows": rows, "words": range(4)})


def _table(table: Mapping[str, Any]) -> str:
    words = set(table["words"])
    lines = [
        _line(table["columns"]),
        "|" + "|".join("---" if place in words else "---:" for place in range(len(table["columns"]))) + "|",
        *(_line(row) for row in table["rows"]),
    ]
    title = [f"{table['title']}:", ""] if table["title"] else []
    return "\n".join([*title, *lines])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _pairs(kept: Mapping[str, Any], plots: list[str]) -> list[tuple[str, str]]:
    return list(zip(plots, (curve["title"] for curve in kept["curves"]), strict=True))


def _plots(kept: Mapping[str, Any], folder: Path) -> list[str]:
    if not kept["curves"]:
        return []
    from benchmarks.plots import draw

    return [draw(curve, folder) for curve in kept["curves"]]
