"""Rates that fall from the head down to the embeddings (Clark et al. 2020, appendix B), and AdamW with them.

ELECTRA's code gives each weight a depth (electra: model/optimization.py:181-193): embeddings 0, layer k k + 1, task
layers L + 2; its rate is decay^(L + 2 - depth). The pooler that ELECTRA does not have would be L + 1: so the top layer
learns at decay^2, not at decay.
"""

from collections.abc import Iterable, Mapping

from torch import Tensor, nn

from maskwright.model.config import EncoderConfig
from maskwright.recipes.optimization import AdamW
from maskwright.training.optimizer import Optimizer

_ENCODER = "encoder."
_BLOCKS = {"attention_blocks", "ffn_blocks"}


def rate_share(name: str, config: EncoderConfig, decay: float) -> float:
    """Return a parameter's rate as a share of the head's.

    Args:
        name: Its name in the model, "encoder.*" or anything else for the head.
        config: The encoder's shape.
        decay: Share of the rate of the layer above.

    Example:
        >>> rate_share("encoder.ffn_blocks.11.dense_in.weight", EncoderConfig(num_layers=12), 0.8)
        0.64
    """
    return float(decay ** (config.num_layers + 2 - _depth(name, config)))


def _depth(name: str, config: EncoderConfig) -> int:
    if not name.startswith(_ENCODER):
        return config.num_layers + 2
    part, _, rest = name.removeprefix(_ENCODER).partition(".")
    if part == "pooler":
        return config.num_layers + 1
    if part not in _BLOCKS:
        return 0
    plan = config.layer_plan("attention" if part == "attention_blocks" else "ffn")
    block = int(rest.partition(".")[0])
    # A block that several layers share learns as the highest of them.
    return max(layer for layer, used in enumerate(plan) if used == block) + 1


class LayerwiseAdamW:
    """AdamW with a rate for each depth: one optimizer for all parameters that share a rate.

    Args:
        named_parameters: (name, parameter) pairs, as `rate_share` takes names.
        config: The encoder's shape.
        constants: Adam's.
        decay: Share of the rate of the layer above; 1 gives all the same rate.
    """

    def __init__(
        self,
        named_parameters: Iterable[tuple[str, nn.Parameter]],
        config: EncoderConfig,
        constants: AdamW,
        decay: float,
    ) -> None:
        groups: dict[float, list[tuple[str, nn.Parameter]]] = {}
        for name, parameter in named_parameters:
            groups.setdefault(rate_share(name, config, decay), []).append((name, parameter))
        self._optimizers = {share: Optimizer(members, constants) for share, members in groups.items()}

    def step(self, learning_rate: float, gradient_scale: float = 1.0) -> None:
        """Update all parameters that have a gradient once; gradients are then dropped.

        Args:
            learning_rate: The head's.
            gradient_scale: What gradients are multiplied by first (`clipping_scale`).
        """
        for share, optimizer in self._optimizers.items():
            optimizer.step(share * learning_rate, gradient_scale=gradient_scale)

    def state(self) -> dict[str, Tensor]:
        """Return both moments of every parameter, by name (`Optimizer.state`)."""
        return {name: moment for optimizer in self._optimizers.values() for name, moment in optimizer.state().items()}

    def load_state(self, state: Mapping[str, Tensor], steps: int) -> None:
        """Take the moments of `state` and go on after `steps` steps.

        Raises:
            CheckpointError: If a moment is missing or has another shape.
        """
        for optimizer in self._optimizers.values():
            optimizer.load_state(state, steps)
