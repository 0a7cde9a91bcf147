"""The results of a study as plain data (`report.json`), Markdown and CSV, collected from its run directories.

Everything but the key "made_by" and the speeds of task "cost" is a function of the request, so that an interrupted
study has the results of an uninterrupted one.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from maskwright.core.errors import CheckpointError
from maskwright.core.storage.checksums import read_record
from maskwright.core.storage.files import read_json
from maskwright.core.text.amounts import plain_float, pluralize, short_count, size_in_bytes
from maskwright.recipes.catalog import resolve
from maskwright.recipes.table import diff
from maskwright.reporting.markdown import code, escape
from maskwright.reporting.metrics import curve
from maskwright.reporting.page import data_rows
from maskwright.study.controls import UNTRAINED, shape_of
from maskwright.study.request import SAMPLES, Task, Variant
from maskwright.study.statistics import (
    ALPHA,
    BETTER,
    NO_DIFFERENCE,
    NOT_COMPARABLE,
    NOT_TESTED,
    WORSE,
    differences,
    estimate,
    upper_limit,
)
from maskwright.training.runs.run_directory import METRICS as METRICS_FILE
from maskwright.training.runs.run_directory import command_line
from maskwright.training.steps.evaluation import PLATEAU

_MINUS = "\N{MINUS SIGN}"
UNITS = {"share": "%", "nats": "nats"}


@dataclass(frozen=True, slots=True)
class Metric:
    """How a metric is shown and judged.

    Attributes:
        unit: "share", "nats", "count", "bytes" or "seconds".
        is_tested: Whether it is compared by a test; costs are not.
        is_main: Whether it is in the first table.
    """

    title: str
    unit: str = "share"
    higher_is_better: bool = True
    is_tested: bool = True
    is_main: bool = True


METRICS = {
    "word_accuracy": Metric("masked words, accuracy"),
    "word_loss": Metric("masked words, loss per word", "nats", higher_is_better=False),
    "token_accuracy": Metric("masked tokens, accuracy", is_main=False),
    "token_loss": Metric("masked tokens, loss per token", "nats", higher_is_better=False, is_main=False),
    "sentence_order": Metric("sentence order, accuracy"),
    "next_sentence": Metric("next sentence, accuracy"),
    "replaced_words": Metric("replaced words, ROC AUC"),
    "source": Metric("source of a passage, accuracy"),
    "parameters": Metric("encoder parameters", "count", False, False),
    "training_flops_per_token": Metric("training FLOPs per token", "count", False, False, False),
    "inference_flops_per_token": Metric("inference FLOPs per token", "count", False, False),
    "training_memory": Metric("training memory without activations", "bytes", False, False, False),
    "size_on_disk": Metric("size on disk", "bytes", False, False, False),
    "training_tokens_per_second": Metric("training speed, tokens per second", "count", True, False),
    "latency_batch_1": Metric("latency, batch of 1 passage", "seconds", False, False),
    "latency_batch_32": Metric("latency, batch of 32 passages", "seconds", False, False, False),
}


_OF_WORDS = ("word_accuracy", "word_loss", "token_accuracy", "token_loss")
CONTROLS = ("chance", "unigram", "untrained")


def metric_of(name: str, details: str = "") -> Metric:
    """Return how a metric is shown; names that are not in `METRICS` are tasks with data."""
    if name in METRICS:
        return METRICS[name]
    if "/" in name:
        return Metric(name.partition("/")[2].replace("_", " "), is_main=False)
    return Metric(f"{name}, {details or 'accuracy'}")


def read_study_record(path: Path) -> dict[str, Any]:
    """Read a JSON file of a study that has its own checksum; raises CheckpointError if it is missing or damaged."""
    try:
        return read_record(path)
    except ValueError as error:
        raise CheckpointError(
            f"{path} is damaged: {error}",
            todo="Restore it from a copy; or remove its folder, if that is below `measurements` or `runs`, and run the "
            "same command again.",
        ) from error


def collect(
    folder: Path,
    variants: Mapping[str, Variant],
    tasks: Sequence[Task],
    baseline: str,
    seeds: Sequence[int],
    *,
    planned_seeds: Sequence[int],
) -> dict[str, Any]:
    """Return the content of `report.json`; `seeds` are those whose runs are trained and measured."""
    shared = read_study_record(folder / "study.json")
    runs = {
        label: {seed: folder / "runs" / variant.folder / f"seed-{seed}" for seed in seeds}
        for label, variant in variants.items()
    }
    records = {
        label: {seed: read_study_record(run / "run.json") for seed, run in each.items()} for label, each in runs.items()
    }
    recipes = {label: resolve(str(each[seeds[0]])) for label, each in runs.items()}
    samples = {}
    for label, variant in variants.items():
        sampled = read_study_record(folder / "measurements" / variant.folder / f"seed-{seeds[0]}" / f"{SAMPLES}.json")
        samples[label] = {"masks": sampled["masks"], "fills": sampled["fills"]}
    plateau = {label: _ratios(each) for label, each in records.items()}
    first = records[baseline][seeds[0]]
    card = read_json(runs[baseline][seeds[0]] / "data_card.json")
    return {
        "format": 1,
        "corpus": shared["corpus"],
        "requested": shared["requested"],
        "budget": shared["budget"],
        "baseline": baseline,
        "seeds": list(seeds),
        "planned_seeds": list(planned_seeds),
        "tasks": [task.name for task in tasks],
        "alpha": ALPHA,
        "recipes": {
            label: {
                "name": recipe.name,
                "summary": recipe.summary,
                "overrides": list(variants[label].overrides),
                "loss_over_unigram": plateau[label],
                "tokenizer": f"{recipe.tokenizer.kind}, {recipe.tokenizer.vocab_size:,} entries",
                "changes": [
                    {"axis": line.axis, "field": line.label, "baseline": line.left, "here": line.right}
                    for line in diff(recipes[baseline], recipe)
                ],
                "spent": {
                    str(seed): {key: record["result"][key] for key in ("flops", "tokens", "steps", "epochs")}
                    for seed, record in records[label].items()
                },
            }
            for label, recipe in recipes.items()
        },
        "metrics": _metrics(folder, variants, tasks, baseline, seeds, runs, plateau),
        "curves": {label: _curves(each, records[label]) for label, each in runs.items()},
        "samples": samples,
        "data": data_rows(card),
        "data_fingerprint": card["fingerprint"],
        "made_by": {
            "command": command_line(),
            "environment": first["environment"],
            "machine": first["machine"],
            "seconds": {
                label: {str(seed): record["result"]["seconds"] for seed, record in each.items()}
                for label, each in records.items()
            },
        },
    }


def _ratios(records: Mapping[int, dict[str, Any]]) -> list[float]:
    """Return, by seed, a run's last held-out loss of masked language modeling over that of the unigram model."""
    results = [record["result"] for record in records.values()]
    return [
        each["held_out"]["mlm"]["loss"] / each["baseline"]["loss"]
        for each in results
        if each["baseline"] and "mlm" in each["held_out"]
    ]


