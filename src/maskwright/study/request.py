"""The recipes of a study with their overrides, and its tasks."""

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from maskwright.core.errors import RecipeError, unknown_name
from maskwright.core.spec import overridden_fields, override, parse_overrides
from maskwright.finetuning.published.benchmarks import BENCHMARKS
from maskwright.finetuning.tasks import KINDS
from maskwright.recipes.catalog import resolve
from maskwright.recipes.recipe import Recipe

DEFAULT_TASKS = ("masked", "intrinsic", "cost")
_WITH_PATH = ("minimal-pairs", "blimp", *BENCHMARKS, *KINDS)
TUNING_SEED = 1_000_000
"""Seed of the trials of `--tune-rate`, which are not compared."""
SAMPLES = "samples"
"""Examples for the report, from the first seed of each recipe; not a task of the user."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A recipe of the study: as found under its name (`base`), and with what the study sets in it."""

    label: str
    base: Recipe
    overrides: tuple[str, ...]
    recipe: Recipe

    @property
    def folder(self) -> str:
        return re.sub(r"[^\w.=+-]+", "-", self.label)

    def run_folder(self, study: Path, seed: int) -> Path:
        return study / "runs" / self.folder / f"seed-{seed}"

    def measurement(self, study: Path, seed: int, task: str) -> Path:
        return study / "measurements" / self.folder / f"seed-{seed}" / f"{task}.json"

    @property
    def fixed(self) -> frozenset[str]:
        """Dotted fields that are not fitted to the budget."""
        return overridden_fields(parse_overrides(self.overrides))

    def with_override(self, text: str) -> "Variant":
        """Return the recipe with one more `field=value`."""
        recipe = override(self.recipe, parse_overrides([text]))
        return replace(self, overrides=(*self.overrides, text), recipe=recipe)


@dataclass(frozen=True, slots=True)
class Task:
    """Something to measure: "masked", "intrinsic", "cost", "minimal-pairs", "samples", or a task of `finetune`."""

    name: str
    kind: str
    path: Path | None = None


def variants_of(
    recipes: Sequence[str | Recipe] | Mapping[str, str | Recipe], vary: Mapping[str, Sequence[Any]], set: Sequence[str]
) -> dict[str, Variant]:
    """Return the recipes to compare, by label.

    Raises RecipeError if a recipe or field is unknown, or two have the same label.
    """
    named: list[tuple[str, Recipe]] = []
    for each in recipes.items() if isinstance(recipes, Mapping) else recipes:
        label, recipe = each if isinstance(each, tuple) else (None, each)
        if isinstance(recipe, str) and label is None and "=" in recipe:
            label, _, recipe = recipe.partition("=")
        resolved = recipe if isinstance(recipe, Recipe) else resolve(recipe)
        named.append((label or (resolved.name if isinstance(recipe, Recipe) else recipe), resolved))
    labels = [label for label, _ in named]
    if not labels or len({*labels}) < len(labels):
        raise RecipeError(
            f"recipes to compare: {', '.join(labels) or 'none'}",
            allowed="one or more different ones",
            hint="Name a second one of the same recipe yourself: `--recipes bert/mini,again=bert/mini`.",
        )
    parse_overrides(set)  # Refuses one text, whose characters the loop would take for texts.
    of_label: dict[str, list[str]] = {label: [] for label in labels}
    for text in set:
        target, colon, _ = text.partition("=")[0].rpartition(":")
        if colon and target not in of_label:
            raise unknown_name(RecipeError, "label", target, labels, f"--set {text}: ")
        for label in [target] if colon else labels:
            of_label[label].append(text[len(target) + 1 :] if colon else text)
    variants = {}
    for label, base in named:
        for values in itertools.product(*vary.values()):
            varied = [
                f"{field}={value if isinstance(value, str) else json.dumps(value)}"
                for field, value in zip(vary, values, strict=True)
            ]
            # A part before its fields: choosing a masking resets the rate that was set in the old one.
            overrides = tuple(sorted([*of_label[label], *varied], key=lambda each: each.partition("=")[0].count(".")))
            name = " ".join([label, *varied])
            variants[name] = Variant(name, base, overrides, override(base, parse_overrides(overrides)))
    return variants


def tasks_of(tasks: Sequence[str]) -> tuple[Task, ...]:
    """Read tasks as written on the command line; raises RecipeError if there is no such task, or no such data."""
    parsed: dict[str, Task] = {}
    for text in dict.fromkeys(tasks):
        front, _, path = text.partition("=")
        label, _, kind = front.rpartition(":")
        if kind not in (*DEFAULT_TASKS, *_WITH_PATH):
            raise unknown_name(RecipeError, "task", kind, (*DEFAULT_TASKS, *_WITH_PATH))
        if bool(path) == (kind in DEFAULT_TASKS) or (path and not Path(path).expanduser().exists()):
            raise RecipeError(
                f"task {text!r}" + (f": there is no {path}" if path and kind in _WITH_PATH else ""),
                allowed=f"{kind} alone" if kind in DEFAULT_TASKS else f"`{kind}=PATH` with an existing file or folder",
            )
        name = label or kind
        if name in parsed or name == SAMPLES:
            raise RecipeError(f"two tasks are called {name!r}", hint=f"Name them: `LABEL:{text}`.")
        data = Path(path).expanduser() if path else None
        parsed[name] = Task(name, "minimal-pairs" if kind == "blimp" else kind, data)
    return tuple(parsed.values())
