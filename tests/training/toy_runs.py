"""A small corpus and the settings of a run that takes a second."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from maskwright.reporting.reporter import Reporter
from maskwright.training.pretrain import RunResult, pretrain
from maskwright.training.runs import checkpoint

SUBJECTS = ("the cat", "a dog", "my sister", "the old captain", "our teacher", "the river")
VERBS = ("watches", "follows", "remembers", "paints", "likes", "crosses")
OBJECTS = ("the garden", "a red house", "the long road", "some bread", "the quiet sea", "an open door")

TOY = (
    "encoder.hidden_size=32",
    "encoder.num_heads=2",
    "encoder.num_layers=2",
    "encoder.intermediate_size=64",
    "tokenizer.vocab_size=300",
    "training.batch_sequences=8",
    "training.learning_rate=0.01",
    'training.phases=[{"share": 0.5, "max_length": 16}, {"share": 0.5, "max_length": 32}]',
)


CLEAN = ("deduplicate=none",)
Train = Callable[..., RunResult]
"""`train_toy` with some arguments given."""


def train_toy(folder: Path, out: str | Path = "run", *, corpus: Path | None = None, **changes: Any) -> RunResult:
    """Train bert/tiny for 12 steps on the corpus of a folder (written if it has none)."""
    if corpus is None and not (corpus := folder / "corpus.txt").exists():
        write_corpus(corpus)
    settings = {"recipe": "bert/tiny", "steps": 12, "set": TOY, "clean": CLEAN, "workers": 1, "reporter": Reporter()}
    return pretrain(corpus, out=folder / out, **{**settings, **changes})


@contextmanager
def killed_after(step: int) -> Iterator[None]:
    """End the run in the block as if it were killed, right after the checkpoint of a step."""
    save = checkpoint.save

    def save_then_die(folder: Path, at: int, *rest: Any) -> Path:
        written = save(folder, at, *rest)
        if at == step:
            raise KeyboardInterrupt
        return written

    with patch.object(checkpoint, "save", save_then_die), pytest.raises(KeyboardInterrupt):
        yield


def kill_process(until: Callable[[], object], **arguments: Any) -> None:
    """Call `pretrain` in a process of its own, and kill it once a condition holds."""
    call = f"from maskwright.training.pretrain import pretrain\npretrain(**{arguments!r})"
    process = subprocess.Popen([sys.executable, "-c", call], stderr=subprocess.DEVNULL)
    while process.poll() is None and not until():
        time.sleep(0.05)
    process.kill()
    assert process.wait() < 0, "the run ended by itself"


def assert_same_files(one: RunResult, other: RunResult, *names: str) -> None:
    """Compare the metrics, the model and more files of two runs, byte for byte."""
    for name in ("metrics.jsonl", "model.safetensors", *names):
        assert (one.folder / name).read_bytes() == (other.folder / name).read_bytes(), name


def write_corpus(path: Path, documents: int = 60, seed: int = 0) -> Path:
    """Write documents of simple sentences with a grammar that a tiny model can learn."""
    draw = np.random.default_rng(seed)
    texts = []
    for _ in range(documents):
        sentences = [
            f"{SUBJECTS[a].capitalize()} {VERBS[(a + b) % 6]} {OBJECTS[b]}."
            for a, b in draw.integers(0, 6, (int(draw.integers(3, 12)), 2))
        ]
        texts.append(" ".join(sentences))
    path.write_text("\n\n".join(texts), encoding="utf-8")
    return path
