"""Models to serve, and `maskwright serve` in a process of its own."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from maskwright.finetuning.tasks.multiple_choice import MultipleChoice
from maskwright.finetuning.tasks.question_answering import QuestionAnswering
from maskwright.finetuning.tasks.tagging import Tagging
from maskwright.finetuning.tasks.texts import Classification, Regression
from tests.finetuning.tiny_tuned import LABELS

TASKS = {
    "classes": Classification(labels=LABELS),
    "tags": Tagging(labels=("O", "B-PER", "I-PER"), entities=True, metrics=("f1",)),
    "answers": QuestionAnswering(max_answer_length=6),
    "choices": MultipleChoice(),
    "scores": Regression(),
}


@contextmanager
def running(models: Sequence[Path], log: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start a server on a free port; yields its process and the port."""
    command = [sys.executable, "-m", "maskwright", "serve", *map(str, models), "--port", "0", "--device", "cpu"]
    with open(log, "wb") as output:
        started = subprocess.Popen(command, stderr=output, stdout=output, env={**os.environ, "COLUMNS": "200"})
    try:
        while "http://127.0.0.1:" not in (text := log.read_text()):
            assert started.poll() is None, text
            time.sleep(0.1)
        yield started, int(text.rpartition("http://127.0.0.1:")[2].split()[0])
    finally:
        started.kill()
        started.wait()
