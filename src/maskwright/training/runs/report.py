"""`report.html` of a run: curves, fills, what was fitted, cost, data card; written from the files of its directory."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from markupsafe import Markup

from maskwright.checkpoints.weight_files import WEIGHTS
from maskwright.core.errors import MaskwrightError
from maskwright.core.storage.files import read_json, records_of, write_text
from maskwright.core.text.amounts import plain_float, short_count, size_in_bytes
from maskwright.data.cleaning.data_card import source_rows, sources_table
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.fitting.budget import Budget, Spent
from maskwright.fitting.rules import Choice, fitted_table
from maskwright.pretext.objectives.mlm import MaskedLanguageModeling
from maskwright.recipes.recipe import Recipe
from maskwright.recipes.saved import read_recipe
from maskwright.recipes.sizing import sizes
from maskwright.reporting.chart import COLORS, INK, Line, chart
from maskwright.reporting.metrics import curve, read_rows
from maskwright.reporting.page import Block, figures, mark, origin, page, paragraph, section, strong
from maskwright.reporting.reporter import Reporter
from maskwright.reporting.table import Cell, Row, Table
from maskwright.training.runs.run_directory import METRICS, TIMING
from maskwright.training.steps.batches import StepBatch
from maskwright.training.steps.evaluation import Baseline, health_line
from maskwright.training.steps.model import PretrainingModel
from maskwright.training.steps.step import ObjectiveResult
from maskwright.training.steps.transfer import move

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
        text = html(folder)
    except MaskwrightError as error:  # The model is complete.
        reporter.message("report", f"no {PAGE}: {error}")
        return
    write_text(folder / PAGE, text)
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
    budget = Budget(unit, amount)
    spent = Spent(result["steps"], result["tokens"], result["seconds"], result.get("flops", 0.0))
    card = read_json(folder / "data_card.json")
    verdict = ""
    if "mlm" in result["held_out"] and result["baseline"] is not None:
        measured, baseline = ObjectiveResult(**result["held_out"]["mlm"]), Baseline(**result["baseline"])
        words = health_line(measured, baseline, recipe.tokenizer.vocab_size).rpartition(": ")[2]
        verdict = f" Verdict on masked tokens: {words}."
    part = "" if result["finished"] else strong(f" · interrupted at {100 * budget.progress(spent):.0f} % of the budget")
    choices = [Choice(**each) for each in record["fitted"]]
    return page(
        f"{recipe.name}, trained on {', '.join(each['name'] for each in card['sources'])}",
        paragraph(f"{recipe.summary} · {budget}", part, style="soft"),
        section(
            "results",
            "Held-out text",
            held_out_table(result, by_generator=recipe.generator is not None),
            paragraph("" if result["held_out"] else "The corpus is too small for held-out text."),
            paragraph(
                f"{'The text of --held-out' if request.get('held_out') else 'Text that this run set aside'}; every "
                f"selected token is masked. The unigram baseline predicts by frequency alone.{verdict}"
            ),
        ),
        section(
            "continuation", "Before and after", *([_before_and_after(result["quality"])] if result["quality"] else [])
        ),
        section("plots", "Training", figures([_loss(folder), _accuracy(folder, result), _speed(folder)])),
        section("cost", "Cost", _cost(folder, recipe, record)),
        section("fills", "Filled masks", *_fills(record.get("samples", []))),
        section(
            "fitted",
            "What was fitted to the budget",
            fitted_table(choices, "recipe field", recipe.origin)
            if choices
            else paragraph("Nothing: all settings are the recipe's."),
        ),
        section(
            "data",
            "Data",
            sources_table(source_rows(card)),
            paragraph(
                f"Fingerprint of the clean text: {card['fingerprint']}. What was left out and why: data_card.md."
            ),
        ),
        origin(record["environment"]["command"], record["environment"], record["machine"]),
    )


def held_out_table(result: Mapping[str, Any], *, by_generator: bool = False) -> Table:
    """Return loss and accuracies on held-out text by objective, and those of the unigram baseline.

    `by_generator`: a generator predicts the masked tokens.
    """
    rows = [
        [
            _TITLES.get(kind, kind) + (" (generator)" if kind == "mlm" and by_generator else ""),
            f"{each['loss']:.3f}",
            "–" if each["accuracy"] is None else f"{100 * each['accuracy']:.1f} %",
            f"{each['count']:,}",
            ", ".join(
                f"{name.replace('_', ' ')} {100 * value:.1f} %"
                for name, value in each["details"].items()
                if value is not None
            ),
        ]
        for kind, each in result["held_out"].items()
    ]
    if baseline := result.get("baseline"):
        scores = (f"{baseline['loss']:.3f}", f"{100 * baseline['accuracy']:.1f} %")
        rows.append(["masked tokens by the unigram baseline", *scores, "", ""])
    table = Table(("what is predicted", "loss, nats", "accuracy", "predictions", "details"), rows, right=(1, 2, 3))
    return table if any(row[-1] for row in rows) else table.without("details")


def _before_and_after(quality: Mapping[str, Any]) -> Table:
    rows = list[Row]()
    before, after = quality["before"], quality["after"]
    for kind, each in before["held_out"].items():
        if kind in after["held_out"]:
            head = " (before: new head alone)" if kind == "mlm" and before["head_tokens"] else ""
            losses = (f"{loss['loss']:.3f}" for loss in (each, after["held_out"][kind]))
            rows.append((f"{_TITLES.get(kind, kind)}, loss in nats{head}", *losses))
    if None not in (before["similarity"], after["similarity"]):
        shares = (f"{100 * each['similarity']:.1f} %" for each in (before, after))
        rows.append(("sentence vectors: closer to the next sentence than to a random one", *shares))
    return Table(("held-out text", "before", "after"), rows, right=(1, 2))


def _fills(samples: Sequence[Sequence[Mapping[str, Any]]]) -> Iterator[Block]:
    if samples:
        yield paragraph(
            "Held-out sequences; masked tokens are marked, below them the most probable tokens with their probability."
        )
    for parts in samples:
        words = (f" {part['text']} " if "text" in part else mark(part["token"]) for part in parts)
        yield paragraph(*words, style="tokens")
        masked = (part for part in parts if "token" in part)
        yield predictions_table((part["token"], part["predictions"], part["token"]) for part in masked)


def predictions_table(rows: Iterable[tuple[str | Cell, Sequence[Mapping[str, Any]], str]]) -> Table:
    """Return the most probable tokens, from (name of the row, "token" and "score" of each, correct token)."""
    shown = list[Row]()
    for name, predictions, correct in rows:
        best = [(each["token"], f"{100 * each['score']:.0f}\N{NO-BREAK SPACE}%") for each in predictions]
        shown.append([name, *(Cell(token or "␣", "better" if token == correct else "", note) for token, note in best)])
    return Table([""] * (1 + _BEST), shown)


def _cost(folder: Path, recipe: Recipe, record: dict[str, Any]) -> Table:
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
    if (speeds := read_rows(folder / TIMING)) and "mfu" in speeds[-1]:
        rows.append(("model FLOPs utilization, median", f"{median(row['mfu'] for row in speeds):.0%}"))
    if (weights := folder / WEIGHTS).exists():
        rows.append(("size on disk", size_in_bytes(weights.stat().st_size)))
    return Table(("", ""), rows, right=(1,))


def _loss(folder: Path) -> Markup:
    """Plot the loss at masked tokens: training, held-out text and unigram baseline."""
    path = folder / METRICS
    training = np.array(curve(path, "mlm_loss")).reshape(-1, 2)
    means = [part.mean(axis=0) for part in np.array_split(training, _SMOOTHED) if len(part)]
    lines = [
        Line(means, "training", opacity=0.45),
        Line(curve(path, "held_out_mlm_loss"), "held-out text", marker="o"),
        Line(curve(path, "unigram_loss"), "unigram baseline", color=INK, opacity=0.5, dashed=True),
    ]
    return chart("loss at masked tokens", "training tokens", "nats per token", lines)


def _accuracy(folder: Path, result: dict[str, Any]) -> Markup:
    measured = [kind for kind, each in result["held_out"].items() if each["accuracy"] is not None]
    lines = [
        Line(
            [(tokens, 100 * value) for tokens, value in curve(folder / METRICS, f"held_out_{kind}_accuracy")],
            _TITLES.get(kind, kind),
            color,
            marker="o",
        )
        for kind, color in zip(measured, itertools.cycle(COLORS), strict=False)
    ]
    return chart("accuracy on held-out text", "training tokens", "accuracy, %", lines, from_zero=True)


def _speed(folder: Path) -> Markup:
    points = [(row["seconds"] / 60, row["tokens_per_second"]) for row in read_rows(folder / TIMING)]
    return chart("speed", "minutes", "tokens per second", [Line(points)], prefixes="y", from_zero=True)


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
        hidden = encoder(move(micro, device).batch).hidden[targets.positions.to(device)]
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
