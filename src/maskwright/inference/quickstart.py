"""`maskwright quickstart`: train on text that is already on the machine, then fill masks."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwright.inference.fill_mask import Filled
from maskwright.inference.model import load
from maskwright.training.pretrain import Run, pretrain
from maskwright.training.reporting import Reporter

RECIPE = "bert/tiny"
MINUTES = 3.5
SETTINGS = (
    "training.phases=[{share: 1.0, max_length: 32}]",
    "objectives=[{kind: mlm, initial_bias: frequencies}]",
    "format=doc_sentences",
)
"""Docstrings are short, and a run of minutes learns more from many short sequences (LOG.md)."""
PROMPTS = (
    "Return the [MASK] of the array.",
    "If the file does not [MASK], an error is raised.",
    "The [MASK] value is None.",
    "This function [MASK] a list of strings.",
    "Compute the mean and the standard [MASK] of the data.",
    "Whether or [MASK] to use the cache.",
)
"""Sentences like those in docstrings."""


@dataclass(frozen=True, slots=True)
class Quickstart:
    """The result of the quickstart.

    Attributes:
        prompts: Texts with one mask each; none if the run was interrupted.
        filled: For each prompt, the best tokens of its mask.
    """

    run: Run
    prompts: tuple[str, ...]
    filled: list[list[Filled]]

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        filled = [[dataclasses.asdict(best) for best in tokens] for tokens in self.filled]
        return {
            "run": self.run.to_json(),
            "filled": [{"text": prompt, "best": best} for prompt, best in zip(self.prompts, filled, strict=True)],
        }


def quickstart(
    *,
    out: str | Path,
    minutes: float = MINUTES,
    recipe: str = RECIPE,
    prompts: Sequence[str] = PROMPTS,
    reporter: Reporter | None = None,
) -> Quickstart:
    """Train on the docstrings of this Python installation and fill some masks.

    Args:
        minutes: Training time; the first run needs about one more for preparation.
        prompts: Texts with one mask each.
        reporter: Where messages go; None for standard error.
    """
    run = pretrain("docstrings", out=out, recipe=recipe, minutes=minutes, set=SETTINGS, reporter=reporter)
    if not run.finished:
        return Quickstart(run, (), [])
    filled = load(run.folder).fill_mask(list(prompts), top_k=3)
    return Quickstart(run, tuple(prompts), [best[0] for best in filled])