def is_on_plateau(ratios: Sequence[float]) -> bool:
    """Return whether losses over those of the unigram model, one per seed, are not shown to be below `PLATEAU`."""
    return bool(ratios) and not upper_limit(ratios) <= PLATEAU


def _metrics(
    folder: Path,
    variants: Mapping[str, Variant],
    tasks: Sequence[Task],
    baseline: str,
    seeds: Sequence[int],
    runs: Mapping[str, Mapping[int, Path]],
    ratios: Mapping[str, Sequence[float]],
) -> dict[str, Any]:
    """Return each metric's rows: estimate, controls, difference from the baseline and verdict of each recipe with it.

    A recipe is not compared if its runs are on the plateau by their own masks (`ratios`); nor in masked words if it is
    at the words of the study.
    """
    found: dict[str, dict[str, dict[int, dict[str, Any]]]] = {}
    for task in tasks:
        for label, variant in variants.items():
            for seed in seeds:
                file = folder / "measurements" / variant.folder / f"seed-{seed}" / f"{task.name}.json"
                for metric, measured in read_study_record(file)["metrics"].items():
                    found.setdefault(metric, {}).setdefault(label, {})[seed] = measured
    untrained = {label: _untrained(folder, shape_of(each[seeds[0]]), tasks) for label, each in runs.items()}
    plateau = {label for label, each in ratios.items() if is_on_plateau(each)}
    words = {
        label
        for label, by_seed in found.get("word_loss", {}).items()
        if is_on_plateau([each["value"] / each["unigram"] for each in by_seed.values()])
    }
    metrics = {}
    for name, by_label in found.items():
        some = next(iter(next(iter(by_label.values())).values()))
        metric = metric_of(name, some.get("metric", ""))
        values = {
            label: {seed: float(each["value"]) for seed, each in by_seed.items()} for label, by_seed in by_label.items()
        }
        excluded = (plateau | (words if name in _OF_WORDS else set())) if metric.is_tested else set()
        compared = {}
        if metric.is_tested and baseline in values and baseline not in excluded:
            comparable = {label: each for label, each in values.items() if label not in excluded}
            compared = differences(comparable, baseline, higher_is_better=metric.higher_is_better)
        rows = {}
        for label in (each for each in variants if each in values):
            groups = [each["groups"] for each in by_label[label].values()]
            of_one = next(iter(by_label[label].values()))
            rows[label] = {
                "values": {str(seed): value for seed, value in values[label].items()},
                "examples": of_one["count"],
                "by": of_one["by"],
                **asdict(estimate(list(values[label].values()), groups if all(groups) else None)),
                "chance": of_one.get("chance"),
                "unigram": of_one.get("unigram"),
                "untrained": untrained[label].get(name),
                "difference": asdict(compared[label]) if label in compared else None,
                "verdict": compared[label].verdict if label in compared else "",
            }
            if metric.is_tested and {label, baseline} & excluded:
                rows[label]["verdict"] = NOT_COMPARABLE
        at_chance = name not in _OF_WORDS and all(is_at_chance(row, metric) for row in rows.values())
        metrics[name] = {**asdict(metric), "at_chance": at_chance, "rows": rows}
    return metrics


