"""Continued pretraining: the recipe of an existing model, a new masked-token head, and the effect of the training."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from maskwright.checkpoints.checkpoint import Checkpoint
from maskwright.checkpoints.sentence_folder import MODULES, Pooling, read_sentence_modules
from maskwright.core.batching import by_length
from maskwright.core.flat_arrays import concatenated_ranges
from maskwright.core.storage.checksums import read_record
from maskwright.core.tensors import PackedBatch, mean_of_tokens
from maskwright.core.text.amounts import short_count
from maskwright.core.types import Documents, IntArray
from maskwright.fitting.budget import Budget, Spent
from maskwright.model.encoder import Encoder
from maskwright.pretext.objectives import (
    MaskedLanguageModeling,
    NextSentencePrediction,
    ObjectiveChoice,
    SentenceOrderPrediction,
)
from maskwright.recipes import catalog
from maskwright.recipes.optimization import AdamW, LengthPhase, OptimizerSpec, Training
from maskwright.recipes.recipe import MaskSampling, Recipe
from maskwright.recipes.saved import read_recipe, recipe_from_json
from maskwright.training.ranks.interrupt import StopRequest
from maskwright.training.runs.mirror import recorded_request
from maskwright.training.runs.run import Run
from maskwright.training.runs.run_directory import RECORD
from maskwright.training.start.existing import open_existing
from maskwright.training.steps.model import PretrainingModel
from maskwright.training.steps.step import ObjectiveResult
from maskwright.training.steps.text import Text
from maskwright.training.steps.update_rules import build_optimizer
from maskwright.training.steps.workload import Workload

LEARNING_RATE = 5e-5
"""Peak for the whole model. Gururangan et al. (2020) continue with 1e-4 and batches of 2,048 sequences; short runs have
small batches. all-MiniLM-L6-v2 keeps 0.866 of 0.867 on STS-B after 55,000 tokens at this rate (LOG.md)."""
HEAD_LEARNING_RATE = 1e-3
HEAD_SHARE = 0.1
"""Share of the budget in which a new masked-token head is trained alone; other shares are not measured."""
_SHORT_LENGTH, _SHORT_SHARE = 128, 0.9
"""As BERT's own phases (Devlin et al. 2019, appendix A.2): 90 % of the steps at 128 tokens, the rest at full length."""
_TEMPLATES = {
    "roberta": "roberta/base",
    "distilbert": "roberta/base",
    "albert": "albert/base",
    "modernbert": "modernbert/base",
}
"""Recipes with the format and masking of a family; other families have BERT's."""
_PAIRS, _MIN_PAIRS, _MIN_TOKENS = 256, 16, 5
_TOKENS_AT_ONCE = 4096

_RETRAIN = (
    "`maskwright finetune RUN --task embedding --train pairs.csv --out DIR`, or without labels "
    "`--train sentences.txt`, one sentence per line (SimCSE)"
)
EMBEDDER_WARNING = (
    "this model makes sentence vectors, and masked-token training alters them, the more the higher the learning rate: "
    "all-MiniLM-L6-v2 lost 0.048 of its correlation on STS-B after 47,000 tokens at 1e-4 without training the new "
    f"head first; afterwards train the vectors again: {_RETRAIN}"
)


def recipe_of(model: Checkpoint) -> Recipe:
    """Return a recipe that continues the training of a model: its shape, length, and the objectives of its heads.

    A run's own recipe is continued, without its teacher; with masked tokens if it has no other objective. Another model
    has masked tokens as objective, with a new head if it has none, and next sentence or sentence order if it has that
    head.
    """
    longest = model.max_length
    phases: tuple[LengthPhase, ...] = (LengthPhase(share=1.0, max_length=longest),)
    if longest > _SHORT_LENGTH:
        short = LengthPhase(share=_SHORT_SHARE, max_length=_SHORT_LENGTH)
        phases = short, LengthPhase(share=round(1 - _SHORT_SHARE, 2), max_length=longest)
    training = Training(phases=phases, learning_rate=LEARNING_RATE, optimizer=AdamW(betas=(0.9, 0.98)))
    template = catalog.get(_TEMPLATES.get(model.family, "bert/base"))
    file = model.folder / "recipe.json"
    if file.is_file():
        saved = read_recipe(file)
        kept = tuple(each for each in saved.objectives if "teacher" not in each.needs)
        changes: dict[str, Any] = {"objectives": kept}
        if not kept:  # Objectives of a teacher alone may mask nothing.
            changes = {
                "objectives": (MaskedLanguageModeling(),),
                "masking": template.masking,
                "replacement": template.replacement,
            }
        return saved.replace(
            summary=f"not published: continues {saved.name}",
            teacher=None,
            encoder=model.config,
            training=training,
            **changes,
        )
    mlm = MaskedLanguageModeling(initial_bias="zero" if "mlm" in model.heads else "frequencies")
    objectives: tuple[ObjectiveChoice, ...] = (mlm,)
    layout = template.format
    if "nsp" in model.heads:
        layout, objectives = catalog.get("bert/base").format, (mlm, NextSentencePrediction())
    elif "sop" in model.heads:
        layout, objectives = catalog.get("albert/base").format, (mlm, SentenceOrderPrediction())
    elif any(each.predicts == "sequence" for each in template.objectives):
        layout = catalog.get("roberta/base").format
    return template.replace(
        name=f"{model.family}/continued",
        summary="not published: continues a model with its own shape",
        family=model.family,
        format=layout,
        masks=MaskSampling(),
        objectives=objectives,
        encoder=model.config,
        training=training,
    )


