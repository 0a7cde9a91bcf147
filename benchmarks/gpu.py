"""The step on a GPU, bf16 autocast, dropout 0.1: against transformers tuned, and against an ELECTRA run of an A100.

What is measured, in this order: base in whole blocks of 128 and of 512 against `Trainer` and its bare step, both tuned
(`gpu_peer`), and against our own step by PyTorch's operations; ELECTRA base's joint step; base on texts of natural
length; tiny, small and ALBERT. Needs a CUDA GPU. Progress is told on the standard error line by line. Compiling
transformers' models takes minutes where nothing of it is kept (TORCHINDUCTOR_CACHE_DIR says where). To do less:

    GPU_ROW_PARTS=128,natural     only these parts (`gpu_parts.PARTS`)
    GPU_ROW_PEERS=tuned           only these sides beside ours (`gpu_parts.PEERS`, or "none"), where ELECTRA is not
    GPU_ROW_SECONDS=300           begin no part after so many seconds
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from benchmarks import gpu_report
from benchmarks.gpu_parts import DROPOUT, Choice, Makers
from benchmarks.gpu_peer import SIDES
from benchmarks.gpu_remote import Here, Line, Remote
from benchmarks.gpu_sides import Outcome, OwnSide, Part, give_memory_back, measure, tell
from benchmarks.report import Report
from benchmarks.settings import Settings
from maskwright.training.device import computing_on, multiplies_bf16, prepare_machine
from maskwright.training.probe import probe_matmul

_ROUNDS = 3
_SHARE = 0.8
"""Of a GPU's memory, for all sides of transformers together while they are compiled."""
_MEASURING = 0.4
"""Of the time there is, what is kept for measuring when transformers' sides are waited for."""


def run(settings: Settings) -> Report:
    """Compare and measure on the first CUDA GPU; without one, say so."""
    if not torch.cuda.is_available():
        return Report(tables=(), notes=("This row needs a CUDA GPU, and there is none here.",))
    device = torch.device("cuda")
    if not multiplies_bf16(device):
        return Report(tables=(), notes=("This row needs a GPU that multiplies bfloat16 matrices by itself.",))
    with computing_on(prepare_machine("cuda")):
        return measured(device, settings, choice=Choice.of(os.environ))


def measured(
    device: torch.device,
    settings: Settings,
    *,
    choice: Choice | None = None,
    backend: str = "inductor",
    apart: bool = True,
) -> Report:
    """Measure on a device, whatever can be.

    Args:
        device: Where.
        settings: Tiny ones show that it works.
        choice: What; None for all.
        backend: For `torch.compile` of transformers' models.
        apart: Whether each side of transformers gets a process of its own.
    """
    row = _Row(device, settings, choice or Choice(), backend)
    with row.lines(apart):
        row.measure()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "a processor, not a GPU"
    return gpu_report.report(row.outcomes, row.failures, row.skipped, name, row.peak)