def is_at_chance(row: Mapping[str, Any], metric: Metric) -> bool:
    """Return whether the interval of a row does not show that it is better than chance."""
    chance, bound = row["chance"], row["low" if metric.higher_is_better else "high"]
    if chance is None or bound is None:
        return False
    return bool(bound <= chance if metric.higher_is_better else bound >= chance)


def _untrained(folder: Path, shape: str, tasks: Sequence[Task]) -> dict[str, float]:
    """Return the metrics of the untrained model of a shape, as far as it was measured."""
    place = folder / "measurements" / UNTRAINED / shape
    found: dict[str, float] = {}
    for file in (place / f"{task.name}.json" for task in tasks):
        if file.is_file():
            found |= {name: float(each["value"]) for name, each in read_study_record(file)["metrics"].items()}
    return found


def _curves(runs: dict[int, Path], records: dict[int, dict[str, Any]]) -> dict[str, list[list[float]]]:
    """Return, by seed, [FLOPs, masked-token loss on the run's own held-out text] along training."""
    curves = {}
    for seed, run in runs.items():
        flops_per_token = records[seed]["result"]["flops"] / records[seed]["result"]["tokens"]
        found = curve(run / METRICS_FILE, "held_out_mlm_loss")
        curves[str(seed)] = [[tokens * flops_per_token, loss] for tokens, loss in found]
    return curves


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


def shown_sd(row: dict[str, Any], unit: str) -> str:
    """Write a standard deviation; nothing where all seeds have the same value but for rounding."""
    sd = row["sd"]
    return "" if sd is not None and sd <= 1e-9 * abs(row["mean"]) else shown(sd, unit)


def shown_interval(row: dict[str, Any], unit: str) -> str:
    """Write an interval, or nothing if there is none."""
    return "" if row["low"] is None else f"{shown(row['low'], unit)} to {shown(row['high'], unit)}"


def shown_p(p: float | None) -> str:
    """Write a p value."""
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
    unit = UNITS.get(metric["unit"])
    return f"{metric['title']}, {unit}" if unit else str(metric["title"])


