"""The optimizer of a recipe over named parameters: an update rule for each, and the state, which is moments by name."""

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn

from maskwright.core.errors import CheckpointError
from maskwright.recipes.optimization import AdamW, Lamb, Muon, OptimizerSpec, StableAdamW
from maskwright.training.steps.adamw import AdamWRule, Clipping, UpdateRule
from maskwright.training.steps.update_rules import LambRule, MuonRule, StableAdamWRule


class Optimizer:
    """The optimizer of a recipe. Biases and LayerNorm weights, the vectors of these models, have no weight decay.

    A parameter with several names (tied, shared by layers) counts once. `rate_share` gives the factor on the learning
    rate of the parameter with a name, for AdamW. `peak` is the largest learning rate of the run, for Muon
    and StableAdamW.
    """

    def __init__(
        self,
        named_parameters: Iterable[tuple[str, nn.Parameter]],
        constants: OptimizerSpec,
        rate_share: Callable[[str], float] | None = None,
        *,
        peak: float | None = None,
    ) -> None:
        self.names: dict[nn.Parameter, str] = {}
        for name, parameter in named_parameters:
            self.names.setdefault(parameter, name)
        self.steps = 0
        assert rate_share is None or isinstance(constants, AdamW), "the others have one schedule for all parameters"
        self._rules: dict[nn.Parameter, UpdateRule] = {}
        match constants:
            case Lamb():
                self._add(self.names, LambRule(self.names, constants))
            case Muon():
                assert peak is not None, "the rate of matrices is a multiple of the share of the peak"
                matrices = [each for each, name in self.names.items() if each.ndim == 2 and is_layer_matrix(name)]
                if matrices:
                    self._add(matrices, MuonRule(matrices, constants, peak))
                if rest := [each for each in self.names if each not in self._rules]:
                    adamw = AdamW(betas=constants.betas, eps=constants.eps, weight_decay=constants.weight_decay)
                    self._add(rest, AdamWRule(rest, adamw, {}))
            case StableAdamW():
                assert peak is not None, "weight decay is per step at the peak"
                self._add(self.names, StableAdamWRule(self.names, constants, peak))
            case AdamW():
                shares = {} if rate_share is None else {each: rate_share(name) for each, name in self.names.items()}
                self._add(self.names, AdamWRule(self.names, constants, shares))

    def _add(self, parameters: Iterable[nn.Parameter], rule: UpdateRule) -> None:
        self._rules.update(dict.fromkeys(parameters, rule))

    @property
    def accepts_clipping(self) -> bool:
        """Whether `step` accepts a `Clipping`, so that the host need not wait for the norm."""
        return all(rule.accepts_clipping for rule in self._rules.values())

    def step(self, learning_rate: float, clipping: Clipping | None = None, gradient_scale: float = 1.0) -> None:
        """Update all parameters that have a gradient; gradients are then dropped.

        They are clipped by the factor `gradient_scale` or, on a GPU and if the optimizer accepts it, by `clipping`.
        """
        self.steps += 1
        gradients = [parameter.grad for parameter in self.names if parameter.grad is not None]
        if gradient_scale != 1 and gradients:
            torch._foreach_mul_(gradients, gradient_scale)
        for rule in dict.fromkeys(self._rules.values()):
            rule.update(learning_rate, self.steps, clipping)
        for parameter in self.names:
            parameter.grad = None

    def state(self) -> dict[str, Tensor]:
        """Return the moments of every parameter, named "exp_avg.NAME", "exp_avg_sq.NAME" or "momentum.NAME".

        A parameter that no loss depends on (a pooler without a pair objective) has no moments yet: they are zero.
        """
        return {
            f"{moment}.{name}": self._rules[parameter].state.get(parameter, {}).get(moment, torch.zeros_like(parameter))
            for parameter, name in self.names.items()
            for moment in self._rules[parameter].moments
        }

    def load_state(self, state: Mapping[str, Tensor], steps: int) -> None:
        """Load the moments after `steps` steps. Raises CheckpointError if a moment is missing or has another shape."""
        self.steps = steps
        for parameter, name in self.names.items():
            moments, rule = {}, self._rules[parameter]
            for moment in rule.moments:
                saved = state.get(f"{moment}.{name}")
                if saved is None or saved.shape != parameter.shape:
                    actual = "nothing" if saved is None else f"shape {tuple(saved.shape)}"
                    raise CheckpointError(
                        f"optimizer state {moment} of {name}: found {actual}, expected shape {tuple(parameter.shape)}",
                        hint="The checkpoint belongs to another model; choose another --out folder.",
                    )
                moments[moment] = saved.to(parameter.device, parameter.dtype, copy=True)
            if isinstance(rule, AdamWRule):  # Torch counts the steps of each parameter, in a tensor.
                moments["step"] = torch.tensor(float(steps), dtype=torch.float32, device=parameter.device)
            rule.state[parameter] = moments


def is_layer_matrix(name: str) -> bool:
    """Return whether Muon updates the matrix with this name: those of encoder and generator but the embeddings."""
    return name.startswith(("encoder.", "generator.")) and "_embeddings." not in name
