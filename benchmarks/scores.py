"""What pretraining is worth: pretrained models and the same architectures from scratch, fine-tuned side by side.

    python -m benchmarks.scores --data DATA --english runs/en --chinese runs/zh
    python -m benchmarks.scores ... --only sst-2,mrpc --threads 1     one half of the sets on one core,
    python -m benchmarks.scores ... --only squad,dream --threads 1    the other half in a second process
    python -m benchmarks.scores --render                              the table of all that is there

Both sides have the same shape, tokenizer, examples, seeds and settings: those that `finetune` fits to a model that saw
few tokens or none. With `--rates` each side chooses its rate of the same few, with the first seed, by the development
examples. What is finished is not done again.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.score_sets import SETS, ScoredSet, chosen_sets, write_parts
from benchmarks.score_table import table_of
from maskwright.cli import output
from maskwright.core.errors import MaskwrightError
from maskwright.core.files import read_json, write_json, write_text
from maskwright.finetuning.benchmarks import Split

RESULTS = Path(__file__).parent / "results" / "scores"
Side = Literal["pretrained", "scratch"]
SIDES: tuple[Side, ...] = ("pretrained", "scratch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One set on one side.

    Attributes:
        chosen: The set.
        side: "pretrained", or "scratch": all weights drawn anew.
        model: The pretrained model's folder, whose shape and tokenizer both sides have.
    """

    chosen: ScoredSet
    side: Side
    model: Path

    @property
    def name(self) -> str:
        """As its files are called."""
        return f"{self.chosen.name}-{self.side}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks for; return the exit code: 130 if interrupted, 2 if something is wrong.

    Args:
        arguments: Words after the program's name; None takes those of this process.
    """
    options = _parser().parse_args(arguments)
    if options.threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(options.threads)  # Before torch is imported.
    try:
        if not options.render:
            for cell in _cells(options):
                if not _measure(cell, options):
                    output.note("stopped and saved; the same command again goes on")
                    return 130
        _render(options.out)
    except MaskwrightError as error:
        output.fail(str(error))
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scores", description="What pretraining is worth.")
    parser.add_argument("--data", type=Path, help="folder of the labelled sets, as published (glue/SST-2/train.tsv)")
    parser.add_argument("--english", type=Path, help="a pretrained English model")
    parser.add_argument("--chinese", type=Path, help="a pretrained Chinese model")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where results and fine-tuned models are kept")
    parser.add_argument("--only", default="", help=f"only these sets: {','.join(each.name for each in SETS)}")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each cell")
    parser.add_argument("--max-examples", type=int, help="training examples at most, times a set's weight")
    parser.add_argument("--max-scored", type=int, default=1000, help="scored examples at most, of questions fewer")
    parser.add_argument("--epochs", type=float, help="passes over the training examples (as `finetune` fits them)")
    parser.add_argument("--rates", default="", help="peak rates that each side chooses from (as `finetune` fits it)")
    parser.add_argument("--set", action="append", default=[], help="any other setting of `finetune`, on both sides")
    parser.add_argument("--precision", default="auto", choices=("auto", "fp32", "bf16"), help="of matrix products")
    parser.add_argument("--threads", type=int, help="threads to compute with (all cores by default)")
    parser.add_argument("--render", action="store_true", help="only write the table of what is there")
    return parser


def _cells(options: argparse.Namespace) -> list[Cell]:
    if options.data is None:
        raise MaskwrightError("no data was given", todo="Name the folder of the labelled sets, `--data DIR`.")
    models = {"en": options.english, "zh": options.chinese}
    sets = chosen_sets([name for name in options.only.split(",") if name])
    if not any(models[each.language] for each in sets):
        raise MaskwrightError("no model was given for these sets", todo="Name one, `--english RUN` or `--chinese RUN`.")
    # One set after the other, so that what is done when time is up can be laid side by side.
    return [
        Cell(chosen=each, side=side, model=model.expanduser())
        for each in sets
        if (model := models[each.language]) is not None
        for side in SIDES
    ]


def _measure(cell: Cell, options: argparse.Namespace) -> bool:
    """Fine-tune a cell's seeds, unless that is done, and keep what came out; return whether it is finished."""
    request = {
        "model": str(cell.model),
        "seeds": options.seeds,
        "max_examples": options.max_examples,
        "max_scored": options.max_scored,
        "settings": _settings(cell.chosen, options),
        "rates": options.rates,
        "precision": options.precision,
    }
    path = options.out / "cells" / f"{cell.name}.json"
    before = read_json(path) if path.is_file() else {}
    if before.get("request") == request and before.get("results") is not None:
        output.note(f"{cell.name} is done already")
        return True
    # Torch is imported from here on, with the threads asked for.
    from benchmarks.score_baseline import blind_scores
    from maskwright.finetuning.finetuning import finetune

    output.heading(cell.name, f"{cell.chosen.title}, {options.seeds} seeds")
    weight, scored = cell.chosen.weight, min(1.0, cell.chosen.weight) * options.max_scored
    most: dict[Split, int | None] = {
        "train": None if options.max_examples is None else max(1, round(weight * options.max_examples)),
        **dict.fromkeys(("dev", "test"), max(1, round(scored))),
    }
    files = write_parts(cell.chosen, options.data.expanduser(), options.out / "data" / cell.chosen.name, most)
    begun = time.perf_counter()
    done = finetune(
        cell.model,
        task=cell.chosen.task,
        train=files["train"],
        dev=files["dev"],
        test=files.get("test"),
        out=options.out / "runs" / cell.name,
        seeds=options.seeds,
        set=request["settings"],
        grid=_grid(options.rates),
        from_scratch=cell.side == "scratch",
        precision=options.precision,
    )
    results = None if done.results is None else done.results.to_json()
    write_json(
        path,
        {
            "set": cell.chosen.name,
            "side": cell.side,
            "request": request,
            "pretraining": _pretraining(cell.model),
            "scored": "test" if "test" in files else "dev",
            # All sittings: an interrupted one counts too.
            "seconds": round(before.get("seconds", 0.0) + time.perf_counter() - begun, 1),
            "blind": blind_scores(cell.chosen.task, files),
            "results": results,
        },
    )
    return done.finished


