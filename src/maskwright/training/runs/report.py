"""`report.html` of a run: curves, fills, what was fitted, cost, data card; written from the files of its directory."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from maskwright.checkpoints.weight_files import WEIGHTS
from maskwright.core.errors import MaskwrightError
from maskwright.core.storage.files import read_json, records_of, write_text
from maskwright.core.text.amounts import plain_float, short_count, size_in_bytes
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.fitting.budget import Budget, Spent
from maskwright.fitting.rules import Choice
from maskwright.pretext.objectives.mlm import MaskedLanguageModeling
from maskwright.recipes.recipe import Recipe
from maskwright.recipes.saved import read_recipe
from maskwright.recipes.sizing import sizes
from maskwright.reporting.metrics import curve, read_rows
from maskwright.reporting.page import COLORS, INK, data_rows, figure, render, svg
from maskwright.reporting.reporter import Reporter
from maskwright.training.runs.run_directory import METRICS
from maskwright.training.steps.batches import StepBatch
from maskwright.training.steps.evaluation import Baseline, HeldOutResult, health_line
from maskwright.training.steps.model import PretrainingModel

PAGE = "report.html"
_PASSAGES, _MAX_MASKS, _BEST = 4, 4, 3
_SMOOTHED = 40
"""Points of the training curve."""
_TITLES = {
    "mlm": "masked tokens",
    "nsp": "next sentence",
    "sop": "sentence order",
    "rtd": "replaced tokens",
    "replace_mlm": "the text before replacement",
    "sbo": "masked spans, from their boundaries",
    "soft_targets": "the teacher's predictions",
    "cosine": "the teacher's hidden states",
    "relations": "the teacher's attention relations",
    "sentence_vectors": "the teacher's sentence vectors",
}


def write_page(folder: Path, reporter: Reporter) -> None:
    """Write the page of a run, or say why it cannot be written."""
    try:
        page = html(folder)
    except MaskwrightError as error:  # The model is complete.
        reporter.message("report", f"no {PAGE}: {error}")
        return
    write_text(folder / PAGE, page)
    reporter.message("report", str(folder / PAGE))


def html(folder: Path) -> str:
    """Return the page. Raises DataError if files of the run are missing or damaged."""
    with records_of(folder, "run.json, recipe.json, data_card.json, metrics.jsonl, timing.jsonl"):
        return _html(folder)


def _html(folder: Path) -> str:
    record = read_json(folder / "run.json")
    result, request = {"quality": None, **record["result"]}, record["request"]
    recipe = read_recipe(folder / "recipe.json")
    ((unit, amount),) = request["budget"].items()
    spent = Spent(result["steps"], result["tokens"], result["seconds"], result.get("flops", 0.0))
    card = read_json(folder / "data_card.json")
    verdict = ""
    if "mlm" in result["held_out"] and result["baseline"] is not None:
        measured, baseline = HeldOutResult(**result["held_out"]["mlm"]), Baseline(**result["baseline"])
        verdict = health_line(measured, baseline, recipe.tokenizer.vocab_size).rpartition(": ")[2]
    return render(
        Path(__file__).with_name("run.html.jinja"),
        {"title_of": lambda kind: _TITLES.get(kind, kind)},
        heading=f"{recipe.name}, trained on {', '.join(each['name'] for each in card['sources'])}",
        recipe=recipe,
        result=result,
        verdict=verdict,
        budget=str(Budget(unit, amount)),
        share=Budget(unit, amount).progress(spent),
        fitted=[(each.field, *each.shown(), each.reason) for each in (Choice(**one) for one in record["fitted"])],
        cost=_cost(folder, recipe, record),
        plots=[plot for plot in (_loss(folder), _accuracy(folder, result), _speed(folder)) if plot],
        samples=record.get("samples", []),
        data=data_rows(card),
        fingerprint=card["fingerprint"],
        made_by={**record, "command": record["environment"]["command"]},
    )


def _cost(folder: Path, recipe: Recipe, record: dict[str, Any]) -> list[tuple[str, str]]:
    result, counted = record["result"], sizes(recipe)
    rows = [
        ("parameters of the encoder", f"{counted.encoder_and_pooler:,}"),
        ("parameters in pretraining, heads included", f"{counted.pretraining:,}"),
        ("tokens trained", f"{result['tokens']:,}"),
        ("tokens planned", short_count(record["expected_tokens"])),
        ("epochs", f"{result['epochs']:.2f}"),
        ("steps", f"{result['steps']:,}"),
        ("minutes", f"{result['seconds'] / 60:.1f}"),
        ("tokens per second, evaluations included", f"{result['tokens'] / max(result['seconds'], 1e-9):,.0f}"),
    ]
    if result.get("flops"):
        rows += [
            ("training FLOPs", plain_float(float(f"{result['flops']:.4g}"))),
            ("training FLOPs per token", short_count(result["flops"] / max(result["tokens"], 1))),
        ]
    if (speeds := read_rows(folder / "timing.jsonl")) and "mfu" in speeds[-1]:
        rows.append(("model FLOPs utilization, median", f"{median(row['mfu'] for row in speeds):.0%}"))
    if (weights := folder / WEIGHTS).exists():
        rows.append(("size on disk", size_in_bytes(weights.stat().st_size)))
    return rows


def _loss(folder: Path) -> str:
    """Plot the loss at masked tokens: training, held-out text and unigram baseline."""
    plot, axes = figure("loss at masked tokens", "training tokens", "nats per token")
    training = np.array(curve(folder / METRICS, "mlm_loss")).reshape(-1, 2)
    means = [part.mean(axis=0) for part in np.array_split(training, _SMOOTHED) if len(part)]
    held_out = curve(folder / METRICS, "held_out_mlm_loss")
    for points, label, style in (
        (means, "training", {"color": COLORS[0], "alpha": 0.45}),
        (held_out, "held-out text", {"color": COLORS[0], "marker": "o", "markersize": 3}),
        (curve(folder / METRICS, "unigram_loss"), "unigram baseline", {"color": INK, "alpha": 0.5, "linestyle": "--"}),
    ):
        if len(points):
            axes.plot(*zip(*points, strict=True), label=label, **{"linewidth": 1.2} | style)
    return _with_legend(plot, axes, "loss")


def _accuracy(folder: Path, result: dict[str, Any]) -> str:
    """Plot the accuracies on held-out text."""
    plot, axes = figure("accuracy on held-out text", "training tokens", "%")
    measured = [kind for kind, each in result["held_out"].items() if each["accuracy"] is not None]
    for kind, color in zip(measured, itertools.cycle(COLORS), strict=False):
        if points := [(tokens, 100 * value) for tokens, value in curve(folder / METRICS, f"held_out_{kind}_accuracy")]:
            axes.plot(*zip(*points, strict=True), label=_TITLES.get(kind, kind), color=color, marker="o", markersize=3)
    return _with_legend(plot, axes, "accuracy")


def _speed(folder: Path) -> str:
    """Plot the speed along training."""
    plot, axes = figure("speed", "minutes", "tokens per second")
    if rows := read_rows(folder / "timing.jsonl"):
        axes.plot([row["seconds"] / 60 for row in rows], [row["tokens_per_second"] for row in rows], color=COLORS[0])
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_formatter("{x:g}")
    return _with_legend(plot, axes, "speed")


def _with_legend(plot: Any, axes: Any, name: str) -> str:
    lines = axes.get_lines()
    if any(not line.get_label().startswith("_") for line in lines):
        axes.legend(frameon=False, labelcolor=INK, fontsize=8)
    return svg(plot, name) if lines else ""


def sample_fills(
    model: PretrainingModel, held_out: Sequence[StepBatch], tokenizer: Tokenizer
) -> list[list[dict[str, Any]]]:
    """Return what the model predicts at the masks of a few held-out sequences.

    Parts are in order: a "text", or a masked "token" with its best "predictions" ("token" and "score").
    """
    objective = next((each for each in model.objectives if isinstance(each, MaskedLanguageModeling)), None)
    if objective is None or not held_out:
        return []
    micro = held_out[0].micro_batches[0]
    targets, bounds = micro.targets["mlm"], micro.batch.cu_seqlens.tolist()
    encoder = model.encoder if model.generator is None else model.generator
    device = encoder.word_embeddings.weight.device
    was_training = model.training
    model.eval()
    with torch.inference_mode():
        hidden = encoder(micro.to(device).batch).hidden[targets.positions.to(device)]
        logits = objective.logits(model.heads["mlm"], hidden, encoder.word_embeddings.weight)
        best = logits.float().softmax(dim=1).topk(_BEST, dim=1)
    model.train(was_training)
    ids, labels = micro.batch.ids.tolist(), targets.labels.tolist()
    number_of = {position: number for number, position in enumerate(targets.positions.tolist())}
    suitable = [
        range(start, end)
        for start, end in itertools.pairwise(bounds)
        if 0 < len(number_of.keys() & range(start, end)) <= _MAX_MASKS
    ]
    samples = []
    for positions in suitable[:: -(-len(suitable) // _PASSAGES) or 1]:
        parts: list[dict[str, Any]] = []
        for is_masked, group in itertools.groupby(positions, key=number_of.__contains__):
            if not is_masked:
                parts.append(
                    {"text": tokenizer.decode([ids[position] for position in group], skip_special_tokens=True)}
                )
                continue
            for number in (number_of[position] for position in group):
                ranked = zip(best.indices[number].tolist(), best.values[number].tolist(), strict=True)
                predictions = [{"token": tokenizer.token_text(id).strip(), "score": score} for id, score in ranked]
                parts.append({"token": tokenizer.token_text(labels[number]).strip(), "predictions": predictions})
        samples.append(parts)
    return samples
