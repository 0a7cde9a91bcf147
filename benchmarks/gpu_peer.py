"""transformers' sides of the row `gpu`, each in a process of its own: `python -m benchmarks.gpu_peer`.

Whole models take a compiler minutes; in processes of their own they are compiled at the same time, and none inherits
another's shapes or memory. A process gets messages as lines of JSON and answers each with one (`Worker.answer`).
"""

import dataclasses
import gc
import json
import os
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from benchmarks import peers
from benchmarks.goals import TRAINER, TUNED
from benchmarks.own import CLIP, LEARNING_RATE

Message = dict[str, Any]
SIDES = (TUNED, TRAINER)


class Peer(Protocol):
    """A side that takes the steps of a pass, in their order."""

    model: Any

    def try_step(self) -> None:
        """Take a step, so that everything is compiled."""

    def turn(self) -> float:
        """Take a few steps, then those of a pass; return the seconds of the pass."""


class TunedPeer:
    """transformers' training step as one tunes it for a GPU.

    Args:
        model: In training mode.
        device: Where.
        backend: For `torch.compile`.
        batches: Of a pass.
    """

    def __init__(self, model: Any, device: torch.device, backend: str, batches: Sequence[peers.Batch] = ()) -> None:
        self.model, self._device, self._batches = model.to(device), device, batches
        self._compiled: Any = torch.compile(self.model, backend=backend)
        self._optimizer = peers.optimizer_for(self.model)

    def take(self, batches: Sequence[peers.Batch]) -> None:
        """Take a step on each batch; nothing is read from the device."""
        for batch in batches:
            with _autocast(self._device):
                loss: Tensor = self._compiled(**_moved(batch, self._device)).loss
            torch.autograd.backward(loss)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
            self._optimizer.step()
            self._optimizer.zero_grad()

    def try_step(self) -> None:
        self.take(self._batches[:1])

    def turn(self) -> float:
        self.take(self._batches[:2])
        wait(self._device)
        begun = time.perf_counter()
        self.take(self._batches)
        wait(self._device)
        return time.perf_counter() - begun


