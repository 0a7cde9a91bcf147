"""The reports of a study: tables for the screen, `report.md`, `report.csv`, and one self-contained page."""

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from maskwright.core.storage.files import write_json, write_text
from maskwright.core.text.amounts import plain_float, pluralize, short_count, size_in_bytes
from maskwright.data.cleaning.data_card import sources_table
from maskwright.reporting.chart import COLORS, INK, MARKERS, Line, chart
from maskwright.reporting.markdown import code, escape
from maskwright.reporting.page import (
    Block,
    details,
    figures,
    items,
    legend,
    mark,
    origin,
    page,
    paragraph,
    section,
    strong,
)
from maskwright.reporting.table import Cell, Row, Style, Table
from maskwright.study.results import CONTROLS, METRICS, is_on_plateau
from maskwright.study.statistics import BASELINE, BETTER, NO_DIFFERENCE, NOT_COMPARABLE, NOT_TESTED, WORSE
from maskwright.training.runs.report import predictions_table
from maskwright.training.steps.evaluation import PLATEAU

_MINUS = "\N{MINUS SIGN}"
_UNITS = {"share": "%", "nats": "nats"}
_STYLES: dict[str, Style] = {BETTER: "better", WORSE: "worse"}
_SIGNS = {BETTER: "+", WORSE: "-", NO_DIFFERENCE: "=", NOT_COMPARABLE: "x"}
LEGEND = f"Compared with the baseline: + {BETTER}, - {WORSE}, = {NO_DIFFERENCE}, x {NOT_COMPARABLE}"
_PLOTS = 5
_INTERVALS = (
    "Interval of a mean: bootstrap over seeds, or over examples where that is wider (*). Difference: mean of the "
    "paired differences over seeds with its t interval; p: paired t test, two-sided; Holm's adjustment over the "
    "recipes of a metric; a difference is stated where the adjusted p is at most {}. “No difference shown” does not "
    "mean that there is none: with few seeds only large differences show."
)


def write_report(folder: Path, report: dict[str, Any]) -> None:
    write_json(folder / "report.json", report)
    write_text(folder / "report.md", markdown(report))
    write_text(folder / "report.csv", values(report).csv())
    write_text(folder / "report.html", html(report))


def shown(value: float | None, unit: str, signed: bool = False) -> str:
    """Write a value of a metric: a share as percent without its sign, an amount in short."""
    if value is None:
        return "–"
    if unit == "share":
        text = f"{100 * value:{'+' if signed else ''}.1f}"
    elif unit == "nats":
        text = f"{value:{'+' if signed else ''}.3f}"
    elif unit == "seconds":
        text = f"{1000 * value:.3g} ms"
    else:
        text = size_in_bytes(value) if unit == "bytes" else short_count(value)
    return text.replace("-", _MINUS)


def shown_mean(row: dict[str, Any], unit: str) -> str:
    """Write a mean with its standard deviation over the seeds, unless they have the same value but for rounding."""
    is_spread = row["sd"] is not None and row["sd"] > 1e-9 * abs(row["mean"])
    return shown(row["mean"], unit) + (f" ± {shown(row['sd'], unit)}" if is_spread else "")


def shown_interval(row: dict[str, Any], unit: str) -> str:
    """Write an interval in parentheses, or nothing if there is none; "*" if it is over examples."""
    star = "*" if row.get("over") == "examples" else ""
    return "" if row["low"] is None else f"({shown(row['low'], unit)} to {shown(row['high'], unit)}{star})"


def shown_p(p: float | None) -> str:
    return "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def shown_verdict(row: dict[str, Any], unit: str) -> str:
    """Write a verdict; if no difference was shown, with half the width of its interval: only larger ones are shown.

    Or with p, if the interval excludes zero and only Holm's adjustment keeps the difference from being shown.
    """
    if row["verdict"] != NO_DIFFERENCE or not (half := (row["difference"]["high"] - row["difference"]["low"]) / 2):
        return str(row["verdict"])
    if row["difference"]["low"] > 0 or row["difference"]["high"] < 0:
        return (
            f"{row['verdict']} (p {shown_p(row['difference']['p'])}, adjusted {shown_p(row['difference']['p_holm'])})"
        )
    return f"{row['verdict']} (only above {shown(half, unit)}{({'share': ' points', 'nats': ' nats'}).get(unit, '')})"


def title_with_unit(metric: dict[str, Any]) -> str:
    """Return a metric's title and, for percent and nats, its unit."""
    unit = _UNITS.get(metric["unit"])
    return f"{metric['title']}, {unit}" if unit else str(metric["title"])


