"""ALBERT's groups: layers that share weights, as Hugging Face's classes number them (Lan et al. 2020, section 3.1)."""

from dataclasses import dataclass

from maskwright.model.config import EncoderConfig


@dataclass(frozen=True, slots=True)
class Groups:
    """Layers in groups: each of `layers` steps applies all the blocks of its group, one after the other.

    Attributes:
        layers: Steps; the layers applied are `layers` x `inner`.
        groups: Groups of distinct weights, 1 to `layers`.
        inner: Distinct blocks in a group.
    """

    layers: int
    groups: int
    inner: int

    @property
    def members(self) -> tuple[tuple[int, int], ...]:
        """For each layer applied, its group and its place in the group."""
        # Divided in floating point as in Hugging Face's AlbertTransformer, which for a few pairs (the first is 18
        # layers in 14 groups) puts a layer on a border into the group before i * groups // layers.
        steps = [int(step / (self.layers / self.groups)) for step in range(self.layers)]
        return tuple((group, place) for group in steps for place in range(self.inner))

    @property
    def plan(self) -> tuple[int, ...]:
        """For each layer applied, the number of its distinct block."""
        return tuple(group * self.inner + place for group, place in self.members)

    @property
    def places(self) -> tuple[str, ...]:
        """For each layer applied, what stands between "albert_layer_groups." and the weight's own name."""
        return tuple(f"{group}.albert_layers.{place}" for group, place in self.members)


def groups_of(config: EncoderConfig) -> Groups | None:
    """Say an encoder's sharing in groups, the fewest blocks in each; None if it is no pattern of groups."""
    plan, layers = config.layer_plan("attention"), config.num_layers
    if plan != config.layer_plan("ffn"):
        return None
    blocks = max(plan) + 1
    for inner in range(1, layers + 1):
        if layers % inner or blocks % inner or blocks // inner > layers // inner:
            continue
        found = Groups(layers // inner, blocks // inner, inner)
        if found.plan == plan:
            return found
    return None


def places(config: EncoderConfig) -> tuple[str, ...]:
    """Say where each layer is written: in its group, or in a group of its own where the sharing is none of groups."""
    return (groups_of(config) or Groups(config.num_layers, config.num_layers, 1)).places
