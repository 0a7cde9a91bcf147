"""The optimizer of a recipe over named parameters: one update rule, and moments that are saved by name."""

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn

from maskwright.core.errors import CheckpointError
from maskwright.recipes.optimization import AdamW, Lamb, OptimizerSpec
from maskwright.training.adamw import AdamWRule, Clipping, scale_gradients
from maskwright.training.lamb import LambRule

MOMENTS = ("exp_avg", "exp_avg_sq")


class Optimizer:
    """Updates parameters by the rule of a recipe's optimizer; its state is two moments a parameter.

    Args:
        named_parameters: (name, parameter) pairs; a parameter met twice (tied, shared by layers) counts once.
        constants: The recipe's optimizer.
        rate_share: Factor on the learning rate of the parameter with this name, for AdamW; None for 1.
    """

    def __init__(
        self,
        named_parameters: Iterable[tuple[str, nn.Parameter]],
        constants: OptimizerSpec,
        rate_share: Callable[[str], float] | None = None,
    ) -> None:
        self.constants = constants
        self.names: dict[nn.Parameter, str] = {}
        for name, parameter in named_parameters:
            self.names.setdefault(parameter, name)
        self.steps = 0
        shares = {} if rate_share is None else {each: rate_share(name) for each, name in self.names.items()}
        self._rule = _rule(list(self.names), constants, shares)

    @property
    def refuses_itself(self) -> bool:
        """Whether `step` takes what clips gradients and refuses unsound ones as numbers on their device."""
        return isinstance(self._rule, AdamWRule)

    def step(self, learning_rate: float, clipping: Clipping | None = None, gradient_scale: float = 1.0) -> None:
        """Update all parameters that have a gradient once; gradients are then dropped.

        Args:
            learning_rate: For this step.
            clipping: What is done to gradients first, where the rule takes it (`refuses_itself`).
            gradient_scale: What they are multiplied by first (`clipping_scale`).
        """
        self.steps += 1
        if isinstance(self._rule, AdamWRule):
            self._rule.step(learning_rate, self.steps, clipping, gradient_scale)
        else:
            scale_gradients(self.names, gradient_scale)
            self._rule.step(learning_rate, self.steps)
        for parameter in self.names:
            parameter.grad = None

    def state(self) -> dict[str, Tensor]:
        """Return both moments of every parameter, named "exp_avg.NAME" and "exp_avg_sq.NAME".

        A parameter that no loss reaches (a pooler without a pair objective) has no moments yet: they are zero.
        """
        return {
            f"{moment}.{name}": self._rule.moments(parameter).get(moment, torch.zeros_like(parameter))
            for parameter, name in self.names.items()
            for moment in MOMENTS
        }

    def load_state(self, state: Mapping[str, Tensor], steps: int) -> None:
        """Take the moments of `state` and go on after `steps` steps.

        Raises:
            CheckpointError: If a moment is missing or has another shape.
        """
        self.steps = steps
        for parameter, name in self.names.items():
            moments = {}
            for moment in MOMENTS:
                saved = state.get(f"{moment}.{name}")
                if saved is None or saved.shape != parameter.shape:
                    found = "nothing" if saved is None else f"shape {tuple(saved.shape)}"
                    raise CheckpointError(
                        f"optimizer state {moment} of {name}: found {found}, expected shape {tuple(parameter.shape)}",
                        todo="The checkpoint belongs to another model; choose another --out folder.",
                    )
                moments[moment] = saved.to(parameter.device, parameter.dtype, copy=True)
            self._rule.set_moments(parameter, moments, steps)


def clipping_scale(norm: float, most: float) -> float:
    """Return what gradients are multiplied by, so that their norm is no larger than allowed.

    Args:
        norm: Theirs.
        most: The norm allowed; 0 leaves gradients as they are.
    """
    return most / (norm + 1e-6) if most and norm > most else 1.0


def _rule(
    parameters: list[nn.Parameter], constants: AdamW | Lamb, shares: Mapping[nn.Parameter, float]
) -> AdamWRule | LambRule:
    # Biases and LayerNorm weights are the vectors of these models; every matrix decays, embeddings too.
    matrices = [parameter for parameter in parameters if parameter.ndim > 1]
    vectors = [parameter for parameter in parameters if parameter.ndim <= 1]
    if isinstance(constants, Lamb):
        assert not shares, "LAMB has one rate for all parameters"
        return LambRule(matrices, vectors, constants)
    if constants.decayed == "all":
        return AdamWRule(parameters, [], constants, shares)
    return AdamWRule(matrices, vectors, constants, shares)
