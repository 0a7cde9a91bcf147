"""What the rows that compare training steps have in common: both sides set up, shown to agree, timed in turns."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from benchmarks import peers
from benchmarks.agreement import Agreement, compare, names_of
from benchmarks.goals import BF16, FLAG, FLAG_GROUPED, GROUPED, HF, OWN, OWN_BF16, OWN_LOOP, TRAINER, goal
from benchmarks.machine import fp32_peak
from benchmarks.own import OwnStep
from benchmarks.report import Check, Report, Table
from benchmarks.settings import Settings
from benchmarks.shapes import Shape
from benchmarks.timing import Side, Spread, interleave, ratios, speeds
from benchmarks.workloads import Source, examples_of, mlm_recipe, text_for
from maskwright.training.probe import probe_matmul

COLUMNS = ("model", "side", "tokens/s", "fill", "of the peak", "maskwright is faster by", "goal", "loss apart")

PADDING_NOTE = (
    "Texts of natural length are padded by transformers to the longest of their batch; the ratios contain that "
    "padding. The row `blocks` has none."
)
GROUPED_NOTE = (
    "grouped: batches of texts of like length, which avoid much of the padding; the order of the data is then no "
    "longer random."
)
TRAINER_NOTE = (
    "Trainer: transformers' own loop on the same texts, with masks ready made; its ratio is against our own loop, "
    "which draws its masks meanwhile. First steps are not counted."
)
DROPOUT_NOTE = "Dropout 0.1 on both sides, in attention too; losses are compared with dropout off."


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One comparison.

    Attributes:
        shape: The model and its workload.
        peers: Which sides to set against ours (`goals`).
        dropout: Share dropped on both sides.
        blocks: Full sequences instead of texts of natural length.
        bf16: Whether our side computes in bfloat16 too.
    """

    shape: Shape
    peers: tuple[str, ...]
    dropout: float = 0.0
    blocks: bool = False
    bf16: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a case gave.

    Attributes:
        case: What was compared.
        seconds: Of each round, by side.
        tokens: Real tokens of a timed pass, by side.
        fill: Share of real tokens in what is computed on, by side.
        flops: Operations that our pass needs.
        peak: Operations a second of the best exact fp32 product here, measured just before.
        agreement: How far the losses and gradients of both sides are apart, dropout off.
    """

    case: Case
    seconds: dict[str, list[float]]
    tokens: dict[str, int]
    fill: dict[str, float]
    flops: float
    peak: float
    agreement: Agreement

    @property
    def own(self) -> str:
        """Name of our side."""
        return OWN_BF16 if self.case.bf16 else OWN

    def speed(self, side: str) -> list[float]:
        """Real tokens a second of each round."""
        return speeds(self.seconds[side], self.tokens[side])

    def ratio(self, peer: str) -> Spread:
        """How many times as fast we are: step against step, loop against loop."""
        return ratios(self.speed(OWN_LOOP if peer == TRAINER else self.own), self.speed(peer))

    @property
    def utilisation(self) -> Spread:
        """Share of the peak that our useful operations reach."""
        return Spread.of([self.flops / each / self.peak for each in self.seconds[self.own]])


def hold(case: Case, settings: Settings) -> Outcome:
    """Set both sides up with the same weights and batches, compare their losses, and time them in turns."""
    shape = case.shape
    batch = shape.blocks if case.blocks else shape.documents
    text = text_for(shape, settings, blocks=case.blocks)
    source = Source(mlm_recipe(shape, dropout=case.dropout, batch=batch), text)
    steps = source.typical_steps(shape.steps + 1, settings.seed)
    texts = examples_of(steps)
    padded = [peers.padded(each) for each in texts]

    own = OwnStep(source.recipe, text, seed=settings.seed, autocast=torch.bfloat16 if case.bf16 else None)
    folder = settings.scratch / "model"
    own.save(folder)
    # The peers share one set of weights: what a step costs does not depend on them.
    peer = peers.HuggingFaceStep(peers.load(folder, dropout=case.dropout))
    shutil.rmtree(folder)
    losses, gradients, _ = own.losses_and_gradients(steps[0])
    loss, peer_gradients = peer.loss_and_gradients(padded[0], bf16=case.bf16)
    agreement = compare((losses["mlm"], loss), gradients, peer_gradients, names_of(source.recipe))
    del gradients, peer_gradients

    timed, padded_timed = steps[1:], padded[1:]
    sides = [Side(OWN_BF16 if case.bf16 else OWN, lambda: own.take(timed), own.around)]
    tokens = dict.fromkeys((*case.peers, sides[0].name), sum(step.num_tokens for step in timed))
    fill = dict.fromkeys(case.peers, peers.fill(padded_timed))
    fill[sides[0].name] = tokens[sides[0].name] / sum(step.num_slots for step in timed)
    makers = {
        HF: Side(HF, lambda: peer.take(padded_timed)),
        FLAG: Side(FLAG, lambda: peer.take(padded_timed), peers.onednn_flag),
        BF16: Side(BF16, lambda: peer.take(padded_timed, bf16=True)),
        TRAINER: Side(
            TRAINER,
            lambda: peers.trainer_seconds(
                peer.model, [each for step in texts for each in step], batch, shape.steps, settings.scratch
            ),
        ),
    }
    if {GROUPED, FLAG_GROUPED} & set(case.peers):
        (pool,) = examples_of(source.steps(1, batch=peers.pool_size(batch), seed=settings.seed + 1))
        alike = [peers.padded(each) for each in peers.grouped_by_length(pool, batch, max(4, shape.steps))]
        makers[GROUPED] = Side(GROUPED, lambda: peer.take(alike))
        makers[FLAG_GROUPED] = Side(FLAG_GROUPED, lambda: peer.take(alike), peers.onednn_flag)
        for name in (GROUPED, FLAG_GROUPED):
            tokens[name], fill[name] = peers.tokens(alike), peers.fill(alike)
    sides = [*(makers[name] for name in case.peers), *sides]
    if TRAINER in case.peers:
        workload = source.workload(settings.seed)
        sides.append(Side(OWN_LOOP, lambda: sum(each.seconds for each in own.loop(workload, shape.steps)), own.around))
        looped = source.steps(shape.steps + 1, seed=settings.seed)[1:]
        tokens[OWN_LOOP] = sum(step.num_tokens for step in looped)
        fill[OWN_LOOP] = tokens[OWN_LOOP] / sum(step.num_slots for step in looped)
    peak = fp32_peak(probe_matmul(seconds=0.0 if settings.quick else 0.9))
    return Outcome(
        case=case,
        seconds=interleave(sides, settings.rounds_or(shape.rounds)),
        tokens=tokens,
        fill=fill,
        flops=own.flops(timed),
        peak=peak,
        agreement=agreement,
    )


def report(row: str, outcomes: Sequence[Outcome], notes: Sequence[str] = (), *, loss: float = 2e-6) -> Report:
    """Put the outcomes of a row into a table.

    Args:
        row: The row's name.
        outcomes: One a size.
        notes: What a reader must know.
        loss: Largest difference of the losses allowed, as a share.
    """
    checks: list[Check] = []
    for outcome in outcomes:
        found = outcome.agreement.checks(outcome.case.shape.name, loss)
        # Gradients of bf16 products differ by their rounding; how far training drifts is the row `trajectory`.
        checks += found[:1] if outcome.case.bf16 else found
    return Report(
        tables=(
            Table(
                title="",
                columns=COLUMNS,
                rows=tuple(line for outcome in outcomes for line in _lines(row, outcome)),
                words=(0, 1),
            ),
        ),
        measurements=tuple(
            {
                "model": outcome.case.shape.name,
                "side": side,
                "seconds": seconds,
                "tokens": outcome.tokens[side],
                "fill": outcome.fill[side],
                "dropout": outcome.case.dropout,
                "peak": outcome.peak,
                "flops": outcome.flops if side == outcome.own else None,
                "ratio": None if side in (OWN, OWN_BF16, OWN_LOOP) else outcome.ratio(side).median,
            }
            for outcome in outcomes
            for side, seconds in outcome.seconds.items()
        ),
        checks=tuple(checks),
        notes=tuple(notes),
    )


def _lines(row: str, outcome: Outcome) -> list[tuple[str, ...]]:
    shape, lines = outcome.case.shape, list[tuple[str, ...]]()
    for place, side in enumerate(outcome.seconds):
        is_own, ours = side == outcome.own, side in (OWN, OWN_BF16, OWN_LOOP)
        lines.append(
            (
                shape.told() if place == 0 else "",
                side,
                Spread.of(outcome.speed(side)).told(),
                f"{outcome.fill[side]:.2f}",
                f"{outcome.utilisation.median:.0%}" if is_own and not outcome.case.bf16 else "",
                "" if ours else outcome.ratio(side).told(),
                "" if ours else goal(row, shape.name, side),
                f"{outcome.agreement.loss:+.1e}" if is_own else "",
            )
        )
    return lines