class TrainerPeer:
    """`Trainer` itself, tuned: bf16, the whole model compiled, fused AdamW, pinned memory, batches ready in memory.

    A turn is one call of `train`; its first third is not timed. Nothing is logged or saved, and no loss is read.

    Args:
        model: In training mode.
        device: Where.
        backend: For `torch.compile`.
        batches: Of a pass.
        scratch: Where `Trainer` may write.
    """

    def __init__(
        self, model: Any, device: torch.device, backend: str, batches: Sequence[peers.Batch], scratch: Path
    ) -> None:
        from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

        self.model = model
        untimed = max(1, len(batches) // 2)
        ends = self._ends = list[float]()

        class Clock(TrainerCallback):  # type: ignore[misc]  # transformers is not typed
            def on_step_end(self, arguments: Any, state: Any, control: Any, **_: Any) -> None:
                if state.global_step in (untimed, untimed + len(batches)):
                    wait(device)
                    ends.append(time.perf_counter())

        on_cpu = device.type == "cpu"
        wanted = {
            "output_dir": str(scratch),
            "per_device_train_batch_size": 1,  # The dataset's items are whole batches: see below.
            "max_steps": untimed + len(batches),
            "learning_rate": LEARNING_RATE,
            "weight_decay": 0.01,
            "max_grad_norm": CLIP,
            "bf16": True,
            "torch_compile": True,
            "torch_compile_backend": backend,
            "optim": "adamw_torch_fused",
            "dataloader_pin_memory": not on_cpu,
            "use_cpu": on_cpu,
            "remove_unused_columns": False,
            "save_strategy": "no",
            "logging_strategy": "no",
            "logging_nan_inf_filter": False,
            "report_to": "none",
            "disable_tqdm": True,
            "train_sampling_strategy": "sequential",
        }
        # Not every release of transformers knows all of them.
        known = {field.name for field in dataclasses.fields(TrainingArguments)}
        self._trainer = Trainer(
            model=model,
            args=TrainingArguments(**{name: value for name, value in wanted.items() if name in known}),
            train_dataset=_InTurn(batches, untimed),
            data_collator=_only,
            callbacks=[Clock()],
        )
        self._trainer.remove_callback(PrinterCallback)

    def try_step(self) -> None:
        self.turn()

    def turn(self) -> float:
        self._ends.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._trainer.train()
        begun, ended = self._ends
        return ended - begun


class _InTurn(torch.utils.data.Dataset[peers.Batch]):
    """Batches as `Trainer` takes them: those that are not timed, then those of a pass in their order.

    An item is a whole batch, so `Trainer` has nothing to collate: its loop costs it the least that it can.
    """

    def __init__(self, batches: Sequence[peers.Batch], untimed: int) -> None:
        self._batches, self._untimed = batches, untimed

    def __len__(self) -> int:
        return self._untimed + len(self._batches)

    def __getitem__(self, number: int) -> peers.Batch:
        return self._batches[(number - self._untimed) % len(self._batches)]


def _only(items: Sequence[peers.Batch]) -> dict[str, Tensor]:
    (batch,) = items
    return dict(batch)


class Worker:
    """Answers the messages of the row, in a process of its own or in this one."""

    def __init__(self) -> None:
        self._peer: Peer | None = None
        self._device = torch.device("cpu")

    def answer(self, message: Message) -> Message:
        """Do what a message asks for; an error is an answer too."""
        try:
            return self._set_up(message) if message["do"] == "set up" else self._turn()
        # Whatever transformers or a compiler stumbles over: the other sides are still worth measuring.
        except Exception as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            return {"error": " ".join((f"{type(error).__name__}:", *lines[:2]))}

    def _set_up(self, task: Message) -> Message:
        """Load a model, compute the loss of the first, small batch, and have the step compiled for all others.

        Until all processes have done so they do it at the same time, each with a share of the GPU's memory. A step that
        finds too little of it is compiled nevertheless.
        """
        begun = time.perf_counter()
        self._device = device = torch.device(task["device"])
        kept = torch.load(task["batches"], weights_only=True)
        if device.type == "cuda":
            torch.cuda.set_per_process_memory_fraction(task["share"])
            kept = [{name: values.pin_memory() for name, values in batch.items()} for batch in kept]
        small, *batches = kept
        model = peers.load(Path(task["folder"]), dropout=task["dropout"]).to(device)
        loss = self._loss(model, small)
        if task["side"] == TRAINER:
            self._peer = TrainerPeer(model, device, task["backend"], batches, Path(task["scratch"]))
        else:
            self._peer = TunedPeer(model, device, task["backend"], batches)
        told = "compiled"
        try:
            self._peer.try_step()
        except RuntimeError as error:
            if "out of memory" not in str(error).lower():
                raise
            told = "compiled, short of memory as yet"
        self._give_memory_back()
        if device.type == "cuda":
            torch.cuda.set_per_process_memory_fraction(1.0)
        return {"told": told, "loss": loss, "seconds": time.perf_counter() - begun}

    def _loss(self, model: Any, batch: peers.Batch) -> float:
        """Return a batch's loss, dropout off."""
        model.eval()
        with torch.no_grad(), _autocast(self._device):
            loss = float(model(**_moved(batch, self._device)).loss)
        model.train()
        return loss

    def _turn(self) -> Message:
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        seconds = self._ready().turn()
        peak = torch.cuda.max_memory_allocated() if self._device.type == "cuda" else 0
        self._give_memory_back()
        return {"seconds": seconds, "peak": peak}

    def _ready(self) -> Peer:
        if self._peer is None:
            raise RuntimeError("not set up")
        return self._peer

    def _give_memory_back(self) -> None:
        """Leave the GPU's memory to the side whose turn comes; weights and what the optimizer keeps stay."""
        if self._peer is not None:
            self._peer.model.zero_grad(set_to_none=True)
        gc.collect()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()


def wait(device: torch.device) -> None:
    """Wait until a device has done all that it was asked to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _autocast(device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, torch.bfloat16)


def _moved(batch: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    return {name: values.to(device, non_blocking=True) for name, values in batch.items()}


def main() -> None:
    """Answer line by line until there are no more."""
    # Libraries print to the standard output too; the answers have it for themselves.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    worker = Worker()
    for line in sys.stdin:
        answers.write(json.dumps(worker.answer(json.loads(line))) + "\n")


if __name__ == "__main__":
    main()
