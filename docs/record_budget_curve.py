"""Draw fine-tuned scores against pretraining tokens: python docs/record_budget_curve.py SCORES SVG.

SCORES is a CSV file with the columns model, tokens, task, seed, value. A model without tokens is a horizontal line.
Bars and bands are standard deviations over seeds.
"""

import csv
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, NullLocator

_COLUMNS = 3


def draw(scores: Path) -> Figure:
    """Return one panel a task: mean and standard deviation over seeds."""
    values = defaultdict[str, dict[tuple[str, float | None], list[float]]](lambda: defaultdict(list))
    with scores.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            tokens = float(row["tokens"]) if row["tokens"] else None
            values[row["task"]][row["model"], tokens].append(100 * float(row["value"]))
    models = dict.fromkeys(name for by_model in values.values() for name, _ in by_model)
    rows = -(-len(values) // _COLUMNS)
    figure, labeled = Figure(figsize=(3.1 * _COLUMNS, 2.8 * rows), layout="constrained"), dict[str, Any]()
    for axes, (task, by_model) in zip(figure.subplots(rows, _COLUMNS).flat, values.items(), strict=True):
        for number, model in enumerate(models):
            style = {"color": f"C{number}", "label": model}
            points = sorted((tokens, seeds) for (name, tokens), seeds in by_model.items() if name == model and tokens)
            means, errors = [statistics.mean(seeds) for _, seeds in points], [_sd(seeds) for _, seeds in points]
            if points:
                x = [tokens for tokens, _ in points]
                labeled[model] = axes.errorbar(x, means, errors, marker="o", ms=4, capsize=3, **style)
            elif (model, None) in by_model:
                mean, sd = statistics.mean(by_model[model, None]), _sd(by_model[model, None])
                labeled[model] = axes.axhline(mean, ls="--", **style)
                axes.axhspan(mean - sd, mean + sd, color=f"C{number}", alpha=0.15, lw=0)
        axes.set(title=task, xscale="log", xlabel="tokens of pretraining")
        axes.set_xticks(sorted({tokens for _, tokens in by_model if tokens}))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(labeled.values(), labeled, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _sd(seeds: list[float]) -> float:
    return statistics.stdev(seeds) if len(seeds) > 1 else 0.0


if __name__ == "__main__":
    scores, target = map(Path, sys.argv[1:])
    with matplotlib.rc_context({"font.size": 9, "svg.hashsalt": "scores"}):
        draw(scores).savefig(target, metadata={"Date": None})
