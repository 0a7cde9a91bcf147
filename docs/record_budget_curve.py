"""Draw fine-tuned scores against pretraining tokens: python docs/record_budget_curve.py SCORES SVG.

SCORES is a CSV file with the columns model, tokens, task, seed, value. A model without tokens is a horizontal line, and
with several seeds has a band of one standard deviation.
"""

import csv
import statistics
import sys
from collections import defaultdict
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

_COLORS = {"maskwright/mini": "#0b6e99", "bert/mini": "#c4572c", "from scratch": "#666666", "TF-IDF": "#9aa500"}


def draw(scores: Path) -> Figure:
    """Return one panel a task: mean and standard deviation over seeds."""
    values = defaultdict[str, dict[tuple[str, float | None], list[float]]](lambda: defaultdict(list))
    with scores.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            tokens = float(row["tokens"]) if row["tokens"] else None
            values[row["task"]][row["model"], tokens].append(100 * float(row["value"]))
    figure = Figure(figsize=(3.1 * len(values), 3.0), layout="constrained")
    for axes, (task, by_model) in zip(figure.subplots(1, len(values), squeeze=False)[0], values.items(), strict=True):
        for model in _COLORS:
            points = sorted((tokens, seeds) for (name, tokens), seeds in by_model.items() if name == model and tokens)
            means = [statistics.mean(seeds) for _, seeds in points]
            errors = [statistics.stdev(seeds) for _, seeds in points]
            style = {"color": _COLORS[model], "label": model}
            if points:
                axes.errorbar([tokens for tokens, _ in points], means, errors, marker="o", ms=4, capsize=3, **style)
            elif lines := by_model.get((model, None)):
                mean = statistics.mean(lines)
                axes.axhline(mean, ls="--" if len(lines) > 1 else ":", **style)
                if len(lines) > 1:
                    spread = statistics.stdev(lines)
                    axes.axhspan(mean - spread, mean + spread, color=_COLORS[model], alpha=0.15, lw=0)
        axes.set(title=task, xscale="log", xlabel="tokens of pretraining")
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.xaxis.set_minor_formatter("")
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = figure.axes[-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return figure


if __name__ == "__main__":
    scores, target = map(Path, sys.argv[1:])
    with matplotlib.rc_context({"font.size": 9, "svg.hashsalt": "scores"}):
        draw(scores).savefig(target, metadata={"Date": None})
