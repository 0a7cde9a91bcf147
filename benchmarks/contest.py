"""What the rows that compare training steps have in common: both sides set up, shown to agree, timed in turns."""

import itertools
import shutil
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from benchmarks import peers
from benchmarks.agreement import FP32_GRADIENT, FP32_LOSS, Agreement, compare, names_of
from benchmarks.goals import BF16, FLAG, FLAG_GROUPED, GROUPED, HF, OWN, OWN_BF16, OWN_LOOP, TRAINER, goal
from benchmarks.machine import bf16_peak, fp32_peak
from benchmarks.own import OwnStep
from benchmarks.report import Check, Report, Table
from benchmarks.settings import Settings
from benchmarks.shapes import Shape
from benchmarks.timing import Side, Spread, ratios
from benchmarks.turns import MET_NOTE, Turns, filled, real_tokens
from benchmarks.workloads import Source, examples_of, mlm_recipe, text_for
from maskwright.training.probe import probe_matmul

COLUMNS = (
    "model",
    "side",
    "tokens/s",
    "fill",
    "of the peak",
    "maskwright is faster by",
    "at the peak by",
    "goal",
    "loss apart",
)

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
PEAK_NOTE = (
    "At the peak: a step that did nothing but its operations, at the speed of this machine's best large product, would "
    "be faster by so much; a goal above that is out of this machine's reach."
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
        tokens: Real tokens of each round, by side.
        fill: Share of real tokens in what is computed on, by side.
        flops: Operations that our pass needs, of each round.
        peak: Operations a second of the best product here in our side's precision (exact in fp32), measured before.
        agreement: How far the losses and gradients of both sides are apart, dropout off.
    """

    case: Case
    seconds: dict[str, list[float]]
    tokens: dict[str, list[int]]
    fill: dict[str, float]
    flops: list[float]
    peak: float
    agreement: Agreement

    @property
    def own(self) -> str:
        """Name of our side."""
        return OWN_BF16 if self.case.bf16 else OWN

    def speed(self, side: str) -> list[float]:
        """Real tokens a second of each round."""
        rounds = zip(self.seconds[side], self.tokens[side], strict=True)
        return [tokens / seconds for seconds, tokens in rounds]

    def ratio(self, peer: str) -> Spread:
        """How many times as fast we are: step against step, loop against loop."""
        return ratios(self.speed(OWN_LOOP if peer == TRAINER else self.own), self.speed(peer))

    def ratio_at_peak(self, peer: str) -> float:
        """How many times as fast we would be if our step did nothing but its operations, at the peak."""
        return self.ratio(peer).median / self.utilisation.median

    @property
    def utilisation(self) -> Spread:
        """Share of the peak that our useful operations reach."""
        rounds = zip(self.seconds[self.own], self.flops, strict=True)
        return Spread.of([flops / seconds / self.peak for seconds, flops in rounds])


def hold(case: Case, settings: Settings) -> Outcome:
    """Set both sides up with the same weights and batches, compare their losses, and time them in turns."""
    shape = case.shape
    batch = shape.blocks if case.blocks else shape.documents
    text = text_for(shape, settings, blocks=case.blocks)
    source = Source(mlm_recipe(shape, dropout=case.dropout, batch=batch), text)
    rounds = settings.rounds_or(shape.rounds)
    turns = Turns.of(rounds)
    steps = source.typical_steps(1 + shape.steps * turns.lots, settings.seed)
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

    timed, padded_timed, texts_timed = turns.dealt(steps[1:]), turns.dealt(padded[1:]), turns.dealt(texts[1:])
    sides = [Side(OWN_BF16 if case.bf16 else OWN, turns.each(timed, own.take), own.around)]
    tokens = dict.fromkeys((*case.peers, sides[0].name), turns.counted(timed, real_tokens))
    fill = dict.fromkeys(case.peers, peers.fill(padded[1:]))
    fill[sides[0].name] = filled(steps[1:])
    makers = {
        HF: Side(HF, turns.each(padded_timed, peer.take)),
        FLAG: Side(FLAG, turns.each(padded_timed, peer.take), peers.onednn_flag),
        BF16: Side(BF16, turns.each(padded_timed, lambda batches: peer.take(batches, bf16=True))),
        TRAINER: Side(
            TRAINER,
            turns.each(
                texts_timed,
                lambda lot: peers.trainer_seconds(
                    peer.model, list(itertools.chain(*texts[:1], *lot)), batch, shape.steps, settings.scratch
                ),
            ),
        ),
    }
    if {GROUPED, FLAG_GROUPED} & set(case.peers):
        (pool,) = examples_of(source.steps(1, batch=peers.pool_size(batch), seed=settings.seed + 1))
        each_lot = min(max(4, shape.steps), peers.pool_size(1) // turns.lots)
        grouped = peers.grouped_by_length(pool, batch, each_lot * turns.lots)
        # Batches come in the order of their lengths: every lot takes some of all.
        alike = [[peers.padded(each) for each in grouped[lot :: turns.lots]] for lot in range(turns.lots)]
        makers[GROUPED] = Side(GROUPED, turns.each(alike, peer.take))
        makers[FLAG_GROUPED] = Side(FLAG_GROUPED, turns.each(alike, peer.take), peers.onednn_flag)
        for name in (GROUPED, FLAG_GROUPED):
            tokens[name] = turns.counted(alike, peers.tokens)
            fill[name] = peers.fill(itertools.chain(*alike))
    sides = [*(makers[name] for name in case.peers), *sides]
    if TRAINER in case.peers:
        seeds = [settings.seed + lot for lot in range(turns.lots)]
        workloads = [source.workload(seed) for seed in seeds]
        looped = [source.steps(shape.steps + 1, seed=seed)[1:] for seed in seeds]
        run = turns.each(workloads, lambda workload: sum(each.seconds for each in own.loop(workload, shape.steps)))
        sides.append(Side(OWN_LOOP, run, own.around))
        tokens[OWN_LOOP] = turns.counted(looped, real_tokens)
        fill[OWN_LOOP] = filled(list(itertools.chain(*looped)))
    rates = probe_matmul(seconds=0.0 if settings.quick else 0.9)
    peak = bf16_peak(rates) if case.bf16 else fp32_peak(rates)
    return Outcome(
        case=case,
        seconds=turns.timed(sides),
        tokens=tokens,
        fill=fill,
        flops=turns.counted(timed, own.flops),
        peak=peak,
        agreement=agreement,
    )


def report(
    row: str,
    outcomes: Sequence[Outcome],
    notes: Sequence[str] = (),
    *,
    loss: float = FP32_LOSS,
    gradient: float = FP32_GRADIENT,
) -> Report:
    """Put the outcomes of a row into a table.

    Args:
        row: The row's name.
        outcomes: One a size.
        notes: What a reader must know.
        loss: Largest difference of the losses allowed, as a share.
        gradient: Largest difference of the gradients allowed (`Agreement.checks`).
    """
    checks: list[Check] = []
    for outcome in outcomes:
        checks += outcome.agreement.checks(outcome.case.shape.name, loss, gradient)
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
        notes=(*notes, PEAK_NOTE, MET_NOTE),
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
                f"{outcome.utilisation.median:.0%}" if is_own else "",
                "" if ours else outcome.ratio(side).told(),
                "" if ours or side == TRAINER else f"{outcome.ratio_at_peak(side):.1f}",
                "" if ours else goal(row, shape.name, side),
                f"{outcome.agreement.loss:+.1e}" if is_own else "",
            )
        )
    return lines