def _settings(chosen: ScoredSet, options: argparse.Namespace) -> list[str]:
    epochs = [] if options.epochs is None else [f"epochs={options.epochs:g}"]
    return [*chosen.settings, *epochs, *options.set]


def _grid(rates: str) -> list[str]:
    return [f"learning_rate={rates}"] if rates else []


def _pretraining(model: Path) -> dict[str, Any]:
    """Return what a run's folder tells of its pretraining; nothing where it is no run."""
    path = model / "run.json"
    held = read_json(path) if path.is_file() else {}
    result = held.get("result", {})
    return {
        "recipe": held.get("request", {}).get("recipe", {}).get("name"),
        "tokens": result.get("tokens"),
        "seconds": result.get("seconds"),
    }


def _render(folder: Path) -> None:
    """Write scores.json and scores.md of all cells that are there, and print the table."""
    held = [read_json(path) for path in sorted((folder / "cells").glob("*.json"))]
    order = {each.name: place for place, each in enumerate(SETS)}
    cells = sorted((each for each in held if each["results"]), key=lambda each: (order[each["set"]], each["side"]))
    if not cells:
        raise MaskwrightError(f"{folder} holds no finished cell", todo="Run it without --render first.")
    made = table_of(cells, SETS)
    write_json(
        folder / "scores.json", {"columns": made.columns, "rows": made.rows, "notes": made.notes, "cells": cells}
    )
    write_text(folder / "scores.md", made.markdown())
    output.table(made.columns, made.rows, right=range(2, len(made.columns)))
    for note in made.notes:
        output.note(note)
    output.note(f"kept in {folder / 'scores.md'}")


if __name__ == "__main__":
    sys.exit(main())