def sentences(report: dict[str, Any]) -> list[str]:
    """State the findings: one sentence per recipe."""
    lines = []
    for label in (each for each in report["recipes"] if each != report["baseline"]):
        by_verdict: dict[str, list[str]] = {}
        for metric in report["metrics"].values():
            if metric["is_main"] and not metric["at_chance"] and (row := metric["rows"].get(label)) and row["verdict"]:
                title, comma, measure = metric["title"].partition(", ")
                named = f"{title} ({measure})" if comma else title
                by_verdict.setdefault(row["verdict"], []).append(named)
        parts = [
            f"{words} in {', '.join(by_verdict[verdict])}"
            for verdict, words in ((BETTER, "better"), (WORSE, "worse"))
            if verdict in by_verdict
        ]
        if NO_DIFFERENCE in by_verdict:
            metrics = pluralize(len(by_verdict[NO_DIFFERENCE]), "other metric" if parts else "metric")
            parts.append(f"{NO_DIFFERENCE} in {metrics}")
        if NOT_COMPARABLE in by_verdict:
            parts.append(f"{NOT_COMPARABLE} in {pluralize(len(by_verdict[NOT_COMPARABLE]), 'metric')}")
        if NOT_TESTED in by_verdict:
            parts.append("not tested, since there is one seed")
        lines.append(f"{label} against {report['baseline']}: {'; '.join(parts) or 'nothing in common to compare'}.")
    on_plateau = [label for label, each in report["recipes"].items() if is_on_plateau(each["loss_over_unigram"])]
    for label, each in report.get("rates", {}).get("recipes", {}).items():
        lines.append(f"{label}: learning rate x{each['best']:g} of the fitted one ({rate_cells(each)}).")
    if on_plateau:
        lines.append(
            f"On the plateau at the start of training, where a model predicts by frequency: {', '.join(on_plateau)}. "
            "Train longer, or with another learning rate."
        )
    if at_chance := [each["title"] for each in report["metrics"].values() if each["is_main"] and each["at_chance"]]:
        lines.append(f"At chance for all recipes: {'; '.join(at_chance)}.")
    return lines


def rate_cells(recipe: dict[str, Any]) -> str:
    """Describe what a recipe reached at each learning rate."""
    cells = []
    for factor, each in sorted(recipe["rates"].items(), key=lambda item: float(item[0])):
        words = f", masked words {shown(each['word_accuracy'], 'share')} %" if "word_accuracy" in each else ""
        loss = "diverged" if each["loss"] is None else f"loss {shown(each['loss'], 'nats')}"
        cells.append(f"x{float(factor):g}, {each['rate']:.3g}: {loss}{words}")
    return "; ".join(cells)


def rates_line(report: dict[str, Any]) -> str:
    """Describe how learning rates were chosen and what that cost; "" if they were not."""
    if not (rates := report.get("rates")):
        return ""
    tried = [each for recipe in rates["recipes"].values() for each in recipe["rates"].values()]
    flops = plain_float(float(f"{sum(each['flops'] for each in tried):.3g}"))
    return (
        f"Learning rates: half, the same and twice the fitted one were tried on seed {rates['seed']}, which is not "
        f"compared; the one with the least held-out loss of the recipe's own objectives is used. It cost {len(tried)} "
        f"runs, {flops} FLOPs, which are in no budget."
    )


def shown_control(metric: dict[str, Any], name: str) -> str:
    """Write a control of a metric, a range where recipes differ in it."""
    values = [row[name] for row in metric["rows"].values() if row[name] is not None]
    return (
        " to ".join(dict.fromkeys(shown(each, metric["unit"]) for each in (min(values), max(values)))) if values else ""
    )


def budget_text(report: dict[str, Any]) -> str:
    """Describe the budget of a run, and how equal the spend was."""
    unit, amount = report["budget"]["unit"], report["budget"]["amount"]
    text = {
        "flops": f"{plain_float(amount)} FLOPs",
        "tokens": f"{short_count(amount)} tokens",
        "seconds": f"{amount / 60:g} minutes",
    }[unit]
    if unit in ("flops", "tokens"):
        spent = [run[unit] for recipe in report["recipes"].values() for run in recipe["spent"].values()]
        text += (
            f" per run (spent: equal {'FLOPs' if unit == 'flops' else unit} within {max(spent) / min(spent) - 1:.1%})"
        )
    return text


