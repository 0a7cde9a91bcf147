"""AdamW as the recipes say it: which parameters decay, and Adam with or without bias correction."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from maskwright.core.errors import CheckpointError
from maskwright.recipes.optimization import AdamW

_MOMENTS = ("exp_avg", "exp_avg_sq")


class Optimizer:
    """Torch's fused AdamW over named parameters, with the constants of a recipe.

    Google's BERT and ELECTRA leave Adam's bias correction out (bert:optimization.py:57-74): their update is
    lr * m / (sqrt(v) + eps). Torch always corrects, so at step t the rate, the epsilon and the decay handed to it are
    scaled such that its corrections cancel exactly: with a = 1 - beta1^t and b = sqrt(1 - beta2^t),
    lr' = lr a / b, eps' = eps / b, decay' = decay lr / lr'.

    Args:
        named_parameters: (name, parameter) pairs; a parameter met twice (tied) counts once.
        constants: The recipe's optimizer.
    """

    def __init__(self, named_parameters: Iterable[tuple[str, nn.Parameter]], constants: AdamW) -> None:
        self.constants = constants
        self.names: dict[nn.Parameter, str] = {}
        decayed: list[nn.Parameter] = []
        plain: list[nn.Parameter] = []
        for name, parameter in named_parameters:
            if parameter in self.names:
                continue
            self.names[parameter] = name
            # Biases and LayerNorm weights are the vectors of these models; every matrix decays, embeddings too.
            (decayed if constants.decayed == "all" or parameter.ndim > 1 else plain).append(parameter)
        self.decays = [decay for params, decay in ((decayed, constants.weight_decay), (plain, 0.0)) if params]
        self.steps = 0
        self._torch = torch.optim.AdamW(
            [{"params": params} for params in (decayed, plain) if params],
            lr=0.0,
            betas=constants.betas,
            eps=constants.eps,
            fused=True,
        )

    def step(self, learning_rate: float) -> None:
        """Update all parameters once from their gradients, which are then dropped."""
        self.steps += 1
        rate, eps, scale = learning_rate, self.constants.eps, 1.0
        if not self.constants.bias_correction:
            beta1, beta2 = self.constants.betas
            first, second = 1 - beta1**self.steps, math.sqrt(1 - beta2**self.steps)
            scale = first / second
            rate, eps = learning_rate * scale, self.constants.eps / second
        for group, decay in zip(self._torch.param_groups, self.decays, strict=True):
            group["lr"], group["eps"], group["weight_decay"] = rate, eps, decay / scale
        self._torch.step()
        self._torch.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Tensor]:
        """Return both moments of every parameter, named "exp_avg.NAME" and "exp_avg_sq.NAME".

        A parameter that no loss reaches (a pooler without a pair objective) has no moments yet: they are zero.
        """
        return {
            f"{moment}.{name}": self._torch.state[parameter].get(moment, torch.zeros_like(parameter))
            for parameter, name in self.names.items()
            for moment in _MOMENTS
        }

    def load_state(self, state: dict[str, Tensor], steps: int) -> None:
        """Take the moments of `state` and go on after `steps` steps.

        Raises:
            CheckpointError: If a moment is missing or has another shape.
        """
        self.steps = steps
        for parameter, name in self.names.items():
            moments = {}
            for moment in _MOMENTS:
                saved = state.get(f"{moment}.{name}")
                if saved is None or saved.shape != parameter.shape:
                    found = "nothing" if saved is None else f"shape {tuple(saved.shape)}"
                    raise CheckpointError(
                        f"optimizer state {moment} of {name}: found {found}, expected shape {tuple(parameter.shape)}",
                        todo="The checkpoint belongs to another model; choose another --out folder.",
                    )
                moments[moment] = saved.to(parameter.device, parameter.dtype, copy=True)
            self._torch.state[parameter] = {
                "step": torch.tensor(float(steps), dtype=torch.float32, device=parameter.device),
                **moments,
            }
