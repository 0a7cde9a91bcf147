"""What the row `gpu` measures: its parts, made without a GPU."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks import peers
from benchmarks.goals import OWN_PLAIN, TRAINER, TUNED, goal
from benchmarks.gpu_peer import SIDES
from benchmarks.gpu_sides import Part, tell
from benchmarks.own import OwnStep
from benchmarks.settings import Settings
from benchmarks.shapes import ALBERT, BASE, SMALL, TINY, fitted
from benchmarks.workloads import Source, examples_of, made_text, mlm_recipe, text_for
from maskwright.core.errors import MaskwrightError, unknown_name
from maskwright.pretext.formats import DocSentences
from maskwright.recipes.catalog import resolve
from maskwright.recipes.optimization import LengthPhase
from maskwright.recipes.recipe import Recipe
from maskwright.training.workload import Workload, build_workload

PARTS = ("128", "512", "electra-128", "electra-512", "natural", "tiny", "small", "albert")
PEERS: Mapping[str, str] = {"tuned": TUNED, "trainer": TRAINER, "plain": OWN_PLAIN}
ANCHORS = {128: 122_000.0, 512: 88_000.0}
"""Tokens a second of ELECTRA base on an A100: 955 x 128 and 171 x 512 (NVIDIA DeepLearningExamples, its README)."""
DROPOUT = 0.1

_OF_BASE = ("128", "512", "natural")
_SHAPES = {"tiny": TINY, "small": SMALL, "albert": ALBERT}
_TOKENS = {128: 32768, 512: 65536}
"""Tokens of a step of ours by length, all in one micro-batch, as `pretrain` cuts it; in whole blocks of transformers'
too. BERT's published batch, 256 sequences, and half of it."""
_TEXTS, _PADDED_TO = 512, 128
"""Texts of natural length that make a step of nearly as many tokens; padded, they are twice as many places."""
_QUICK_BATCH = 2
_STEPS = 10
_SECONDS = 480.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What to measure.

    Attributes:
        parts: Names out of `PARTS`, in the order of measuring.
        peers: Sides beside ours in all parts that can have any; None leaves each part its own.
        seconds: No part begins later than so many seconds after the row.
    """

    parts: tuple[str, ...] = PARTS
    peers: tuple[str, ...] | None = None
    seconds: float = _SECONDS

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Choice":
        """Read what the environment asks for (see the module).

        Raises:
            MaskwrightError: If there is no such part or side.
        """
        parts = tuple(filter(None, environment.get("GPU_ROW_PARTS", "").split(","))) or PARTS
        wanted = environment.get("GPU_ROW_PEERS", "")
        named = tuple(filter(None, wanted.split(","))) if wanted != "none" else ()
        for names, known, kind in ((parts, PARTS, "part"), (named, tuple(PEERS), "side")):
            for name in names:
                if name not in known:
                    problem, allowed, todo = unknown_name(kind, name, known)
                    raise MaskwrightError(problem, allowed=allowed, todo=todo)
        return cls(
            parts=parts,
            peers=tuple(PEERS[name] for name in named) if wanted else None,
            seconds=float(environment.get("GPU_ROW_SECONDS", _SECONDS)),
        )


class Makers:
    """Makes parts.

    Attributes:
        names: Of the parts wanted, in the order of measuring.
    """

    def __init__(self, settings: Settings, choice: Choice) -> None:
        self._settings, self._choice = settings, choice
        self._weights: dict[str, dict[str, Tensor]] = {}
        self._folders: dict[str, Path] = {}
        sizes = {*settings.sizes, *(_OF_BASE if "base" in settings.sizes else ())}
        self.names = [name for name in choice.parts if not sizes or name in sizes]

    def peers(self, name: str) -> tuple[str, ...]:
        """Return the sides beside ours."""
        if name.startswith("electra"):
            return ()
        if self._choice.peers is not None:
            return self._choice.peers
        if name == "natural":
            return (TUNED,)
        return (TRAINER, TUNED, OWN_PLAIN) if name in _OF_BASE else ()

    def slots(self, name: str) -> int:
        """Return the places in a step of transformers."""
        return _length(name) * self._batch(name)

    def folder(self, part: Part) -> Path:
        """Return where transformers finds a part's weights."""
        return self._folders[part.model]

    def make(self, name: str) -> Part:
        """Make a part."""
        if name.startswith("electra"):
            return self._electra(name)
        shape = fitted(_SHAPES.get(name, BASE), self._settings)
        natural, length = name == "natural", _length(name)
        batch = self._batch(name)
        text = text_for(shape, self._settings, blocks=not natural, length=length, count=_STEPS * batch)
        source = OneMicroBatch(mlm_recipe(shape, dropout=DROPOUT, batch=batch, length=length), text)
        part = self._part(name, shape.name, source, f"natural, to {length}" if natural else f"blocks of {length}")
        wanted = {side: goal("gpu", name, TUNED) for side in SIDES}
        return replace(
            part,
            told=shape.told(),
            peers=self.peers(name),
            slots=self.slots(name),
            goals={**wanted, "peak": goal("gpu", name, "peak")},
        )

    def batches(self, part: Part) -> list[dict[str, Tensor]]:
        """Return the small step and those of a pass as transformers takes them."""
        texts = [peers.padded(each) for each in examples_of([part.small, *part.steps])]
        if part.name == "natural":
            return [_padded(batch, _PADDED_TO) for batch in texts]
        return [_unmasked(batch) for batch in texts]

    def _batch(self, name: str) -> int:
        if self._settings.quick:
            return _QUICK_BATCH
        return _TEXTS if name == "natural" else _TOKENS[_length(name)] // _length(name)

    def _electra(self, name: str) -> Part:
        length = _length(name)
        batch = self._batch(name)
        recipe = _electra_recipe(self._settings, length, batch)
        entries = recipe.tokenizer.vocab_size
        text = made_text(np.full(_STEPS * batch, length), entries, self._settings.seed)
        part = self._part(name, recipe.name, OneMicroBatch(recipe, text), f"blocks of {length}")
        return replace(part, anchor=ANCHORS[length], goals={"anchor": "1"})

    def _part(self, name: str, model: str, source: Source, texts: str) -> Part:
        seed, batch = self._settings.seed, source.recipe.training.batch_sequences
        if model not in self._weights:
            own = OwnStep(source.recipe, source.text, seed=seed)
            self._weights[model] = own.model.state_dict()
            if any(side in SIDES for side in self.peers(name)):
                own.save(self._settings.scratch / model)
                self._folders[model] = self._settings.scratch / model
        tell(f"{name}: prepared")
        return Part(
            name=name,
            model=model,
            texts=texts,
            recipe=source.recipe,
            text=source.text,
            small=source.steps(1, batch=max(2, batch // 8), seed=seed)[0],
            steps=source.steps(2 if self._settings.quick else _STEPS, seed=seed),
            weights=self._weights[model],
            told=model,
        )


@dataclass(frozen=True, slots=True)
class OneMicroBatch(Source):
    """Steps of one micro-batch each, however large."""

    def workload(self, seed: int = 0) -> Workload:
        return build_workload(
            self.recipe, self.text, seed=seed, held_out_tokens=0, tokens_per_microbatch=2 * max(_TOKENS.values())
        )


def _length(name: str) -> int:
    return 512 if name.endswith("512") else 128


def _electra_recipe(settings: Settings, length: int, batch: int) -> Recipe:
    recipe = resolve("electra/base").replace(format=DocSentences())
    if settings.quick:
        small = {"hidden_size": 128, "num_layers": 2, "num_heads": 2, "intermediate_size": 512}
        recipe = recipe.replace(
            encoder=recipe.encoder.replace(**small),
            generator=recipe.generator and recipe.generator.replace(size=0.5),
            tokenizer=recipe.tokenizer.replace(vocab_size=500),
        )
    phases = (LengthPhase(share=1.0, max_length=length),)
    return recipe.replace(training=recipe.training.replace(batch_sequences=batch, phases=phases))


def _unmasked(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Leave the mask out of a batch in which nothing is padded: attention is then a faster kernel."""
    if not batch["attention_mask"].all():
        raise ValueError("blocks of unequal length cannot go without a mask")
    return {name: values for name, values in batch.items() if name != "attention_mask"}


def _padded(batch: Mapping[str, Tensor], length: int) -> dict[str, Tensor]:
    """Pad a batch further, so that all are of one shape."""
    pad = {"labels": -100}
    return {
        name: torch.nn.functional.pad(values, (0, length - values.shape[1]), value=pad.get(name, 0))
        for name, values in batch.items()
    }