def summary(report: dict[str, Any]) -> Table:
    """Return, for the screen, recipes and controls by main metric that is tested."""
    metrics = [metric for metric in _main(report).values() if metric["is_tested"]]
    rows: list[list[str | Cell]] = [
        [f"{label} (baseline)" if label == report["baseline"] else label, *(_brief(each, label) for each in metrics)]
        for label in report["recipes"]
    ]
    controls = [[shown_control(metric, name) for metric in metrics] for name in CONTROLS]
    rows += [[name, *cells] for name, cells in zip(CONTROLS, controls, strict=True) if any(cells)]
    titles = (title_with_unit(metric).replace(", ", "\n") for metric in metrics)
    return Table(["", *titles], rows)


def _brief(metric: dict[str, Any], label: str) -> Cell:
    if (row := metric["rows"].get(label)) is None:
        return Cell("–")
    sign = _SIGNS.get(row["verdict"], "")
    return Cell(f"{shown_mean(row, metric['unit'])} {sign}".rstrip(), _STYLES.get(row["verdict"], ""))


def overview(report: dict[str, Any], metrics: Mapping[str, Any]) -> Table:
    """Return metrics by recipe, and their controls."""
    rows = []
    for metric in metrics.values():
        unit, cells = metric["unit"], list[str | Cell]()
        for label in report["recipes"]:
            if (row := metric["rows"].get(label)) is None:
                cells.append("–")
                continue
            note = "" if row["verdict"] == BASELINE else shown_verdict(row, unit)
            if row["by"] in ("probe", "generator"):
                note = f"{note} ({row['by']})".lstrip()
            cells.append(Cell(shown_mean(row, unit), _STYLES.get(row["verdict"], ""), note))
        controls = [Cell(shown_control(metric, name), "faint") for name in CONTROLS]
        rows.append([title_with_unit(metric), *cells, *controls])
    labels, count = _dots(report), len(report["recipes"])
    return Table(["metric", *labels.values(), *CONTROLS], rows, right=range(1 + count, 1 + count + len(CONTROLS)))


def _main(report: dict[str, Any]) -> dict[str, Any]:
    """Return the main metrics that are not at chance; those that are tested first."""
    main = {name: each for name, each in report["metrics"].items() if each["is_main"] and not each["at_chance"]}
    return dict(sorted(main.items(), key=lambda item: not item[1]["is_tested"]))


def _dots(report: dict[str, Any]) -> dict[str, Cell]:
    return {
        label: Cell(label, color=color)
        for label, color in zip(report["recipes"], itertools.cycle(COLORS), strict=False)
    }


def differences(report: dict[str, Any], metrics: Mapping[str, Any]) -> Table:
    """Return estimates, controls and differences from the baseline, a row per metric and recipe."""
    dots, rows = _dots(report), list[Row]()
    for metric in metrics.values():
        unit = metric["unit"]
        for label, row in metric["rows"].items():
            controls = ["" if row[name] is None else shown(row[name], unit) for name in CONTROLS]
            compared: list[str | Cell] = [""] * 3
            if (other := row["difference"]) is not None and label != report["baseline"]:
                difference = Cell(shown(other["mean"], unit, signed=True), note=shown_interval(other, unit))
                compared = [difference, shown_p(other["p"]), shown_p(other["p_holm"])]
            interval = shown_interval(row, unit) if metric["is_tested"] else ""
            verdict = Cell(shown_verdict(row, unit), _STYLES.get(row["verdict"], ""))
            estimate = Cell(shown_mean(row, unit), note=interval)
            rows.append([title_with_unit(metric), dots[label], estimate, *controls, *compared, verdict])
    interval = "(95 % interval)"
    names = (Cell("mean ± sd", note=interval), *CONTROLS, Cell("difference", note=interval), "p", "p (Holm)", "verdict")
    return Table(("metric", "recipe", *names), rows, right=range(2, 9), merged=True)


def spend(report: dict[str, Any]) -> Table:
    rows = []
    for label, recipe in report["recipes"].items():
        for seed, spent in recipe["spent"].items():
            counts = (f"{spent['flops']:.3e}", f"{spent['tokens']:,}", f"{spent['steps']:,}", f"{spent['epochs']:.2f}")
            rows.append((label, seed, *counts, f"{report['made_by']['seconds'][label][seed] / 60:.1f}"))
    return Table(("recipe", "seed", "FLOPs", "tokens", "steps", "epochs", "minutes"), rows, range(1, 7), merged=True)


