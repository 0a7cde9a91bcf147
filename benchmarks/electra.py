"""ELECTRA's joint step against transformers' two models tied by hand, as those write it who train ELECTRA with them."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import peers
from benchmarks.agreement import Agreement, compare, names_of
from benchmarks.contest import PEAK_NOTE
from benchmarks.goals import FLAG, HF, OWN, goal
from benchmarks.machine import fp32_peak
from benchmarks.own import CLIP, OwnStep
from benchmarks.report import Check, Report, Table
from benchmarks.settings import Settings
from benchmarks.timing import Side, Spread, ratios
from benchmarks.turns import MET_NOTE, Turns, filled, real_tokens
from benchmarks.workloads import Source, examples_of, made_text, natural_lengths, text_from_file
from maskwright.pretext.formats import DocSentences
from maskwright.recipes.catalog import resolve
from maskwright.recipes.recipe import Recipe
from maskwright.training.batches import StepBatch
from maskwright.training.probe import probe_matmul
from maskwright.training.workload import Text

DISCRIMINATOR_WEIGHT = 50.0
"""Clark et al. 2020, section 3.2: lambda."""
_ROUNDS, _STEPS, _BATCH = 9, 2, 32


class JointPeer:
    """transformers' generator and discriminator with one set of embeddings, and their joint step.

    Args:
        folder: Where `save_model` wrote the discriminator, its generator in a folder beside it.
        dropout: Share dropped.
    """

    def __init__(self, folder: Path, dropout: float) -> None:
        self.generator = peers.load(folder / "generator", "ElectraForMaskedLM", dropout=dropout)
        self.discriminator = peers.load(folder, "ElectraForPreTraining", dropout=dropout)
        self.generator.electra.embeddings = self.discriminator.electra.embeddings
        self.generator.generator_lm_head.weight = self.discriminator.electra.embeddings.word_embeddings.weight
        self._both = torch.nn.ModuleList([self.generator, self.discriminator])
        self._optimizer = peers.optimizer_for(self._both)

    def losses(self, batch: peers.Batch, drawn: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the generator's and the discriminator's mean losses.

        Args:
            batch: Padded texts, masks in place, and "original", the same without them.
            drawn: What stands at the selected places, in their order; None draws it.
        """
        known = {name: batch[name] for name in ("attention_mask", "token_type_ids")}
        guessed = self.generator(input_ids=batch["input_ids"], labels=batch["labels"], **known)
        selected = batch["labels"] != -100
        if drawn is None:
            with torch.no_grad():
                drawn = torch.multinomial(guessed.logits[selected].softmax(-1), 1).squeeze(1)
        filled = batch["original"].clone()
        filled[selected] = drawn
        replaced = (filled != batch["original"]).long()
        return guessed.loss, self.discriminator(input_ids=filled, labels=replaced, **known).loss

    def take(self, batches: Sequence[peers.Batch]) -> None:
        """Take a step on each batch."""
        for batch in batches:
            guessing, finding = self.losses(batch)
            torch.autograd.backward(guessing + DISCRIMINATOR_WEIGHT * finding)
            torch.nn.utils.clip_grad_norm_(self._both.parameters(), CLIP)
            self._optimizer.step()
            self._optimizer.zero_grad()

    def losses_and_gradients(
        self, batch: peers.Batch, drawn: Tensor
    ) -> tuple[dict[str, float], dict[str, Tensor], dict[str, Tensor]]:
        """Compute losses and the gradients of generator and discriminator, dropout off."""
        self._both.eval()
        guessing, finding = self.losses(batch, drawn)
        torch.autograd.backward(guessing + DISCRIMINATOR_WEIGHT * finding)
        small, large = (
            {name: each.grad for name, each in model.named_parameters(remove_duplicate=False) if each.grad is not None}
            for model in (self.generator, self.discriminator)
        )
        self._both.zero_grad(set_to_none=True)
        self._both.train()
        return {"mlm": float(guessing.detach()), "rtd": float(finding.detach())}, small, large


