"""Show on this machine that a killed run, started again, equals an uninterrupted one, bit for bit.

A small model of the recipe is trained twice in processes of its own: once in peace, once killed (SIGKILL) at random
steps and started again with the same command, across the end of an epoch. Metrics and weights are then compared.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from maskwright.core.errors import TrainingError
from maskwright.core.files import checksum
from maskwright.recipes.catalog import get
from maskwright.text.docstrings import docstring_documents
from maskwright.training.metrics import read_rows
from maskwright.training.reporting import Reporter

SMALL = (
    "encoder.hidden_size=64",
    "encoder.num_heads=2",
    "encoder.num_layers=2",
    "encoder.intermediate_size=128",
    "tokenizer.vocab_size=2000",
    "training.batch_sequences=16",
    "training.steps=60",
    "training.warmup_steps=6",
)
STEPS = 60
_CHARACTERS = 60_000
_PATIENCE_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found.

    Attributes:
        recipe: The recipe's name.
        steps: Steps of each run.
        epochs: Passes over the data in them.
        killed_at: Steps after which the second run was killed.
        metrics_equal: Whether the metrics files are equal, byte for byte.
        weights_equal: Whether the saved models are equal, byte for byte.
        first_difference: The first differing line of the metrics, or "".
    """

    recipe: str
    steps: int
    epochs: float
    killed_at: tuple[int, ...]
    metrics_equal: bool
    weights_equal: bool
    first_difference: str

    @property
    def equal(self) -> bool:
        """Whether everything is equal."""
        return self.metrics_equal and self.weights_equal


def verify_resume(recipe: str, *, kills: int = 2, seed: int = 0, set: Sequence[str] = (), talk: Reporter) -> Verdict:
    """Train in peace, train with kills, compare.

    Args:
        recipe: A recipe's name; it is shrunk to a toy (see `SMALL`).
        kills: How often the second run is killed.
        seed: Of the runs; the moments of the kills are drawn anew each time.
        set: Further overrides.
        talk: Where to report.

    Raises:
        TrainingError: If a run fails for another reason than a kill.
    """
    get(recipe)  # A misspelt name is answered at once, not by a child process.
    with tempfile.TemporaryDirectory(prefix="maskwright-verify-") as scratch:
        work = Path(scratch)
        corpus = work / "corpus.txt"
        corpus.write_text(_some_text(), encoding="utf-8")
        command = [
            sys.executable, "-m", "maskwright", "pretrain", str(corpus), "--recipe", recipe,
            "--steps", str(STEPS), "--seed", str(seed), "--checkpoint-minutes", "0.005",
            *(part for override in (*SMALL, *set) for part in ("--set", override)),
        ]  # fmt: skip
        talk.say("peace", f"{STEPS} steps of a small {recipe} without interruption")
        _finish([*command, "--out", str(work / "peace")])
        killed_at = []
        moments = sorted(random.SystemRandom().sample(range(2, STEPS - 5), kills))
        for moment in moments:
            reached = _kill_after([*command, "--out", str(work / "killed")], work / "killed" / "metrics.jsonl", moment)
            killed_at.append(reached)
            talk.say("killed", f"after step {reached}; the same command again")
        _finish([*command, "--out", str(work / "killed")])
        return _compare(recipe, work, tuple(killed_at))


def _compare(recipe: str, work: Path, killed_at: tuple[int, ...]) -> Verdict:
    files = [work / name / "metrics.jsonl" for name in ("peace", "killed")]
    peace, killed = (file.read_text(encoding="utf-8").splitlines() for file in files)
    difference = next((f"{left} / {right}" for left, right in zip(peace, killed, strict=False) if left != right), "")
    if not difference and len(peace) != len(killed):
        difference = f"{len(peace)} lines / {len(killed)} lines"
    record = json.loads((work / "peace" / "run.json").read_text(encoding="utf-8"))["result"]
    weights = [checksum(work / name / "model.safetensors") for name in ("peace", "killed")]
    return Verdict(
        recipe=recipe,
        steps=record["steps"],
        epochs=record["epochs"],
        killed_at=killed_at,
        metrics_equal=not difference,
        weights_equal=weights[0] == weights[1],
        first_difference=difference,
    )


def _some_text() -> str:
    parts: list[str] = []
    size = 0
    for document in docstring_documents():
        parts.append(document)
        size += len(document)
        if size >= _CHARACTERS:
            break
    return "\n\n".join(parts)


def _finish(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TrainingError(f"the command {' '.join(command)} failed: {done.stderr.strip()[-600:]}")


def _kill_after(command: list[str], metrics: Path, step: int) -> int:
    """Start the command, kill it once its metrics reach a step, and return the last step written."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    begun = time.monotonic()
    while process.poll() is None and time.monotonic() - begun < _PATIENCE_SECONDS:
        rows = read_rows(metrics)
        if rows and rows[-1]["step"] >= step:
            break
        time.sleep(0.005)
    process.kill()
    _, complaint = process.communicate()
    rows = read_rows(metrics)
    if not rows:
        raise TrainingError(f"the run to be killed never took a step: {complaint.strip()[-600:]}")
    return int(rows[-1]["step"])