def values(report: dict[str, Any]) -> Table:
    """Return `report.csv`: one row per metric, recipe and seed, unrounded."""
    rows = []
    for name, metric in report["metrics"].items():
        for label, row in metric["rows"].items():
            controls = ["" if row[each] is None else str(row[each]) for each in CONTROLS]
            for seed, value in row["values"].items():
                examples = str(row["examples"])
                rows.append([name, metric["unit"], label, seed, str(value), examples, *controls, row["verdict"]])
    return Table(("metric", "unit", "recipe", "seed", "value", "examples", *CONTROLS, "verdict"), rows)


def markdown(report: dict[str, Any]) -> str:
    corpus, seeds = ", ".join(map(escape, report["corpus"])), ", ".join(map(str, report["seeds"]))
    lines = [
        f"# Comparison of {', '.join(map(escape, report['recipes']))}",
        "",
        f"Corpus {corpus}; {budget_text(report)}; seeds {seeds}; baseline {escape(report['baseline'])}.",
        "",
        *(f"- {escape(sentence)}" for sentence in sentences(report)),
        "",
        *differences(report, report["metrics"]).markdown(),
        "",
        _INTERVALS.format(report["alpha"]),
        "",
        # Times differ between an interrupted study and one that is not.
        *spend(report).without("minutes").markdown(),
        *(["", line] if (line := rates_line(report)) else []),
    ]
    return "\n".join([*lines, "", f"Made by {code(report['made_by']['command'])}.", ""])


def html(report: dict[str, Any]) -> str:
    metrics, main, seeds = report["metrics"], _main(report), len(report["seeds"])
    more = {name: each for name, each in metrics.items() if name not in main and "/" not in name}
    paradigms = {name: each for name, each in metrics.items() if "/" in name}
    tested = {name: each for name, each in metrics.items() if each["is_tested"] and "/" not in name}
    title = ", ".join(report["recipes"])
    if len(title) > 60:
        title = f"{len(report['recipes'])} recipes"
    corpus = ", ".join(Path(each).name for each in report["corpus"])
    about = f"Corpus {corpus} · {budget_text(report)} · {pluralize(seeds, 'seed')} · baseline {report['baseline']}"
    part = strong(f" · {seeds} of {len(report['planned_seeds'])} seeds so far")
    return page(
        f"Comparison of {title}",
        paragraph(about, *([part] if report["seeds"] != report["planned_seeds"] else []), style="soft"),
        items(sentences(report)),
        section(
            "results",
            "Results",
            overview(report, main),
            paragraph(
                f"Mean ± standard deviation over the seeds. Below it the verdict of the paired test against "
                f"{report['baseline']}; “probe”: measured by a linear probe on frozen states, since the model has no "
                "such head; “generator”: by the model's generator. Chance is uniform guessing, or the most frequent "
                "class; unigram a model that predicts by the frequency of tokens in the training text; untrained a "
                "model of the same shape as initialized, initial embeddings included. “On the plateau”: the masked "
                f"language modeling loss on held-out text is not shown to be below {PLATEAU:.0%} of the unigram "
                "model's (upper limit of the mean over seeds, one-sided at 95 %, t distribution)."
            ),
            details("More metrics", overview(report, more)),
            details("Minimal pairs by paradigm", overview(report, paradigms)),
        ),
        section("plots", "Learning curves, and quality against cost", *_plots(report)),
        section(
            "differences",
            "Differences from the baseline",
            differences(report, tested).without(*CONTROLS),
            paragraph(_INTERVALS.format(report["alpha"])),
        ),
        section("spend", "Spend", spend(report), paragraph(rates_line(report))),
        section(
            "recipes",
            "What each recipe changes from the baseline",
            paragraph("As trained, with what was fitted to the budget."),
            *_changes(report),
        ),
        section("masks", "Sample masks", *_masks(report)),
        section("fills", "Filled masks", *_fills(report)),
        section(
            "data",
            "Data",
            sources_table(report["data"]),
            paragraph(
                f"Fingerprint of the clean training text: {report['data_fingerprint']}. Documents were held out by a "
                "hash of their text, the same for all recipes and seeds."
            ),
        ),
        origin(report["made_by"]["command"], report["made_by"]["environment"], report["made_by"]["machine"]),
    )


def _plots(report: dict[str, Any]) -> Iterator[Block]:
    curves, pareto = _curves(report), list(_pareto(report))
    if not (curves or pareto):
        return
    yield legend(_dots(report).values())
    yield figures([curves, *pareto])
    yield paragraph(
        "Learning curves: one line per seed, measured on a part of the study's held-out text, with the recipe's own "
        "masks (of an ELECTRA: its generator); curves of recipes that mask or tokenize differently are not comparable "
        "in height.",
        " Quality against cost: bars are 95 % intervals; the dashed line joins recipes that no other equals or beats "
        "in both; recipes of equal cost stand side by side."
        if pareto
        else "",
    )


