"""What the row `gpu` says: its tables, checks and notes."""

from collections.abc import Mapping, Sequence

from benchmarks.bf16 import LOSS
from benchmarks.contest import DROPOUT_NOTE, PEAK_NOTE
from benchmarks.goals import OWN_BF16, TRAINER
from benchmarks.gpu_peer import SIDES
from benchmarks.gpu_sides import Outcome
from benchmarks.report import Check, Report, Table
from benchmarks.timing import Spread, number

COLUMNS = (
    "model",
    "texts",
    "side",
    "tokens/s",
    "fill",
    "of the peak",
    "maskwright is faster by",
    "at the peak by",
    "goal",
    "GB",
    "loss apart",
)
ANCHOR_COLUMNS = (
    "model",
    "texts",
    "tokens/s",
    "fill",
    "of the peak",
    "A100, scaled",
    "faster by",
    "A100, scaled by data sheets",
    "faster by that",
    "goal",
    "GB",
)

A100 = 312e12
"""Operations a second in bf16 of an A100 by its data sheet, without sparsity."""
_SHEETS = {"H100 80GB HBM3": 989e12, "H200": 989e12, "A100": A100}
"""The same of other GPUs, by a part of their name."""

PEERS_NOTE = (
    "transformers, tuned: torch.compile of the whole model, bf16 autocast, fused AdamW, pinned batches of one shape, "
    "no mask in whole blocks, no loss read. Trainer: itself, with bf16, torch_compile, adamw_torch_fused and pinned "
    "memory, its batches ready in memory, nothing logged or saved; the first third of its steps is not timed. Each of "
    "them is in a process of its own, compiled before; sides take turns, and while one computes no other does. A step "
    "of ours reads its loss and the norm of its gradients, clips and updates; batches come from the host."
)
MEMORY_NOTE = (
    "GB: the most that PyTorch's allocator had given a side, weights and what AdamW keeps included, and all that "
    "captured graphs hold."
)
_ANCHOR_NOTE = (
    "Published: 955 sequences of 128 and 171 of 512 a second in mixed precision on one A100 (NVIDIA "
    "DeepLearningExamples, ELECTRA base, README): {told}. Scaled by the peak measured here over the A100's by its data "
    "sheet, {peak:.3g} / 312; a measured peak is below a sheet's, so the sheets of both GPUs ask for more{sheets}."
)


def report(
    outcomes: Sequence[Outcome], failures: Mapping[str, str], skipped: Sequence[str], device: str, peak: float
) -> Report:
    """Put together whatever was measured.

    Args:
        outcomes: One a part.
        failures: What went wrong, by part or side.
        skipped: Parts for which no time was left.
        device: Its name.
        peak: Operations a second of its fastest bf16 product.
    """
    compared = [each for each in outcomes if each.part.anchor is None]
    anchored = [each for each in outcomes if each.part.anchor is not None]
    tables, notes = list[Table](), list[str]()
    if peak:
        notes.append(f"On {device}; the peak is its own product of large bf16 matrices, {peak / 1e12:.3g} TFLOP/s.")
    wanted = {each.part.goals["peak"]: each.part.texts for each in reversed(compared) if each.part.goals.get("peak")}
    if wanted:
        notes[-1] += " The goal in whole blocks of base is a share of " + ", ".join(wanted) + " of it."
    if compared:
        rows = tuple(line for outcome in compared for line in _lines(outcome))
        tables.append(Table(title="", columns=COLUMNS, rows=rows, words=(0, 1, 2)))
        notes += [DROPOUT_NOTE, PEAK_NOTE]
        if any(side in outcome.seconds for outcome in compared for side in SIDES):
            notes.append(PEERS_NOTE)
    if anchored:
        rows = tuple(_anchor_line(outcome, sheet_of(device)) for outcome in anchored)
        title = "ELECTRA's joint step, generator and discriminator"
        tables.append(Table(title=title, columns=ANCHOR_COLUMNS, rows=rows, words=(0, 1)))
        told = ", ".join(f"{each.part.anchor:,.0f} tokens/s in {each.part.texts}" for each in anchored)
        sheet = sheet_of(device)
        asked = f": {sheet / 1e12:.3g} / 312" if sheet else " (this one's is not known here)"
        notes.append(_ANCHOR_NOTE.format(told=told, peak=peak / 1e12, sheets=asked))
    if outcomes:
        notes.append(MEMORY_NOTE)
    notes += [f"{each.part.name}: {each.compiled}." for each in outcomes]
    notes += [f"No time was left for {', '.join(skipped)}."] * bool(skipped)
    return Report(
        tables=tuple(tables),
        measurements=tuple(_measurement(each, side, device) for each in outcomes for side in each.seconds),
        checks=(
            *(check for outcome in compared for check in _checks(outcome)),
            *(Check(what, why, "measured", False) for what, why in failures.items()),
        ),
        notes=tuple(notes),
    )


