"""Whether both sides compute the same: losses and gradients of one batch, dropout off, weight by weight."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from torch import Tensor

from benchmarks.report import Check
from maskwright.huggingface.families import family_named
from maskwright.model.config import EncoderConfig
from maskwright.recipes.recipe import Recipe

FP32_LOSS = 2e-6
FP32_GRADIENT = 1e-4
_FLOOR = 1e-3
"""Share of the largest gradient of all below which a weight's own largest does not count: a key's bias has none."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far two sides are apart on one batch.

    Attributes:
        own: Our loss.
        peer: Theirs.
        gradient: Largest difference of any entry of any gradient, as a share of that weight's largest.
        compared: How many weights were compared.
        named: How many there were to compare.
        worst: The weight with that difference.
    """

    own: float
    peer: float
    gradient: float
    compared: int
    named: int
    worst: str

    @property
    def loss(self) -> float:
        """Difference of the losses, ours less theirs."""
        return self.own - self.peer

    def checks(self, of: str, loss: float = FP32_LOSS, gradient: float = FP32_GRADIENT) -> list[Check]:
        """Turn the differences into checks.

        Args:
            of: What was compared.
            loss: Largest difference allowed, as a share of the loss.
            gradient: Largest difference allowed.
        """
        relative = abs(self.loss) / abs(self.peer)
        return [
            Check(f"{of}: loss", f"{self.loss:+.1e} of {self.peer:.4f}", f"{loss:.0e} of it", relative <= loss),
            Check(
                f"{of}: gradients of {self.named} weights",
                f"{self.compared} compared, " * (self.compared < self.named) + f"{self.gradient:.1e} ({self.worst})",
                f"{gradient:.0e}",
                0 < self.compared == self.named and self.gradient <= gradient,
            ),
        ]


def names_of(recipe: Recipe, config: EncoderConfig | None = None, heads: Iterable[str] = ("mlm",)) -> dict[str, str]:
    """Return transformers' name of each of our weights, by ours.

    Args:
        recipe: Says the family.
        config: The encoder; None for the recipe's.
        heads: Kinds of the heads on it.
    """
    family = family_named(recipe.family)
    # A block that layers share stands once a layer; the first place is where transformers' gradients add up too.
    pairs = family.pairs(config or recipe.encoder, frozenset(heads), family.prefix)
    names: dict[str, str] = {}
    for ours, theirs in pairs:
        names.setdefault(ours, theirs)
    return names


def compare(
    losses: tuple[float, float],
    own: Mapping[str, Tensor],
    peer: Mapping[str, Tensor],
    names: Mapping[str, str],
) -> Agreement:
    """Compare losses and gradients.

    Args:
        losses: Ours and theirs.
        own: Our gradients by our names.
        peer: Their gradients by their names.
        names: Their name of each of ours; weights that only one side has a gradient for are not compared, and the
            check then fails.
    """
    floor = _FLOOR * max(float(gradient.abs().max()) for gradient in peer.values())
    worst, largest, compared = "", 0.0, 0
    for ours, theirs in names.items():
        if ours not in own or theirs not in peer:
            continue
        scale = max(float(peer[theirs].abs().max()), floor)
        apart = float((own[ours] - peer[theirs]).abs().max()) / scale
        compared += 1
        if apart >= largest:
            worst, largest = ours, apart
    return Agreement(losses[0], losses[1], largest, compared, len(names), worst)