def run(settings: Settings) -> Report:
    """Compare ELECTRA-small's step on documents of natural length, fp32, dropout 0.1."""
    recipe, text = _recipe_and_text(settings)
    rounds = settings.rounds_or(_ROUNDS)
    turns = Turns.of(rounds)
    steps = Source(recipe, text).typical_steps(1 + _STEPS * turns.lots, settings.seed)
    padded = [padded_with_originals(each) for each in examples_of(steps)]
    own = OwnStep(recipe, text, seed=settings.seed)
    folder = settings.scratch / "electra"
    own.save(folder)
    peer = JointPeer(folder, dropout=recipe.encoder.hidden_dropout)
    shutil.rmtree(folder)
    agreements = agree(own, peer, steps[0], padded[0])

    timed, padded_timed = turns.dealt(steps[1:]), turns.dealt(padded[1:])
    sides = [
        Side(HF, turns.each(padded_timed, peer.take)),
        Side(FLAG, turns.each(padded_timed, peer.take), peers.onednn_flag),
        Side(OWN, turns.each(timed, own.take), own.around),
    ]
    peak = fp32_peak(probe_matmul(seconds=0.0 if settings.quick else 0.9))
    seconds = turns.timed(sides)
    tokens = turns.counted(timed, real_tokens)
    fill = dict.fromkeys((HF, FLAG), peers.fill(padded[1:])) | {OWN: filled(steps[1:])}
    speed = {name: [n / took for n, took in zip(tokens, each, strict=True)] for name, each in seconds.items()}
    flops = turns.counted(timed, own.flops)
    used = Spread.of([each / took / peak for each, took in zip(flops, seconds[OWN], strict=True)]).median
    rows = [
        (
            name,
            Spread.of(speed[name]).told(),
            f"{fill[name]:.2f}",
            f"{used:.0%}" if name == OWN else "",
            "" if name == OWN else ratios(speed[OWN], speed[name]).told(),
            "" if name == OWN else f"{ratios(speed[OWN], speed[name]).median / used:.1f}",
            "" if name == OWN else goal("electra", "small", name),
        )
        for name in speed
    ]
    columns = ("side", "tokens/s", "fill", "of the peak", "maskwright is faster by", "at the peak by", "goal")
    return Report(
        tables=(Table(title="electra/small, generator and discriminator", columns=columns, rows=tuple(rows)),),
        measurements=tuple(
            {
                "model": recipe.name,
                "side": name,
                "seconds": each,
                "tokens": tokens,
                "fill": fill[name],
                "peak": peak,
                "flops": flops if name == OWN else None,
            }
            for name, each in seconds.items()
        ),
        checks=tuple(check for name, found in agreements.items() for check in _checks(name, found)),
        notes=(
            "Both sides draw what the generator fills in; for the comparison of losses and gradients the same tokens "
            "are filled in and dropout is off.",
            PEAK_NOTE,
            MET_NOTE,
        ),
    )


def padded_with_originals(texts: Sequence[Any]) -> dict[str, Tensor]:
    """Pad texts and keep beside them what stood there before masking."""
    batch = peers.padded(texts)
    original = np.zeros(tuple(batch["input_ids"].shape), dtype=np.int64)
    for row, example in enumerate(texts):
        original[row, : len(example.ids)] = example.original
    return {**batch, "original": torch.from_numpy(original)}


def agree(own: OwnStep, peer: JointPeer, step: StepBatch, batch: peers.Batch) -> dict[str, Agreement]:
    """Compare both losses and all gradients on one batch, the same tokens drawn."""
    losses, gradients, drawn = own.losses_and_gradients(step)
    found, small, large = peer.losses_and_gradients(batch, torch.cat(drawn))
    config = own.model.generator.config if own.model.generator is not None else None
    of_generator = {
        ours.replace("encoder.", "generator.", 1): theirs
        for ours, theirs in names_of(own.recipe, config, ("mlm",)).items()
    }
    return {
        "generator": compare((losses["mlm"], found["mlm"]), gradients, small, of_generator),
        "discriminator": compare((losses["rtd"], found["rtd"]), gradients, large, names_of(own.recipe, heads=("rtd",))),
    }


def _checks(name: str, found: Agreement) -> list[Check]:
    # The detector's loss is small, so the same rounding is a larger share of it.
    return found.checks(name, loss=1e-5)


def _recipe_and_text(settings: Settings) -> tuple[Recipe, Text]:
    overrides = (
        ["training.batch_sequences=6", "encoder.hidden_size=128", "encoder.num_layers=2"] if settings.quick else []
    )
    recipe = resolve("electra/small", overrides).replace(format=DocSentences())
    if settings.quick:
        recipe = recipe.replace(
            encoder=recipe.encoder.replace(num_heads=2, intermediate_size=512, embedding_size=64),
            generator=recipe.generator and recipe.generator.replace(size=0.5),
            tokenizer=recipe.tokenizer.replace(vocab_size=500),
        )
    else:
        recipe = recipe.replace(training=recipe.training.replace(batch_sequences=_BATCH))
    if settings.vocabulary:
        recipe = recipe.replace(tokenizer=recipe.tokenizer.replace(vocab_size=settings.vocabulary))
    entries = recipe.tokenizer.vocab_size
    if settings.corpus is not None:
        cache = settings.scratch / "cache"
        return recipe, text_from_file(settings.corpus, entries, 128, settings.seed, cache)
    lengths = natural_lengths(600 if settings.quick else 4096, settings.seed)
    return recipe, made_text(lengths, entries, settings.seed)
