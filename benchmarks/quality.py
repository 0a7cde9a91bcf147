"""The time to a held-out loss: maskwright for some minutes, then transformers on the same text until it is as good.

transformers has the same shape and tokenizer (its own BERT, or its own ModernBERT for `maskwright/mini`), the same
documents before cleaning, and what its users write: blocks of 128 tokens, `DataCollatorForLanguageModeling` with the
masking rate of the published system (15 %, ModernBERT 30 %), fused AdamW, warmup and linear decay, gradients clipped at
1. Its learning rate is the best of three, each tried for as long as maskwright trains. Only training is timed. Its long
run has one schedule, whose rate has not decayed at the shorter times: the ratio is an upper bound of what a schedule
for each time would need. Both models are measured by `masked_words` of `maskwright compare`: the same masks in the same
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

RECIPES = ("bert/mini", "maskwright/mini")
MASKING_RATES = {"bert": 0.15, "modernbert": 0.3}
"""By the model type in config.json: Devlin et al. 2019, section 3.1; Warner et al. 2024, section 2.2.1."""
RATES = (2.5e-4, 5e-4, 1e-3)
LIMIT = 8
"""transformers trains at most this many times as long, and is measured as often."""
_LENGTH, _BATCH, _WARM_UP, _CLIP = 128, 8, 0.05, 1.0  # 8 is the batch of the Trainer.


def quality(settings: Settings) -> Iterator[Table]:
    """Measure the time that transformers needs to the held-out loss of `pretrain` (needs --corpus and hours)."""
    from maskwright.data.cleaning.text import Cleaning
    from maskwright.study.text import prepare_text

    if settings.corpus is None:
        raise RuntimeError("give real text with --corpus PATH")
    prepare_text(settings.scratch / "text", [str(settings.corpus)], Cleaning())
    for recipe in filter(settings.wants, RECIPES):
        folder = settings.scratch / recipe.replace("/", "-")
        folder.mkdir()
        (folder / "text").symlink_to(settings.scratch / "text")
        yield _time_to_quality(recipe, folder, settings.minutes)


def _time_to_quality(recipe: str, folder: Path, minutes: float) -> Table:
    from maskwright import pretrain
    from maskwright.data.cleaning.text import Cleaning
    from maskwright.study.text import prepare_text

    seconds = 60 * minutes
    text = prepare_text(folder / "text", [], Cleaning())
    run = pretrain(list(text.train), recipe=recipe, minutes=minutes, out=folder / "run", device="cpu")
    goal = _measure(run.folder, folder)
    trials = [(rate, _train_transformers(folder, rate, seconds, 1)[-1]) for rate in RATES]
    best = min(trials, key=lambda each: each[1]["token_loss"])[0]
    curve = _train_transformers(folder, best, LIMIT * seconds, LIMIT)
    rows = [_row("maskwright", minutes, goal)]
    rows += [_row(f"transformers, rate {rate:g}", minutes, metrics) for rate, metrics in trials]
    rows += [
        _row(f"transformers, rate {best:g}, longer", minutes * (index + 1), metrics)
        for index, metrics in enumerate(curve)
    ]
    reached = next(
        (index + 1 for index, metrics in enumerate(curve) if metrics["token_loss"] <= goal["token_loss"]), None
    )
    verdict = f"{reached} times as long" if reached else f"more than {LIMIT} times as long"
    return Table(
        f"time to quality, {recipe}: transformers needs {verdict}",
        ("trained by", "minutes", "held-out loss, nats", "accuracy, %"),
        rows,
    )


def _row(name: str, minutes: float, metrics: dict[str, float]) -> tuple[str, ...]:
    return name, number(minutes), number(metrics["token_loss"], 4), number(100 * metrics["token_accuracy"])


def _measure(model: Path, folder: Path) -> dict[str, float]:
    import maskwright
    from maskwright.data.cleaning.text import Cleaning
    from maskwright.study.probes import masked_words
    from maskwright.study.text import prepare_text

    scores = masked_words(maskwright.load(model), prepare_text(folder / "text", [], Cleaning()))
    return {name: score.value for name, score in scores.items()}


def _train_transformers(folder: Path, rate: float, seconds: float, parts: int) -> list[dict[str, float]]:
    # A process of its own: PyTorch's settings are those of a user who has never heard of maskwright.
    arguments = json.dumps([str(folder), rate, seconds, parts])
    subprocess.run([sys.executable, "-m", "benchmarks.quality", arguments], cwd=ROOT, check=True)
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
    config = AutoConfig.from_pretrained(folder / "run")
    model = AutoModelForMaskedLM.from_config(config).train()
    collate = DataCollatorForLanguageModeling(tokenizer, mlm_probability=MASKING_RATES[config.model_type])
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
