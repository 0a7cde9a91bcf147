"""The time to a held-out loss: maskwright for some minutes, then transformers on the same text until it is as good.

transformers has the same shape and tokenizer, the same documents before cleaning, and what its users write: blocks of
128 tokens, `DataCollatorForLanguageModeling`, fused AdamW, warm-up and linear decay, gradients clipped at 1. Its
learning rate is the best of three, each tried for as long as maskwright trains. Only training is timed. Its long run
has one schedule, whose rate has not decayed at the shorter times: the ratio is an upper bound of what a schedule for
each time would need. Both models are measured by `masked_words` of `maskwright compare`: the same masks in the same
passages, which neither has seen.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.runner import ROOT, Settings
from benchmarks.table import Table, number

RATES = (2.5e-4, 5e-4, 1e-3)
LIMIT = 8
"""transformers trains at most this many times as long, and is measured as often."""
_LENGTH, _BATCH, _WARM_UP, _CLIP = 128, 8, 0.05, 1.0  # 8 is the batch of the Trainer.


def quality(settings: Settings) -> Iterator[Table]:
    """Measure the time that transformers needs to the held-out loss of `pretrain` (needs --corpus and an hour)."""
    from maskwright import pretrain
    from maskwright.data.cleaning.text import Cleaning
    from maskwright.study.text import prepare_text

    if settings.corpus is None:
        raise RuntimeError("give real text with --corpus PATH")
    seconds = 60 * settings.minutes
    folder = settings.scratch
    text = prepare_text(folder / "text", [str(settings.corpus)], Cleaning())
    run = pretrain(list(text.train), recipe="bert/mini", minutes=settings.minutes, out=folder / "run", device="cpu")
    own = _measure(run.folder, folder)
    tries = [(rate, _train_transformers(folder, rate, seconds, 1)[-1]) for rate in RATES]
    best = min(tries, key=lambda each: each[1]["token_loss"])[0]
    curve = _train_transformers(folder, best, LIMIT * seconds, LIMIT)
    rows = [_row("maskwright", settings.minutes, own)]
    rows += [_row(f"transformers, rate {rate:g}", settings.minutes, found) for rate, found in tries]
    rows += [
        _row(f"transformers, rate {best:g}, longer", settings.minutes * (place + 1), each)
        for place, each in enumerate(curve)
    ]
    reached = next((place + 1 for place, each in enumerate(curve) if each["token_loss"] <= own["token_loss"]), None)
    verdict = (
        f"transformers needs {reached} times as long"
        if reached
        else f"transformers needs more than {LIMIT} times as long"
    )
    yield Table(
        f"time to quality, bert/mini: {verdict}", ("trained by", "minutes", "held-out loss, nats", "accuracy, %"), rows
    )


def _row(name: str, minutes: float, found: dict[str, float]) -> tuple[str, ...]:
    return name, number(minutes), number(found["token_loss"], 4), number(100 * found["token_accuracy"])


def _measure(model: Path, folder: Path) -> dict[str, float]:
    import maskwright
    from maskwright.data.cleaning.text import Cleaning
    from maskwright.study.probes import masked_words
    from maskwright.study.text import prepare_text

    found = masked_words(maskwright.load(model), prepare_text(folder / "text", [], Cleaning()))
    return {name: each.value for name, each in found.items()}


def _train_transformers(folder: Path, rate: float, seconds: float, parts: int) -> list[dict[str, float]]:
    # A process of its own: PyTorch's settings are those of a user who has never heard of maskwright.
    given = json.dumps([str(folder), rate, seconds, parts])
    subprocess.run([sys.executable, "-m", "benchmarks.quality", given], cwd=ROOT, check=True)
    return [_measure(folder / f"transformers-{rate:g}-{part}", folder) for part in range(1, parts + 1)]


def _train(folder: Path, rate: float, seconds: float, parts: int) -> None:
    """Train for so many seconds, and save the model after each of the parts."""
    import torch
    from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer, DataCollatorForLanguageModeling, logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(folder / "run")
    blocks = _blocks(folder, tokenizer)
    torch.manual_seed(0)
    model = AutoModelForMaskedLM.from_config(AutoConfig.from_pretrained(folder / "run")).train()
    collate = DataCollatorForLanguageModeling(tokenizer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01, fused=True)
    batches, trained, part = _batches(blocks), 0.0, 0
    while part < parts:
        began = time.perf_counter()
        done = trained / seconds
        for group in optimizer.param_groups:
            group["lr"] = rate * min(done / _WARM_UP, (1 - done) / (1 - _WARM_UP))
        loss = model(**collate([{"input_ids": block} for block in next(batches)])).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), _CLIP)
        optimizer.step()
        optimizer.zero_grad()
        trained += time.perf_counter() - began
        if trained >= seconds * (part + 1) / parts:
            part += 1
            target = folder / f"transformers-{rate:g}-{part}"
            model.save_pretrained(target)
            tokenizer.save_pretrained(target)


def _blocks(folder: Path, tokenizer: Any) -> np.ndarray[Any, Any]:
    # As transformers' example script: documents one after another, cut into blocks.
    documents = [
        json.loads(line)["text"]
        for path in sorted((folder / "text" / "train").iterdir())
        for line in path.open(encoding="utf-8")
    ]
    pieces = [piece for document in documents for piece in document.split("\n") if piece.strip()]
    ids = np.concatenate(
        [np.array(each, dtype=np.int64) for each in tokenizer(pieces, add_special_tokens=False)["input_ids"]]
    )
    blocks = ids[: len(ids) // (_LENGTH - 2) * (_LENGTH - 2)].reshape(-1, _LENGTH - 2)
    ends = np.zeros((len(blocks), 1), dtype=np.int64)
    return np.concatenate([ends + tokenizer.cls_token_id, blocks, ends + tokenizer.sep_token_id], axis=1)


def _batches(blocks: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    generator = np.random.default_rng(0)
    while True:
        order = generator.permutation(len(blocks))
        for first in range(0, len(order) - _BATCH + 1, _BATCH):
            yield blocks[order[first : first + _BATCH]]


if __name__ == "__main__":
    _folder, *_rest = json.loads(sys.argv[1])
    _train(Path(_folder), *_rest)