def sheet_of(device: str) -> float:
    """Return a GPU's operations a second in bf16 by its data sheet, 0 where that is not known."""
    return next((flops for name, flops in _SHEETS.items() if name in device), 0.0)


def scaled(anchor: float, peak: float) -> float:
    """Scale an A100's tokens a second to a GPU of another peak."""
    return anchor * peak / A100


def _measurement(outcome: Outcome, side: str, device: str) -> dict[str, object]:
    part, is_own = outcome.part, side == OWN_BF16
    return {
        "part": part.name,
        "model": part.model,
        "texts": part.texts,
        "device": device,
        "side": side,
        "seconds": outcome.seconds[side],
        "tokens": [outcome.tokens] * len(outcome.seconds[side]),
        "fill": outcome.fill[side],
        "dropout": part.recipe.encoder.hidden_dropout,
        "peak": outcome.peak,
        "memory": outcome.memory[side],
        "flops": [outcome.flops] * len(outcome.seconds[side]) if is_own else None,
        "ratio": None if is_own else outcome.ratio(side).median,
        "anchor": part.anchor and scaled(part.anchor, outcome.peak),
    }


def _checks(outcome: Outcome) -> list[Check]:
    checks = [Check(f"{outcome.part.name}: {side}", why, "measured", False) for side, why in outcome.problems.items()]
    if outcome.losses is not None:
        own, peer = outcome.losses
        found, allowed = f"{own - peer:+.1e} of {peer:.4f}", f"{LOSS:.0e} of it"
        checks.append(Check(f"{outcome.part.name}: loss", found, allowed, abs(own - peer) / abs(peer) <= LOSS))
    return checks


def _lines(outcome: Outcome) -> list[tuple[str, ...]]:
    part, lines = outcome.part, list[tuple[str, ...]]()
    for place, side in enumerate(outcome.seconds):
        is_own = side == OWN_BF16
        lines.append(
            (
                part.told if place == 0 else "",
                part.texts if place == 0 else "",
                side,
                Spread.of(outcome.speed(side)).told(),
                f"{outcome.fill[side]:.2f}",
                f"{outcome.utilisation.median:.0%}" if is_own else "",
                "" if is_own else outcome.ratio(side).told(),
                "" if is_own or side == TRAINER else f"{outcome.ratio(side).median / outcome.utilisation.median:.1f}",
                part.goals.get(side, ""),
                _gigabytes(outcome.memory[side]),
                f"{outcome.losses[0] - outcome.losses[1]:+.1e}" if is_own and outcome.losses else "",
            )
        )
    return lines


def _anchor_line(outcome: Outcome, sheet: float) -> tuple[str, ...]:
    part, speed = outcome.part, Spread.of(outcome.speed(OWN_BF16))
    asked = [scaled(part.anchor or 0.0, flops) for flops in (outcome.peak, sheet)]
    by_peak, by_sheet = ((number(each), f"{speed.median / each:.2f}") if each else ("", "") for each in asked)
    return (
        part.told,
        part.texts,
        speed.told(),
        f"{outcome.fill[OWN_BF16]:.2f}",
        f"{outcome.utilisation.median:.0%}",
        *by_peak,
        *by_sheet,
        part.goals.get("anchor", ""),
        _gigabytes(outcome.memory[OWN_BF16]),
    )


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f}" if count else ""