class _Row:
    """All parts of the row: prepared, then measured one after the other.

    Attributes:
        outcomes: Of the parts that were measured.
        failures: What went wrong, by part or side.
        skipped: Parts for which no time was left.
        peak: Operations a second of the fastest bf16 product; 0 before it is measured.
    """

    def __init__(self, device: torch.device, settings: Settings, choice: Choice, backend: str) -> None:
        self._device, self._settings, self._choice, self._backend = device, settings, choice, backend
        self._begun = time.monotonic()
        self._makers = Makers(settings, choice)
        self._lines: dict[str, dict[str, Line]] = {}
        self._losses: dict[str, dict[str, float]] = {}
        self._parts: dict[str, Part] = {}
        self.outcomes, self.failures, self.skipped = list[Outcome](), dict[str, str](), list[str]()
        self.peak = 0.0

    @property
    def _left(self) -> float:
        return self._choice.seconds - (time.monotonic() - self._begun)

    @contextmanager
    def lines(self, apart: bool) -> Iterator[None]:
        """Have the sides of transformers there while the block runs."""
        wanted = {name: [each for each in SIDES if each in self._makers.peers(name)] for name in self._makers.names}
        count = sum(map(len, wanted.values()))
        threads = max(1, (os.cpu_count() or 1) // max(1, count))
        for name, sides in wanted.items():
            logs = {side: self._settings.scratch / f"{name}-{side.split()[0]}-{len(side)}.log" for side in sides}
            self._lines[name] = {side: Remote(log, threads) if apart else Here() for side, log in logs.items()}
        try:
            yield
        finally:
            for name in list(self._lines):
                self._close(name)

    def measure(self) -> None:
        """Prepare all parts, wait for transformers' sides, and measure."""
        names = sorted(self._makers.names, key=lambda name: not self._lines[name])  # What others wait for first.
        for name in names:
            with self._kept(name):
                self._parts[name] = part = self._makers.make(name)
                self._send(part)
        own: OwnSide | None = None
        first = next((name for name in self._makers.names if name in self._parts), None)
        with self._kept(first or ""):
            if first is not None:
                own = self._own(self._parts[first])
        for name in self._parts:
            self._receive(name)
        self.peak = probe_matmul(self._device, 0.0 if self._settings.quick else 0.9, ("bf16",))["bf16"].flops
        tell(f"peak: {self.peak / 1e12:.3g} TFLOP/s")
        for name in (each for each in self._makers.names if each in self._parts and each not in self.failures):
            if self._left <= 0:
                self.skipped.append(name)
                continue
            with self._kept(name):
                part = self._parts.pop(name)
                own = own if name == first and own is not None else self._own(part)
                self.outcomes.append(
                    measure(
                        part,
                        own,
                        self._lines[name],
                        self._losses.get(name, {}),
                        self._device,
                        self.peak,
                        self._settings.rounds_or(_ROUNDS),
                    )
                )
            own = None
            self._close(name)
            give_memory_back(self._device)

    def _own(self, part: Part) -> OwnSide:
        own = OwnSide(part, self._device, compiles=True)
        tell(f"{part.name}: our step: {own.compiled}")
        return own

    def _send(self, part: Part) -> None:
        lines = self._lines[part.name]
        if not lines:
            return
        folder, file = self._makers.folder(part), self._settings.scratch / f"{part.name}.batches"
        torch.save(self._makers.batches(part), file)
        slots = sum(self._makers.slots(name) * len(lines) for name, lines in self._lines.items())
        for side, line in lines.items():
            line.send(
                {
                    "do": "set up",
                    "side": side,
                    "folder": str(folder),
                    "batches": str(file),
                    "scratch": str(self._settings.scratch / f"{part.name}.trainer"),
                    "device": str(self._device),
                    "backend": self._backend,
                    "dropout": DROPOUT,
                    "share": _SHARE * part.slots / slots,
                }
            )

    def _receive(self, name: str) -> None:
        for side, line in list(self._lines[name].items()):
            answer = line.receive(max(1.0, self._left - _MEASURING * self._choice.seconds))
            if "error" in answer:
                self.failures[f"{name}: {side}"] = answer["error"]
                self._lines[name].pop(side).close()
                tell(f"{name}: {side}: {answer['error']}")
                continue
            self._losses.setdefault(name, {})[side] = answer["loss"]
            tell(f"{name}: {side}: {answer['told']}, {answer['seconds']:.0f} s")

    def _close(self, name: str) -> None:
        for line in self._lines.pop(name, {}).values():
            line.close()

    @contextmanager
    def _kept(self, name: str) -> Iterator[None]:
        """Keep what goes wrong in a part beside what the others give."""
        try:
            yield
        # Whatever it is: device time is short, and the parts have nothing to do with one another.
        except Exception as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            self.failures[name] = " ".join((f"{type(error).__name__}:", *lines[:2]))
            tell(f"{name}: {self.failures[name]}")