def _changes(report: dict[str, Any]) -> Iterator[Block]:
    for label, recipe in report["recipes"].items():
        name, about = strong(_dots(report)[label].html()), f"{recipe['summary']}; {recipe['tokenizer']}"
        if label == report["baseline"]:
            yield paragraph(name, f" (baseline): {about}.", style="")
            continue
        rows = [[change[key] for key in ("axis", "field", "baseline", "here")] for change in recipe["changes"]]
        summary = name + f": {about}; {pluralize(len(rows), 'setting')} {'differs' if len(rows) == 1 else 'differ'}"
        table = Table(("axis", "setting", report["baseline"], label), rows, merged=True)
        yield details(summary, table, is_open=len(rows) < 12)


def _masks(report: dict[str, Any]) -> Iterator[Block]:
    kinds = Markup(", ").join([mark("masked"), mark("replaced", "replaced"), mark("kept but predicted", "kept")])
    yield paragraph("What each recipe does to the same held-out text: ", kinds, "; the original is struck through.")
    for label, cell in _dots(report).items():
        yield paragraph(cell.html())
        tokens = (
            mark(each["seen"], each["change"], "" if each["change"] == "kept" else each["original"])
            if each["change"]
            else Markup.escape(each["seen"])
            for each in report["samples"][label]["masks"]
        )
        yield paragraph(Markup(" ").join(tokens), style="tokens")


def _fills(report: dict[str, Any]) -> Iterator[Block]:
    passages: dict[tuple[str, str, str], list[tuple[Cell, Any, str]]] = {}
    for label, cell in _dots(report).items():
        for fill in report["samples"][label]["fills"]:
            passage = fill["before"], fill["word"], fill["after"]
            passages.setdefault(passage, []).append((cell, fill["filled"], fill["word"]))
    if not passages:
        yield paragraph("No model fills masks.")
        return
    yield paragraph(
        "First seed; the masked word is marked, below it the most probable tokens of each model with their probability."
    )
    for (before, word, after), rows in passages.items():
        yield paragraph(before, mark(word), after, style="")
        yield predictions_table(rows)


def _curves(report: dict[str, Any]) -> Markup:
    """Plot the held-out loss of each run against its spend."""
    dots = _dots(report)
    lines = [
        Line(points, color=dots[label].color, opacity=0.8)
        for label, by_seed in report["curves"].items()
        for points in by_seed.values()
    ]
    return chart("learning curves", "training FLOPs", "held-out loss, nats per token", lines)


def _pareto(report: dict[str, Any]) -> Iterator[Markup]:
    """Plot main metrics against the inference FLOPs per token; recipes that no other dominates are joined."""
    cost, dots, count = report["metrics"].get("inference_flops_per_token"), _dots(report), 0
    # Tasks with data before the probes made from the text itself; a loss says little that its accuracy does not.
    order = sorted(_main(report), key=lambda name: (name != "word_accuracy", name in METRICS))
    for metric in (report["metrics"][name] for name in order):
        if cost is None or count == _PLOTS:
            return
        if not (metric["is_tested"] and metric["unit"] == "share") or len(metric["rows"]) < 2:
            continue
        lines: list[Line] = []
        points: list[tuple[float, float]] = []
        width = max(row["mean"] for row in cost["rows"].values())
        for (label, row), marker in zip(metric["rows"].items(), itertools.cycle(MARKERS), strict=False):
            x, y, color = cost["rows"][label]["mean"], 100 * row["mean"], dots[label].color
            aside = x + 0.025 * width * sum(abs(x - other) < 0.01 * width for other, _ in points)
            points.append((x, y))
            if row["low"] is not None:
                lines.append(Line([(aside, 100 * row["low"]), (aside, 100 * row["high"])], color=color))
            lines.append(Line([(aside, y)], color=color, marker=marker, marker_size=7, width=0))
        front = sorted({p for p in points if not any(q[0] <= p[0] and q[1] >= p[1] and q != p for q in points)})
        lines.append(Line(front, color=INK, opacity=0.4, width=0.9, dashed=True))
        # From 0, or small differences of cost would look large.
        title, count = metric["title"], count + 1
        unit = title_with_unit(metric).partition(", ")[2]
        yield chart(title, "inference FLOPs per token", unit, lines, x_limit=1.15 * width)
