"""maskwright: train, measure and ship your own encoder.

What is here is also a verb of the command line. Names are imported when they are first used:
`import maskwright` itself loads nothing, PyTorch least of all.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maskwright import recipes as recipes
    from maskwright.core.errors import MaskwrightError as MaskwrightError
    from maskwright.finetuning.evaluating import evaluate as evaluate
    from maskwright.finetuning.finetuning import finetune as finetune
    from maskwright.finetuning.predicting import predict as predict
    from maskwright.inference.model import Model as Model
    from maskwright.inference.model import load as load
    from maskwright.inference.quickstart import quickstart as quickstart
    from maskwright.inference.showing import show as show
    from maskwright.training.doctor import doctor as doctor
    from maskwright.training.pretrain import Run as Run
    from maskwright.training.pretrain import pretrain as pretrain

_HOMES = {
    "MaskwrightError": "maskwright.core.errors",
    "Model": "maskwright.inference.model",
    "Run": "maskwright.training.pretrain",
    "doctor": "maskwright.training.doctor",
    "evaluate": "maskwright.finetuning.evaluating",
    "finetune": "maskwright.finetuning.finetuning",
    "load": "maskwright.inference.model",
    "predict": "maskwright.finetuning.predicting",
    "pretrain": "maskwright.training.pretrain",
    "quickstart": "maskwright.inference.quickstart",
    "show": "maskwright.inference.showing",
}

__all__ = [
    "MaskwrightError",
    "Model",
    "Run",
    "doctor",
    "evaluate",
    "finetune",
    "load",
    "predict",
    "pretrain",
    "quickstart",
    "recipes",
    "show",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name == "recipes":
        return importlib.import_module("maskwright.recipes")
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("maskwright")
    raise AttributeError(f"module 'maskwright' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
