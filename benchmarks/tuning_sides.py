"""Both sides of a fine-tuning: ours as `maskwright finetune` computes it, transformers' `Trainer` as users write it.

The peer's batches are those of transformers' example scripts: texts padded to the longest of their batch by
`DataCollatorWithPadding` (run_glue.py), questions with their contexts padded to the full length (run_qa.py); or, where
it is asked for, sequences of like length together and padded to the longest.
"""

import contextlib
import time
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks import peers
from benchmarks.labelled import Prepared
from benchmarks.machine import own_machine
from maskwright.finetuning.batching import Batcher
from maskwright.finetuning.features import Features
from maskwright.finetuning.fine_tuned import load
from maskwright.finetuning.hyperparameters import Hyperparameters
from maskwright.finetuning.loop import LayerwiseAdamW, train
from maskwright.finetuning.scoring import batches_to_score, score_units
from maskwright.finetuning.tasks.base import Scores
from maskwright.training.device import computing_on

BATCH = 32
EVALUATED = 32
"""Sequences that the peer scores at once."""
Sampling = Literal["random", "group_by_length", "sequential"]
_GROUPED: Sampling = "group_by_length"
_KINDS = {"sequence": "AutoModelForSequenceClassification", "span": "AutoModelForQuestionAnswering"}


def settings_of(prepared: Prepared, *, learning_rate: float, epochs: float = 1.0) -> Hyperparameters:
    """Return our settings that compute what `Trainer` does by default: its AdamW, schedule, clipping, dropout."""
    return Hyperparameters(
        epochs=epochs,
        batch_size=BATCH,
        learning_rate=learning_rate,
        warmup_share=0.1,
        schedule="linear",
        weight_decay=0.01,
        betas=(0.9, 0.999),
        eps=1e-8,
        bias_correction=True,
        hidden_dropout=prepared.dropout,
        attention_dropout=prepared.dropout,
        head_dropout=prepared.dropout,
        clip_norm=1.0,
        max_length=prepared.labelled.length,
    )


class OwnTuning:
    """Our side.

    Args:
        prepared: The set and the model to begin with.
    """

    def __init__(self, prepared: Prepared) -> None:
        self.prepared = prepared
        self.model = load(prepared.folder)

    def around(self) -> AbstractContextManager[Any]:
        """Return the context that a run computes in: its library for fp32 products."""
        return computing_on(own_machine())

    def train(self, features: Features, settings: Hyperparameters, seed: int = 0) -> float:
        """Train as long as the settings say; return the seconds of all steps."""
        model, batcher = self.model, self._batcher(features)
        optimizer = LayerwiseAdamW(model.named_parameters(), model.encoder.config, settings.optimizer, 1.0)
        reports = train(
            model,
            optimizer,
            batcher,
            settings=settings,
            seed=seed,
            first_step=0,
            last_step=settings.total_steps(features.num_units),
            autocast=None,
        )
        return sum(report.seconds for report in reports)

    def score(self, features: Features) -> list[Scores]:
        """Return the scores of each unit."""
        return score_units(self.model, features)

    def fill(self, features: Features, *, scoring: bool = False) -> float:
        """Return the share of real tokens in the rows of steps over sequences in their order, or of scoring them."""
        batcher = self._batcher(features)
        if scoring:
            batches = list(batches_to_score(self.model, features))
        else:
            units = np.array_split(np.arange(features.num_units), range(BATCH, features.num_units, BATCH))
            batches = [batch for each in units for batch in batcher.step(each, seed=0, step=0).micro_batches]
        return sum(batch.batch.num_tokens for batch in batches) / sum(len(batch.batch.ids) for batch in batches)

    def loss(self, features: Features) -> float:
        """Return the mean loss over all units, dropout off."""
        self.model.eval()
        batcher, total = self._batcher(features), 0.0
        with torch.inference_mode():
            for group in batcher.by_length(np.arange(features.num_units)):
                batch = batcher.batch(group)
                total += float(self.model.task.loss(self.model.scores(batch), batch)[0])
        return total / features.num_units

    def _batcher(self, features: Features) -> Batcher:
        return Batcher(
            features,
            pad=self.model.tokenizer.special_tokens.pad,
            tokens=own_machine().tokens_per_microbatch(self.model.encoder.config.hidden_size),
            device=torch.device("cpu"),
        )


