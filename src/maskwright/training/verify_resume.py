"""Show on this machine that a killed run, started again, equals an uninterrupted one, bit for bit.

A small model of the recipe is trained twice in processes of its own: once in peace, once killed (SIGKILL) at random
steps and started again with the same command, across the end of an epoch. Metrics and weights are then compared.
"""

import json
import os
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
from maskwright.data.sources.docstrings import docstring_documents
from maskwright.recipes.catalog import resolve
from maskwright.training.metrics import read_rows
from maskwright.training.reporting import OnConsole, Reporter
from maskwright.training.run_folder import GENERATOR

SMALL = (
    "encoder.hidden_size=64",
    "encoder.num_heads=2",
    "encoder.num_layers=2",
    "encoder.intermediate_size=128",
    "tokenizer.vocab_size=2000",
    "training.batch_sequences=16",
    "training.steps=60",
    "training.warmup_steps=6",
    'training.phases=[{"share": 0.5, "max_length": 32}, {"share": 0.5, "max_length": 64}]',
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
        weights_equal: Whether the saved models (a generator too) are equal, byte for byte.
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


def verify_resume(
    recipe: str = "bert/mini",
    *,
    kills: int = 2,
    seed: int = 0,
    set: Sequence[str] = (),
    reporter: Reporter | None = None,
) -> Verdict:
    """Train in peace, train with kills, compare.

    Args:
        recipe: A recipe's name; it is shrunk to a toy (see `SMALL`).
        kills: How often the second run is killed.
        seed: Of the runs; the moments of the kills are drawn anew each time.
        set: Further overrides.
        reporter: Where to report; None for standard error.

    Raises:
        RecipeError: If the recipe or an override is unknown.
        TrainingError: If a run fails for another reason than a kill.
    """
    small = resolve(recipe, (*SMALL, *set))  # A mistake is answered at once, not by a child process.
    talk = reporter or OnConsole()
    with tempfile.TemporaryDirectory(prefix="maskwright-verify-") as scratch:
        work = Path(scratch)
        corpus = work / "corpus.txt"
        corpus.write_text(_some_text(), encoding="utf-8")
        command = [
            sys.executable, "-m", "maskwright", "pretrain", str(corpus), "--recipe", recipe,
            "--steps", str(STEPS), "--seed", str(seed), "--checkpoint-minutes", "0.005",
            *_set(*SMALL, *set),
        ]  # fmt: skip
        if small.teacher is not None and not any(override.startswith("teacher.model=") for override in set):
            command = _with_teacher(command, small.tokenizer.kind, work, talk)
        talk.say("peace", f"{STEPS} steps of a small {recipe} without interruption")
        _finish([*command, "--out", str(work / "peace")], work / "cache")
        killed_at = []
        moments = sorted(random.SystemRandom().sample(range(2, STEPS - 5), kills))
        for moment in moments:
            killed = work / "killed"
            reached = _kill_after([*command, "--out", str(killed)], killed / "metrics.jsonl", moment, work / "cache")
            killed_at.append(reached)
            talk.say("killed", f"after step {reached}; the same command again")
        _finish([*command, "--out", str(work / "killed")], work / "cache")
        return compare(recipe, work, tuple(killed_at))


def compare(recipe: str, work: Path, killed_at: tuple[int, ...]) -> Verdict:
    """Compare two finished runs, in the folders "peace" and "killed", step by step and byte by byte.

    Args:
        recipe: What both trained.
        work: The folder that holds both.
        killed_at: Last steps before each kill of the second.
    """
    files = [work / name / "metrics.jsonl" for name in ("peace", "killed")]
    peace, killed = (file.read_text(encoding="utf-8").splitlines() for file in files)
    difference = next((f"{left} / {right}" for left, right in zip(peace, killed, strict=False) if left != right), "")
    if not difference and len(peace) != len(killed):
        difference = f"{len(peace)} lines / {len(killed)} lines"
    record = json.loads((work / "peace" / "run.json").read_text(encoding="utf-8"))["result"]
    weights = [
        {str(file.relative_to(work / name)): checksum(file) for file in _models(work / name)}
        for name in ("peace", "killed")
    ]
    return Verdict(
        recipe=recipe,
        steps=record["steps"],
        epochs=record["epochs"],
        killed_at=killed_at,
        metrics_equal=not difference,
        weights_equal=weights[0] == weights[1],
        first_difference=difference,
    )


def _models(folder: Path) -> list[Path]:
    """The weights that a run ships: the model's and, where there is one, its generator's."""
    return [folder / "model.safetensors", *folder.glob(f"{GENERATOR}/model.safetensors")]


def _set(*overrides: str) -> list[str]:
    return [part for override in overrides for part in ("--set", override)]


def _with_teacher(command: list[str], tokenizer: str, work: Path, talk: Reporter) -> list[str]:
    """Train a small teacher, and return the command with it; its vocabulary is then the student's."""
    teacher = "roberta/tiny" if tokenizer == "byte_bpe" else "bert/tiny"
    talk.say("teacher", f"{STEPS} steps of a small {teacher} to learn from")
    corpus, folder = work / "corpus.txt", work / "teacher"
    training = [sys.executable, "-m", "maskwright", "pretrain", str(corpus), "--recipe", teacher, "--steps", str(STEPS)]
    _finish([*training, *_set(*SMALL), "--out", str(folder)], work / "cache")
    [vocabulary] = (override for override in SMALL if override.startswith("tokenizer.vocab_size="))
    place = command.index(vocabulary)
    return [*command[: place - 1], *command[place + 1 :], "--teacher", str(folder)]


def _some_text() -> str:
    parts: list[str] = []
    size = 0
    for document in docstring_documents():
        parts.append(document)
        size += len(document)
        if size >= _CHARACTERS:
            break
    return "\n\n".join(parts)


def _finish(command: list[str], cache: Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment(cache))
    if done.returncode:
        raise TrainingError(f"a run of the check failed: {done.stderr.strip()[-600:]}")


def _kill_after(command: list[str], metrics: Path, step: int, cache: Path) -> int:
    """Start the command, kill it once it has written the metrics of a step, and return the last step written.

    Lines of the sitting before do not count: the file must have been written anew, or have grown, since the start.
    """
    before = _stamp(metrics)
    # Standard error goes to a file: a pipe that nobody reads would stop the run.
    with tempfile.TemporaryFile("w+") as complaint:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=complaint, env=_environment(cache))
        begun = time.monotonic()
        while process.poll() is None and time.monotonic() - begun < _PATIENCE_SECONDS:
            if _stamp(metrics) != before and (rows := read_rows(metrics)) and rows[-1]["step"] >= step:
                break
            time.sleep(0.005)
        process.kill()
        if process.wait() >= 0:
            complaint.seek(0)
            raise TrainingError(
                f"the run to be killed ended by itself before step {step}: {complaint.read().strip()[-600:] or 'done'}"
            )
    return int(read_rows(metrics)[-1]["step"])


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _environment(cache: Path) -> dict[str, str]:
    return {**os.environ, "MASKWRIGHT_CACHE": str(cache)}