def has_new_head(recipe: Recipe, begun_with: Mapping[str, Any] | None) -> bool:
    """Return whether a run began with a model without masked-token head; `begun_with` is in its record."""
    new = (begun_with or {}).get("new", [])
    return recipe.generator is None and "head 'mlm'" in new and all(part.startswith("head ") for part in new)


def split_budget(budget: Budget, recipe: Recipe, record: Mapping[str, Any]) -> tuple[Budget | None, Budget]:
    """Divide a run's budget between its new head alone, None without one, and the whole model; steps stay whole."""
    if record["request"]["as_published"] or not has_new_head(recipe, record.get("begun_with")):
        return None, budget
    head = budget.amount * HEAD_SHARE
    if budget.unit == "steps":
        head = float(round(head))
    if not head:  # Of fewer than six steps.
        return None, budget
    return Budget(budget.unit, head), Budget(budget.unit, budget.amount - head)


def held_out_similarity(folder: Path, model: PretrainingModel, text: Text, workload: Workload) -> float | None:
    """Return `sentence_similarity` on the held-out text; None for a model that makes no sentence vectors."""
    if not (folder / MODULES).is_file():
        return None
    source, pooling = text if text.held_out is None else text.held_out, read_sentence_modules(folder).pooling
    return sentence_similarity(model.encoder, source, workload.held_out_documents, pooling)


def sentence_similarity(encoder: Encoder, text: Text, documents: Documents, pooling: Pooling) -> float | None:
    """Return how often a held-out sentence is closer to the next one than to one of another document; chance is 0.5.

    By cosine similarity of up to 256 sentences to all others; None for fewer than 16 pairs of sentences.
    """
    pairs = np.maximum(documents.last - documents.first - 1, 0)
    first, number = concatenated_ranges(documents.first, pairs), np.repeat(np.arange(len(documents)), pairs)
    bounds = documents.bounds(np.arange(len(documents.sentence_ends) + 1))
    lengths = np.diff(bounds)
    long_enough = np.minimum(lengths[first], lengths[first + 1]) >= _MIN_TOKENS
    first, number = first[long_enough], number[long_enough]
    if len(first) < _MIN_PAIRS:
        return None
    chosen = np.unique(np.linspace(0, len(first) - 1, min(len(first), _PAIRS)).astype(np.int64))
    first, number = first[chosen], number[chosen]
    left, right = (_vectors(encoder, text, bounds, sentences, pooling) for sentences in (first, first + 1))
    similarity = (left @ right.T).numpy()
    others = number[:, None] != number[None, :]
    if not others.any():
        return None
    closer = similarity.diagonal()[:, None] > similarity
    return float(closer[others].mean())