def sentences(report: dict[str, Any]) -> list[str]:
    """State the findings: one sentence per recipe."""
    found = []
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
        found.append(f"{label} against {report['baseline']}: {'; '.join(parts) or 'nothing in common to compare'}.")
    on_plateau = [label for label, each in report["recipes"].items() if is_on_plateau(each["loss_over_unigram"])]
    for label, each in report.get("rates", {}).get("recipes", {}).items():
        found.append(f"{label}: learning rate x{each['best']:g} of the fitted one ({rate_cells(each)}).")
    if on_plateau:
        found.append(
            f"On the plateau at the start of training, where a model predicts by frequency: {', '.join(on_plateau)}. "
            "Train longer, or with another learning rate."
        )
    if at_chance := [each["title"] for each in report["metrics"].values() if each["is_main"] and each["at_chance"]]:
        found.append(f"At chance for all recipes: {'; '.join(at_chance)}.")
    return found


def rate_cells(found: dict[str, Any]) -> str:
    """Describe what a recipe reached at each learning rate."""
    cells = []
    for factor, each in sorted(found["rates"].items(), key=lambda item: float(item[0])):
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


def overview(report: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return columns and rows of the table on the screen: each main metric that is tested and not at chance."""
    rows = []
    for metric in report["metrics"].values():
        if not (metric["is_main"] and metric["is_tested"]) or metric["at_chance"]:
            continue
        cells = [title_with_unit(metric)]
        for label in report["recipes"]:
            row = metric["rows"].get(label)
            sd = "" if row is None or row["sd"] is None else f" \N{PLUS-MINUS SIGN} {shown(row['sd'], metric['unit'])}"
            cells.append("–" if row is None else f"{shown(row['mean'], metric['unit'])}{sd} {row['verdict']}".strip())
        rows.append([*cells, *(shown_control(metric, name) for name in CONTROLS)])
    return ["metric", *report["recipes"], *CONTROLS], rows


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


def markdown(report: dict[str, Any]) -> str:
    """Return the page `report.md`."""
    corpus, seeds = ", ".join(map(escape, report["corpus"])), ", ".join(map(str, report["seeds"]))
    lines = [
        f"# Comparison of {', '.join(map(escape, report['recipes']))}",
        "",
        f"Corpus {corpus}; {budget_text(report)}; seeds {seeds}; baseline {escape(report['baseline'])}.",
        "",
        *(f"- {escape(sentence)}" for sentence in sentences(report)),
        "",
        "| metric | recipe | mean | sd | 95 % interval | chance | unigram | untrained | difference | 95 % interval | p "
        "| p (Holm) | verdict |",
        "|---" * 13 + "|",
    ]
    for metric in report["metrics"].values():
        unit = metric["unit"]
        for label, row in metric["rows"].items():
            cells = [escape(title_with_unit(metric)), escape(label), shown(row["mean"], unit), shown_sd(row, unit)]
            cells += [shown_interval(row, unit) if metric["is_tested"] else ""]
            cells += ["" if row[name] is None else shown(row[name], unit) for name in CONTROLS]
            other = row["difference"] if label != report["baseline"] else None
            cells += ["", "", "", ""] if other is None else [
                shown(other["mean"], unit, signed=True),
                shown_interval(other, unit),
                shown_p(other["p"]),
                shown_p(other["p_holm"]),
            ]  # fmt: skip
            lines.append("| " + " | ".join([*cells, shown_verdict(row, unit)]) + " |")
    lines += ["", "| recipe | seed | FLOPs | tokens | steps | epochs |", "|---" * 6 + "|"]
    for label, recipe in report["recipes"].items():
        for seed, spent in recipe["spent"].items():
            amounts = f"{spent['flops']:.3e} | {spent['tokens']:,} | {spent['steps']:,} | {spent['epochs']:.2f}"
            lines.append(f"| {escape(label)} | {seed} | {amounts} |")
    if line := rates_line(report):
        lines += ["", line]
    return "\n".join([*lines, "", f"Made by {code(report['made_by']['command'])}.", ""])


def comma_separated(report: dict[str, Any]) -> str:
    """Return `report.csv`: one line per metric, recipe and seed."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["metric", "unit", "recipe", "seed", "value", "examples", *CONTROLS, "verdict"])
    for name, metric in report["metrics"].items():
        for label, row in metric["rows"].items():
            for seed, value in row["values"].items():
                controls = ["" if row[each] is None else row[each] for each in CONTROLS]
                writer.writerow([name, metric["unit"], label, seed, value, row["examples"], *controls, row["verdict"]])
    return text.getvalue()
