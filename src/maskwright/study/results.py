"""The results of a study as plain data (`report.json`), collected from its run directories.

Everything but the key "made_by" and the speeds of task "cost" is a function of the request, so that an interrupted
study has the results of an uninterrupted one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from maskwright.core.errors import CheckpointError
from maskwright.core.storage.checksums import read_record
from maskwright.core.storage.files import read_json
from maskwright.data.cleaning.data_card import source_rows
from maskwright.recipes.catalog import resolve
from maskwright.recipes.table import diff
from maskwright.reporting.metrics import curve
from maskwright.study.probes import UNTRAINED, shape_of
from maskwright.study.request import SAMPLES, Task, Variant
from maskwright.study.statistics import ALPHA, NOT_COMPARABLE, differences, estimate, upper_limit
from maskwright.training.runs.run_directory import METRICS as METRICS_FILE
from maskwright.training.runs.run_directory import command_line
from maskwright.training.steps.evaluation import PLATEAU


@dataclass(frozen=True, slots=True)
class Metric:
    """Presentation and statistics of a metric.

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
    """Read a JSON file of a study that contains its checksum; raises CheckpointError if it is missing or damaged."""
    try:
        return read_record(path)
    except ValueError as error:
        raise CheckpointError(
            f"{path} is damaged: {error}",
            hint="Restore it from a copy; or remove its folder, if that is below `measurements` or `runs`, and run the "
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
    runs = {label: {seed: variant.run_folder(folder, seed) for seed in seeds} for label, variant in variants.items()}
    records = {
        label: {seed: read_study_record(run / "run.json") for seed, run in each.items()} for label, each in runs.items()
    }
    recipes = {label: resolve(str(each[seeds[0]])) for label, each in runs.items()}
    samples = {}
    for label, variant in variants.items():
        sampled = read_study_record(variant.measurement(folder, seeds[0], SAMPLES))
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
        "data": source_rows(card),
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
    measurements: dict[str, dict[str, dict[int, dict[str, Any]]]] = {}
    for task in tasks:
        for label, variant in variants.items():
            for seed in seeds:
                record = read_study_record(variant.measurement(folder, seed, task.name))
                for metric, measured in record["metrics"].items():
                    measurements.setdefault(metric, {}).setdefault(label, {})[seed] = measured
    untrained = {label: _untrained(folder, shape_of(each[seeds[0]]), tasks) for label, each in runs.items()}
    plateau = {label for label, each in ratios.items() if is_on_plateau(each)}
    words = {
        label
        for label, by_seed in measurements.get("word_loss", {}).items()
        if is_on_plateau([each["value"] / each["unigram"] for each in by_seed.values()])
    }
    metrics = {}
    for name, by_label in measurements.items():
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
    measured = folder / "measurements" / UNTRAINED / shape
    values: dict[str, float] = {}
    for file in (measured / f"{task.name}.json" for task in tasks):
        if file.is_file():
            values |= {name: float(each["value"]) for name, each in read_study_record(file)["metrics"].items()}
    return values


def _curves(runs: dict[int, Path], records: dict[int, dict[str, Any]]) -> dict[str, list[list[float]]]:
    """Return, by seed, [FLOPs, masked-token loss on the run's own held-out text] along training."""
    curves = {}
    for seed, run in runs.items():
        flops_per_token = records[seed]["result"]["flops"] / records[seed]["result"]["tokens"]
        points = curve(run / METRICS_FILE, "held_out_mlm_loss")
        curves[str(seed)] = [[tokens * flops_per_token, loss] for tokens, loss in points]
    return curves
