"""`report.html`: one self-contained page with inline SVG, for paper appendices, dark screens and phones."""

from pathlib import Path
from typing import Any

from maskwright.core.storage.files import write_json, write_text
from maskwright.reporting.page import COLORS, INK, figure, render, svg
from maskwright.study import results
from maskwright.study.statistics import NO_DIFFERENCE, NOT_COMPARABLE
from maskwright.training.steps.evaluation import PLATEAU

_MARKERS = "osD^vPX*"
_PLOTS = 5


def write_report(folder: Path, report: dict[str, Any]) -> None:
    """Write report.json, .md, .csv and .html."""
    write_json(folder / "report.json", report)
    write_text(folder / "report.md", results.markdown(report))
    write_text(folder / "report.csv", results.comma_separated(report))
    write_text(folder / "report.html", html(report))


def html(report: dict[str, Any]) -> str:
    """Return the page."""
    metrics = report["metrics"]
    main = {name: each for name, each in metrics.items() if each["is_main"] and not each["at_chance"]}
    title = ", ".join(report["recipes"])
    if len(title) > 60:
        title = f"{len(report['recipes'])} recipes"
    names = ("shown", "shown_sd", "shown_interval", "shown_p", "shown_verdict", "shown_control", "title_with_unit")
    return render(
        Path(__file__).parent / "study.html.jinja",
        {"fill_rows": _fill_rows} | {name: getattr(results, name) for name in names},
        heading=f"Comparison of {title}",
        report=report,
        controls=results.CONTROLS,
        plateau=f"{PLATEAU:.0%}",
        data=report["data"],
        made_by=report["made_by"],
        labels=list(report["recipes"]),
        colors={label: COLORS[number % len(COLORS)] for number, label in enumerate(report["recipes"])},
        sentences=results.sentences(report),
        budget=results.budget_text(report),
        rates=results.rates_line(report),
        curves=_curves(report),
        pareto=_pareto(report),
        corpus=[Path(each).name for each in report["corpus"]],
        main=dict(sorted(main.items(), key=lambda item: not item[1]["is_tested"])),
        details={name: each for name, each in metrics.items() if name not in main and "/" not in name},
        paradigms={name: each for name, each in metrics.items() if "/" in name},
        verdict_class={"better": "better", "worse": "worse", NO_DIFFERENCE: "same", NOT_COMPARABLE: "same"},
    )


def _fill_rows(samples: dict[str, Any]) -> list[dict[str, Any]]:
    """Return each masked passage with what every model fills in."""
    rows: dict[str, dict[str, Any]] = {}
    for label, each in samples.items():
        for fill in each["fills"]:
            row = rows.setdefault(fill["before"] + "\0" + fill["after"], {**fill, "by_label": []})
            row["by_label"].append((label, fill["filled"]))
    return list(rows.values())


def _curves(report: dict[str, Any]) -> str:
    """Plot the held-out loss of each run against its spend."""
    if not any(points for each in report["curves"].values() for points in each.values()):
        return ""
    plot, axes = figure("learning curves", "training FLOPs", "held-out loss, nats per token")
    for number, by_seed in enumerate(report["curves"].values()):
        for points in by_seed.values():
            axes.plot(*zip(*points, strict=True), color=COLORS[number % len(COLORS)], linewidth=1.3, alpha=0.8)
    return svg(plot, "curves")


def _pareto(report: dict[str, Any]) -> list[str]:
    """Plot main metrics against the inference FLOPs per token; recipes that no other dominates are joined."""
    cost = report["metrics"].get("inference_flops_per_token")
    figures: list[str] = []
    # Tasks with data before the probes made from the text itself; a loss says little that its accuracy does not.
    order = sorted(report["metrics"], key=lambda name: (name != "word_accuracy", name in results.METRICS))
    for name in order:
        metric, rows = report["metrics"][name], report["metrics"][name]["rows"]
        if (
            metric["at_chance"]
            or not (metric["is_main"] and metric["is_tested"] and metric["unit"] == "share")
            or len(rows) < 2
        ):
            continue
        if cost is None or len(figures) == _PLOTS:
            break
        plot, axes = figure(metric["title"], "inference FLOPs per token", "%")
        points: list[tuple[float, float]] = []
        width = max(row["mean"] for row in cost["rows"].values())
        for number, label in enumerate(report["recipes"]):
            if (row := rows.get(label)) is None:
                continue
            x, y = cost["rows"][label]["mean"], 100 * row["mean"]
            aside = x + 0.025 * width * sum(abs(x - other) < 0.01 * width for other, _ in points)
            points.append((x, y))
            color = COLORS[number % len(COLORS)]
            if row["low"] is not None:
                axes.plot([aside] * 2, [100 * row["low"], 100 * row["high"]], color=color, linewidth=1.4)
            axes.plot(aside, y, _MARKERS[number % len(_MARKERS)], color=color, markersize=7)
        front = sorted({p for p in points if not any(q[0] <= p[0] and q[1] >= p[1] and q != p for q in points)})
        axes.plot(*zip(*front, strict=True), color=INK, alpha=0.4, linewidth=0.9, linestyle="--", zorder=0)
        axes.margins(0.12)
        axes.set_xlim(0, 1.15 * width)  # From 0, or small differences of cost would look large.
        figures.append(svg(plot, f"pareto-{name.replace('/', '-')}"))
    return figures