def _vectors(encoder: Encoder, text: Text, bounds: IntArray, sentences: IntArray, pooling: Pooling) -> Tensor:
    """Return the vectors of sentences, shape (N, H), of length 1."""
    special, longest = text.vocabulary.special_tokens, min(_SHORT_LENGTH, encoder.config.max_positions) - 2
    device = encoder.word_embeddings.weight.device
    starts = bounds[sentences]
    ends = np.minimum(bounds[sentences + 1], starts + longest)
    vectors = torch.empty(len(sentences), encoder.config.hidden_size)
    was_training = encoder.training
    encoder.eval()
    with torch.inference_mode():
        for chosen in by_length(ends - starts + 2, _TOKENS_AT_ONCE):
            inner = [text.gather(starts[[each]], ends[[each]]).ids for each in chosen]
            ids = np.concatenate([[special.cls, *each, special.sep] for each in inner])
            lengths = np.array([len(each) + 2 for each in inner])
            batch = PackedBatch.of(ids, np.zeros_like(ids), lengths, device=device)
            hidden = encoder(batch).hidden
            pooled = hidden[batch.first_tokens] if pooling == "first" else mean_of_tokens(hidden, batch)
            vectors[chosen] = pooled.float().cpu()
    encoder.train(was_training)
    return torch.nn.functional.normalize(vectors)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """Held-out results of a model: by objective, and of its sentence vectors (`sentence_similarity`) if it makes them.

    `head_tokens` is the number of tokens after which these results were measured: those of a new head alone.
    """

    held_out: dict[str, ObjectiveResult]
    similarity: float | None = None
    head_tokens: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return plain data, as `run.json` keeps it."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Quality":
        held_out = {kind: ObjectiveResult(**value) for kind, value in data["held_out"].items()}
        return cls(held_out=held_out, similarity=data["similarity"], head_tokens=data["head_tokens"])


def verdict(before: Quality, after: Quality) -> Iterator[str]:
    """Yield a line on each objective, and one on sentence vectors, before and after continued pretraining."""
    for kind, now in after.held_out.items():
        if (was := before.held_out.get(kind)) is None:
            continue
        change = now.loss - was.loss
        word = "improved" if change < -0.005 else "worse than before" if change > 0.005 else "unchanged"
        of = " with the new head alone" if before.head_tokens and kind == "mlm" else " before"
        accuracy = ""
        if was.accuracy is not None and now.accuracy is not None:
            accuracy = f", accuracy {was.accuracy:.1%} -> {now.accuracy:.1%}"
        yield f"held-out {kind.upper()} loss {was.loss:.3f}{of} -> {now.loss:.3f} now{accuracy}: {word}"
    if before.similarity is not None and after.similarity is not None:
        change = after.similarity - before.similarity
        word = "improved" if change > 0.002 else "worse" if change < -0.002 else "unchanged"
        yield (
            f"sentence vectors: a held-out sentence is closer to the next one than to a random one in "
            f"{before.similarity:.1%} before -> {after.similarity:.1%} now: {word}"
            + (f"; train them again: {_RETRAIN}" if change < -0.002 else "")
        )


def train_head(run: Run[PretrainingModel], budget: Budget, optimizer: OptimizerSpec, stop: StopRequest) -> Spent:
    """Train a new head alone, the encoder frozen; return what that has spent.

    Raises KeyboardInterrupt if a stop is requested, before anything is saved: the same command starts again.
    """
    heads = run.model.heads.named_parameters(prefix="heads")
    steps = build_optimizer(heads, optimizer, peak=HEAD_LEARNING_RATE)
    spent, (unit, scale) = Spent(), ("GFLOPs", 1e-9) if budget.unit == "flops" else (budget.unit, 1.0)
    run.model.encoder.requires_grad_(False)
    for report in run.reports(stop, steps, budget, replace(run.schedule, peak=HEAD_LEARNING_RATE)):
        spent = report.position.spent
        done = min(float(getattr(spent, budget.unit)), budget.amount)
        run.reporter.stage(f"training the new head ({unit})", round(scale * done), round(scale * budget.amount))
        if stop.agree() and budget.progress(spent) < 1:
            raise KeyboardInterrupt
    run.model.encoder.requires_grad_(True)
    run.reporter.message("head", f"new, trained alone on {short_count(spent.tokens)} tokens; the encoder was frozen")
    return spent


def initial_recipe(init: str, out: Path, mirror: str | None = None) -> Recipe:
    """Return the recipe of a run that names none: `recipe_of` the initial model, or the one that the run began with.

    Resuming needs the initial model no more, nor does resuming from the mirror at a URL.
    """
    request: dict[str, Any] = {}
    with contextlib.suppress(ValueError):
        request = (read_record(out / RECORD) or {}).get("request", {})
    if not request and mirror is not None:
        request = recorded_request(mirror)
    if request.get("init") == init and "recipe" in request:
        return recipe_from_json(request["recipe"], str(out / RECORD))
    return recipe_of(open_existing(init))
