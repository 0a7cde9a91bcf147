"""The table of `benchmarks.scores`: a row a set and metric, both sides beside each other, means over the seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.score_sets import ScoredSet
from maskwright.finetuning.results import markdown_table

COLUMNS = (
    "set",
    "metric",
    "learnt from",
    "scored on",
    "pretrained",
    "from scratch",
    "difference",
    "blind",
    "epochs",
    "rates",
    "seconds",
)
_NOTES = (
    "pretrained, from scratch: mean and standard deviation (n - 1) over the seeds. Both sides have the same shape, "
    "tokenizer, examples, epochs and settings; where the rates differ, each has the best of the same few, chosen with "
    "the first seed on the development examples.",
    "difference: of the means, with its standard error.",
    "scored on: test where the set has labelled test examples, else dev, on which each seed's epoch was chosen: these "
    "scores are a little too good, on both sides.",
    "blind: what the class, tag or option seen most in training scores; the mean of numbers, whose correlation is 0.",
    "F1 and exact match of answers are in percent, all else are shares and correlations.",
    "rates and seconds: pretrained, from scratch.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTable:
    """The table, ready to be written.

    Attributes:
        columns: Headings.
        rows: Cells as text.
        notes: What must be said beside it.
    """

    columns: list[str]
    rows: list[list[str]]
    notes: list[str]

    def markdown(self) -> str:
        """Return it as Markdown."""
        notes = "\n".join(f"- {note}" for note in self.notes)
        return "\n".join(["# Scores", "", *markdown_table(self.columns, self.rows), "", notes]) + "\n"


def table_of(cells: Sequence[Mapping[str, Any]], sets: Sequence[ScoredSet]) -> ScoreTable:
    """Lay finished cells side by side.

    Args:
        cells: As `scores` keeps them.
        sets: In the order of the rows.
    """
    by_set: dict[str, dict[str, Mapping[str, Any]]] = {}
    for cell in cells:
        by_set.setdefault(cell["set"], {})[cell["side"]] = cell
    rows = [
        _row(chosen, by_set[chosen.name], metric, place)
        for chosen in sets
        if chosen.name in by_set
        for place, metric in enumerate(chosen.shown)
    ]
    models = {
        cell["request"]["model"]: cell["pretraining"] for cell in cells if cell["pretraining"].get("tokens") is not None
    }
    told = [
        f"{name}: {found['recipe']}, {found['tokens'] / 1e6:.1f} M tokens in {found['seconds'] / 60:.1f} minutes."
        for name, found in models.items()
    ]
    return ScoreTable(columns=list(COLUMNS), rows=rows, notes=[*_NOTES, *told])


def _row(chosen: ScoredSet, sides: Mapping[str, Mapping[str, Any]], metric: str, place: int) -> list[str]:
    some = next(iter(sides.values()))
    data, part = some["results"]["data"], some["scored"]
    spreads = {side: cell["results"][part].get(metric) for side, cell in sides.items()}
    digits = 1 if chosen.form == "articles" else 3
    blind = (some["blind"] or {}).get(metric)
    count = {side: len(cell["results"]["seeds"]) for side, cell in sides.items()}
    first = [
        chosen.title,
        metric,
        f"{data['train']['examples']:,}",
        f"{part} {data[part]['examples']:,}",
    ]
    scores = [
        *(_told(spreads.get(side), digits) for side in ("pretrained", "scratch")),
        _difference(spreads.get("pretrained"), spreads.get("scratch"), count, digits),
        "-" if blind is None else f"{blind:.{digits}f}",
    ]
    settings = [sides[side]["results"]["settings"] for side in ("pretrained", "scratch") if side in sides]
    last = [
        ", ".join(dict.fromkeys(f"{each['epochs']:g}" for each in settings)),
        ", ".join(f"{each['learning_rate']:g}" for each in settings),
        ", ".join(f"{sides[side]['seconds']:.0f}" for side in ("pretrained", "scratch") if side in sides),
    ]
    if place:  # A set's second metric says only what is its own.
        first[0], first[2], first[3], last = "", "", "", [""] * len(last)
    return [*first, *scores, *last]


def _told(spread: Mapping[str, Any] | None, digits: int) -> str:
    if spread is None:
        return "-"
    sd = "" if spread["sd"] is None else f" ± {spread['sd']:.{digits}f}"
    return f"{spread['mean']:.{digits}f}{sd}"


def _difference(
    ours: Mapping[str, Any] | None, theirs: Mapping[str, Any] | None, count: Mapping[str, int], digits: int
) -> str:
    if ours is None or theirs is None:
        return "-"
    mean = ours["mean"] - theirs["mean"]
    if ours["sd"] is None or theirs["sd"] is None:
        return f"{mean:+.{digits}f}"
    error = math.sqrt(ours["sd"] ** 2 / count["pretrained"] + theirs["sd"] ** 2 / count["scratch"])
    return f"{mean:+.{digits}f} ± {error:.{digits}f}"