class TrainerTuning:
    """The peer.

    Args:
        prepared: The set and the model to begin with.
        scratch: Where `Trainer` may write.
    """

    def __init__(self, prepared: Prepared, scratch: Path) -> None:
        from transformers import AutoTokenizer

        self.prepared = prepared
        self.model = peers.load(prepared.folder, _KINDS[prepared.labelled.task.head], dropout=prepared.dropout)
        self._tokenizer = AutoTokenizer.from_pretrained(prepared.folder)
        self._scratch = scratch

    def train(
        self, features: Features, settings: Hyperparameters, seed: int = 0, *, sampling: Sampling = "random"
    ) -> float:
        """Let `Trainer` train; return the seconds from the beginning of its first pass to the end of its last step.

        Args:
            features: The sequences.
            settings: Rate, passes, batch.
            seed: Of order and dropout.
            sampling: In which order; "group_by_length" also pads to the longest of a batch.
        """
        from transformers import TrainerCallback

        class Clock(TrainerCallback):  # type: ignore[misc]  # transformers is not typed
            begun, ended = 0.0, 0.0

            def on_epoch_begin(self, *_: Any, **__: Any) -> None:
                self.begun = self.begun or time.perf_counter()

            def on_step_end(self, *_: Any, **__: Any) -> None:
                self.ended = time.perf_counter()

        clock = Clock()
        trainer = self._trainer(
            self._dataset(features, padded=sampling != _GROUPED),
            clock,
            num_train_epochs=settings.epochs,
            learning_rate=settings.learning_rate,
            seed=seed,
            train_sampling_strategy=sampling,
        )
        with _quietly():
            trainer.train()
        return clock.ended - clock.begun

    def score(self, features: Features) -> list[Scores]:
        """Return the scores of each unit, as our tasks read them."""
        found = self.predict(features)
        if self.prepared.labelled.task.head != "span":
            return list(found)
        lengths = np.diff(features.cu_seqlens).tolist()
        return [
            np.stack([start[:length], end[:length]], axis=1) for start, end, length in zip(*found, lengths, strict=True)
        ]

    def predict(self, features: Features, *, grouped: bool = False) -> Any:
        """Return what `Trainer.predict` does; of grouped sequences not in their order."""
        with _quietly():
            trainer = self._trainer(None, train_sampling_strategy=_GROUPED if grouped else "random")
            return trainer.predict(self._dataset(features, padded=not grouped)).predictions

    def loss(self, features: Features) -> float:
        """Return the mean loss over all units, dropout off, each without padding.

        transformers' loss of answers lets padding compete: its own figure on a padded batch is another.
        """
        self.model.eval()
        records = self._dataset(features, padded=False)
        with torch.inference_mode():
            losses = [
                float(self.model(**{name: torch.tensor([value]) for name, value in record.items()}).loss)
                for record in (records[number] for number in range(len(records)))
            ]
        self.model.train()
        return float(np.mean(losses))

    def fill(self, features: Features) -> float:
        """Return the share of real tokens in what is computed on, texts in their order."""
        lengths = np.diff(features.cu_seqlens)
        if self._full_length:
            return float(lengths.mean() / self.prepared.labelled.length)
        batches = [lengths[first : first + BATCH] for first in range(0, len(lengths), BATCH)]
        return float(lengths.sum() / sum(len(batch) * batch.max() for batch in batches))

    @property
    def _full_length(self) -> bool:
        return self.prepared.labelled.task.head == "span"

    def _dataset(self, features: Features, *, padded: bool = True) -> "_Records":
        return _Records(_records(features, self.prepared.labelled.length if padded and self._full_length else 0))

    def _trainer(self, data: "_Records | None", *callbacks: Any, **arguments: Any) -> Any:
        from transformers import DataCollatorWithPadding, PrinterCallback, Trainer, TrainingArguments
        from transformers.data.data_collator import default_data_collator

        asked = {
            "output_dir": str(self._scratch / "trainer"),
            "per_device_train_batch_size": BATCH,
            "per_device_eval_batch_size": EVALUATED,
            "weight_decay": 0.01,
            "warmup_steps": 0.1,
            "max_grad_norm": 1.0,
            "use_cpu": True,
            "dataloader_pin_memory": False,
            "remove_unused_columns": False,
            "save_strategy": "no",
            "logging_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
        }
        dynamic = not self._full_length or arguments["train_sampling_strategy"] == _GROUPED
        trainer = Trainer(
            model=self.model,
            args=TrainingArguments(**asked, **arguments),
            train_dataset=data,
            data_collator=DataCollatorWithPadding(self._tokenizer) if dynamic else default_data_collator,
            callbacks=list(callbacks),
        )
        trainer.remove_callback(PrinterCallback)
        return trainer


class _Records(torch.utils.data.Dataset[dict[str, Any]]):
    """Sequences as `Trainer` takes them."""

    def __init__(self, records: list[dict[str, Any]]) -> None:
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return self._records[number]


def _records(features: Features, padded_to: int) -> list[dict[str, Any]]:
    """List sequences as a tokenizer's `map` leaves them, padded to a length if it is not 0."""
    records = []
    for number in range(features.num_units):
        begin, end = features.cu_seqlens[number : number + 2].tolist()
        filler = [0] * max(0, padded_to - (end - begin))
        record: dict[str, Any] = {
            "input_ids": features.ids[begin:end].tolist() + filler,
            "token_type_ids": features.segment_ids[begin:end].tolist() + filler,
            "attention_mask": [1] * (end - begin) + filler,
        }
        if features.labels is not None:
            record |= _labels(features.labels[number])
        records.append(record)
    return records


def _labels(label: NDArray[Any]) -> dict[str, int]:
    if label.ndim:
        return {"start_positions": int(label[0]), "end_positions": int(label[1])}
    return {"labels": int(label)}


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
