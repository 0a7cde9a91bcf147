"""The other side: transformers' models trained the way its users train them.

`HuggingFaceStep` is the bare step (forward, backward, clip, fused AdamW, zero_grad); `trainer_seconds` lets `Trainer`
itself take the same steps. Batches are padded to their longest text, as transformers' data collators pad them.
"""

import contextlib
import random
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.own import CLIP, LEARNING_RATE
from benchmarks.workloads import Example

Batch = Mapping[str, Tensor]

_POOL_BATCHES = 50
"""Batches' worth of texts that transformers sorts by length at a time (`get_length_grouped_indices`: mega-batches)."""


@contextlib.contextmanager
def onednn_flag() -> Iterator[None]:
    """Set what a user who knows his machine sets: fp32 products through oneDNN. One line of code, no other change."""
    matmul = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]  # set up at run time
    before = matmul.fp32_precision
    matmul.fp32_precision = "bf16"
    try:
        yield
    finally:
        matmul.fp32_precision = before


def load(folder: Path, kind: str = "AutoModelForMaskedLM", *, dropout: float = 0.0, **changes: Any) -> Any:
    """Load a folder that `save_model` wrote into a class of transformers, in training mode.

    Args:
        folder: Where the model lies.
        kind: Name of the class.
        dropout: Share dropped, of hidden values and of attention probabilities.
        changes: Further entries of the configuration.
    """
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    return getattr(transformers, kind).from_pretrained(folder, **rates, **changes).train()


def padded(examples: Sequence[Example], pad: int = 0) -> dict[str, Tensor]:
    """Pad texts to the longest of them, as `DataCollatorForLanguageModeling` does with a fast tokenizer's output."""
    longest = max(len(example.ids) for example in examples)
    ids = np.full((len(examples), longest), pad, dtype=np.int64)
    labels, mask = np.full_like(ids, -100), np.zeros_like(ids)
    for row, example in enumerate(examples):
        ids[row, : len(example.ids)] = example.ids
        labels[row, : len(example.ids)] = example.labels
        mask[row, : len(example.ids)] = 1
    made = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids), "labels": labels}
    return {name: torch.from_numpy(values) for name, values in made.items()}


def fill(batches: Iterable[Batch]) -> float:
    """Return the share of real tokens in padded batches."""
    masks = [batch["attention_mask"] for batch in batches]
    return float(sum(int(mask.sum()) for mask in masks) / sum(mask.numel() for mask in masks))


def tokens(batches: Iterable[Batch]) -> int:
    """Count the real tokens of padded batches."""
    return sum(int(batch["attention_mask"].sum()) for batch in batches)


def grouped_by_length(pool: Sequence[Example], batch: int, count: int, seed: int = 0) -> list[list[Example]]:
    """Choose batches of texts of like length, as `train_sampling_strategy="group_by_length"` forms them.

    transformers shuffles, cuts into mega-batches of 50 batches, sorts each by length and takes batches in that order.
    Of one mega-batch `count` batches are taken at even distances, so that short and long texts are there by their
    shares.

    Args:
        pool: Texts to choose from; the first 50 batches' worth are used.
        batch: Texts in a batch.
        count: Batches to return.
        seed: Shuffles.
    """
    pool = list(pool[: _POOL_BATCHES * batch])
    random.Random(seed).shuffle(pool)
    pool.sort(key=lambda example: -len(example.ids))
    batches = [pool[first : first + batch] for first in range(0, len(pool) - batch + 1, batch)]
    return [batches[int((number + 0.5) * len(batches) / count)] for number in range(count)]


def pool_size(batch: int) -> int:
    """Return how many texts `grouped_by_length` wants to choose from."""
    return _POOL_BATCHES * batch


def optimizer_for(model: nn.Module, learning_rate: float = LEARNING_RATE) -> torch.optim.Optimizer:
    """Return AdamW as `Trainer` sets it up: fused, biases and LayerNorms not decayed."""
    decayed, plain = list[nn.Parameter](), list[nn.Parameter]()
    for name, parameter in model.named_parameters():
        (plain if name.endswith("bias") or "LayerNorm" in name or "layer_norm" in name else decayed).append(parameter)
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.999), eps=1e-8, fused=True)


class HuggingFaceStep:
    """The bare training step on a transformers model.

    Args:
        model: In training mode.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self._optimizer = optimizer_for(model)

    def step(self, batch: Batch, learning_rate: float = LEARNING_RATE, *, bf16: bool = False) -> float:
        """Take one step and return its loss.

        Args:
            batch: Padded texts.
            learning_rate: For this step.
            bf16: Whether to compute under bfloat16 autocast.
        """
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = self.model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return float(loss.detach())

    def take(self, batches: Sequence[Batch], *, bf16: bool = False) -> None:
        """Take a step on each batch."""
        for batch in batches:
            self.step(batch, bf16=bf16)

    def loss_and_gradients(self, batch: Batch, *, bf16: bool = False) -> tuple[float, dict[str, Tensor]]:
        """Compute what a step computes before it updates, dropout off."""
        self.model.eval()
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = self.model(**batch).loss
        loss.backward()
        gradients = {
            name: parameter.grad
            for name, parameter in self.model.named_parameters(remove_duplicate=False)
            if parameter.grad is not None
        }
        self.model.zero_grad(set_to_none=True)
        self.model.train()
        return float(loss.detach()), gradients


def trainer_seconds(model: Any, texts: Sequence[Example], batch: int, steps: int, scratch: Path) -> float:
    """Let transformers' `Trainer` take steps on texts in their order; return the seconds of all but the first.

    Masks come with the texts, so what `Trainer` adds is its loop: loader, collation, bookkeeping, schedule.

    Args:
        model: In training mode.
        texts: At least (steps + 1) x batch of them.
        batch: Texts in a step.
        steps: Timed steps.
        scratch: Where `Trainer` may write.
    """
    import time

    from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

    class Clock(TrainerCallback):  # type: ignore[misc]  # transformers is not typed
        def __init__(self) -> None:
            self.ends: list[float] = []

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.ends.append(time.perf_counter())

    arguments = TrainingArguments(
        output_dir=str(scratch / "trainer"),
        per_device_train_batch_size=batch,
        max_steps=steps + 1,
        learning_rate=LEARNING_RATE,
        weight_decay=0.01,
        max_grad_norm=CLIP,
        train_sampling_strategy="sequential",
        use_cpu=True,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    clock = Clock()
    trainer = Trainer(
        model=model, args=arguments, train_dataset=_Dataset(texts), data_collator=padded, callbacks=[clock]
    )
    trainer.remove_callback(PrinterCallback)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.train()
    return clock.ends[-1] - clock.ends[0]


class _Dataset(torch.utils.data.Dataset[Example]):
    """Texts as `Trainer` takes them."""

    def __init__(self, texts: Sequence[Example]) -> None:
        self._texts = texts

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, number: int) -> Example:
        return self._texts[number]
