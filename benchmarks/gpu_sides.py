"""Our sides of the row `gpu`, and one of its parts measured: all sides set up, then timed in turns."""

import gc
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from benchmarks import gpu_remote
from benchmarks.goals import OWN_BF16, OWN_PLAIN
from benchmarks.gpu_peer import Message, wait
from benchmarks.own import OwnStep
from benchmarks.timing import Side, Spread, interleave, number, ratios
from benchmarks.turns import filled, real_tokens
from maskwright.kernels.setting import use_native_kernels
from maskwright.recipes.recipe import Recipe
from maskwright.training.batches import StepBatch
from maskwright.training.compiling import compile_model
from maskwright.training.model import build_model
from maskwright.training.optimizer import Optimizer
from maskwright.training.workload import Text

_BEGUN = time.monotonic()


def tell(text: str) -> None:
    """Say where the row is, line by line: a run that is cut off has then shown how far it got."""
    print(f"[{time.monotonic() - _BEGUN:5.0f} s] {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One comparison.

    Attributes:
        name: As the choice of parts calls it.
        model: As tables call it.
        texts: As tables call the length of its texts.
        recipe: What is trained.
        text: What it reads.
        small: A small step, of which the loss is compared and with which our code is proven.
        steps: Of a pass.
        weights: What all sides begin with.
        told: The model with its size; `model` where nothing is told.
        peers: The other sides.
        slots: Places in a step of transformers, padding counted; 0 without such sides.
        anchor: Published tokens a second of an A100; None where there are none.
        goals: By side, and "peak": what is wanted.
    """

    name: str
    model: str
    texts: str
    recipe: Recipe
    text: Text
    small: StepBatch
    steps: Sequence[StepBatch]
    weights: Mapping[str, Tensor]
    told: str
    peers: tuple[str, ...] = ()
    slots: int = 0
    anchor: float | None = None
    goals: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a part gave.

    Attributes:
        part: What was compared.
        seconds: Of each round, by side.
        tokens: Real tokens of a round.
        fill: Share of real tokens in what is computed on, by side.
        flops: Operations that our pass needs.
        peak: Operations a second of the fastest bf16 product.
        memory: Most bytes that a side had taken on the GPU, by side.
        losses: Ours and theirs of one batch, dropout off; None without a side of theirs.
        compiled: What came of our own code for it.
        problems: What went wrong, by side.
    """

    part: Part
    seconds: Mapping[str, list[float]]
    tokens: int
    fill: Mapping[str, float]
    flops: float
    peak: float
    memory: Mapping[str, int]
    losses: tuple[float, float] | None
    compiled: str
    problems: Mapping[str, str] = field(default_factory=dict)

    def speed(self, side: str) -> list[float]:
        """Real tokens a second of each round."""
        return [self.tokens / seconds for seconds in self.seconds[side]]

    def ratio(self, side: str) -> Spread:
        """How many times as fast our compiled step is as another side."""
        return ratios(self.speed(OWN_BF16), self.speed(side))

    @property
    def utilisation(self) -> Spread:
        """Share of the peak that our useful operations reach."""
        return Spread.of([self.flops / seconds / self.peak for seconds in self.seconds[OWN_BF16]])


class LoadedStep(OwnStep):
    """Our step with weights that were drawn before: drawing those of base takes seconds.

    Args:
        recipe: What is trained.
        text: Gives the special tokens.
        weights: By name, as `state_dict` has them.
    """

    def __init__(self, recipe: Recipe, text: Text, weights: Mapping[str, Tensor]) -> None:
        self.recipe, self.text, self.autocast = recipe, text, torch.bfloat16
        self.model = build_model(recipe, text.vocab_size)
        self.model.load_state_dict(weights)
        self.model.train()
        self._optimizer = Optimizer(self.model.named_parameters(), recipe.training.optimizer)
        self._taken = 0


class OwnSide:
    """Our step on a device, as it is or by our own kernels and captured graphs.

    Args:
        part: What it computes.
        device: Where.
        compiles: Whether to have our own code, if it is there and proven.
    """

    def __init__(self, part: Part, device: torch.device, *, compiles: bool) -> None:
        self._part, self._device, self._compiles = part, device, compiles
        self._before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
        self.own = LoadedStep(part.recipe, part.text, part.weights)
        self.own.model.to(device)
        self.loss = self._loss()
        self.compiled = "not compiled"
        if compiles and device.type == "cuda":
            self.compiled = "compiled " + compile_model(self.own.model, part.small, torch.bfloat16)

    def warm(self) -> int:
        """Meet every batch once if that matters to our code, and measure on one of them the most memory taken.

        Returns:
            Bytes, with weights and what the optimizer keeps, without what lay there before this side.
        """
        with use_native_kernels(self._compiles):
            return self._warm()

    def _warm(self) -> int:
        self.own.take(self._part.steps if self._compiles else self._part.steps[:2])
        if self._device.type != "cuda":
            return 0
        wait(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        self.own.take(self._part.steps[:1])
        wait(self._device)
        memory = torch.cuda.max_memory_allocated(self._device) - self._before + self._compiles * _held_by_graphs()
        self._forget_graphs()
        give_memory_back(self._device)
        return memory

    def _forget_graphs(self) -> None:
        # Else they keep their memory from the sides whose turn comes.
        for encoder in (self.own.model.encoder, self.own.model.generator):
            if encoder is not None and encoder.passes is not None:
                encoder.passes.forget()

    def turn(self) -> float:
        """Take the steps of a pass twice; return the seconds of the second time. Graphs are made in the first."""
        with use_native_kernels(self._compiles):
            self.own.take(self._part.steps)
            wait(self._device)
            begun = time.perf_counter()
            self.own.take(self._part.steps)
            wait(self._device)
            took = time.perf_counter() - begun
        self._forget_graphs()
        give_memory_back(self._device)
        return took

    def _loss(self) -> float:
        """Return the loss of the small batch, masked words alone, dropout off, by PyTorch's operations."""
        model, batch, total = self.own.model, self._part.small, 0.0
        model.eval()
        with torch.no_grad(), torch.autocast(self._device.type, torch.bfloat16):
            for micro in batch.micro_batches:
                total += float(model.losses(micro.to(self._device))["mlm"].total)
        model.train()
        return total / batch.counts["mlm"]


def give_memory_back(device: torch.device) -> None:
    """Leave what memory of a GPU is not in use to the side whose turn comes, which may be another process."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _held_by_graphs() -> int:
    # What lies within a captured graph is not counted as allocated, though nobody else can have it.
    return sum(
        segment["total_size"] - segment["allocated_size"]
        for segment in torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
        if tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0)
    )


def measure(
    part: Part,
    own: OwnSide,
    lines: Mapping[str, gpu_remote.Line],
    losses: Mapping[str, float],
    device: torch.device,
    peak: float,
    rounds: int,
) -> Outcome:
    """Time all sides of a part in turns.

    Args:
        part: What to compare.
        own: Our side, set up.
        lines: To the sides of transformers that are set up.
        losses: Of the small batch, by those sides.
        device: Where.
        peak: Operations a second of the fastest bf16 product.
        rounds: Timed rounds.
    """
    memory = {OWN_BF16: own.warm()}
    tell(f"{part.name}: our step has met all its batches")
    turns, problems = dict[str, Callable[[], float]](), dict[str, str]()
    for name, line in lines.items():
        try:
            memory[name] = ask(line, {"do": "turn"})["peak"]  # Now with all the memory; not timed.
        except RuntimeError as error:
            problems[name] = str(error)
            continue
        turns[name] = _asking(line)
        tell(f"{part.name}: {name} has met all its batches")
    if OWN_PLAIN in part.peers:
        plain = OwnSide(part, device, compiles=False)
        memory[OWN_PLAIN] = plain.warm()
        turns[OWN_PLAIN] = plain.turn
    turns[OWN_BF16] = own.turn
    tokens = real_tokens(part.steps)
    sides = [Side(name, _told(part.name, name, run, tokens)) for name, run in turns.items()]
    seconds = interleave(sides, rounds, warm_up=0)
    theirs = next(iter(losses.values()), None)
    fill = filled(part.steps)
    return Outcome(
        part=part,
        seconds=seconds,
        tokens=tokens,
        fill={name: tokens / (part.slots * len(part.steps)) if name in lines else fill for name in seconds},
        flops=own.own.flops(part.steps),
        peak=peak,
        memory=memory,
        losses=None if theirs is None else (own.loss, theirs),
        compiled=own.compiled,
        problems=problems,
    )


def ask(line: gpu_remote.Line, message: Message) -> Message:
    """Ask a side of transformers for something.

    Raises:
        RuntimeError: If it cannot.
    """
    line.send(message)
    answer = line.receive()
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return answer


def _asking(line: gpu_remote.Line) -> Callable[[], float]:
    return lambda: float(ask(line, {"do": "turn"})["seconds"])


def _told(part: str, name: str, run: Callable[[], float], tokens: int) -> Callable[[], float]:
    def turn() -> float:
        seconds = run()
        tell(f"{part}: {name}: {number(tokens / seconds)} tokens/s, {1000 * seconds:.1f} ms a pass")
        return seconds

    return turn
