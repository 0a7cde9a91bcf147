"""maskwright: train, evaluate and ship your own BERT-family encoder.

Each command is a function here; the subcommands of `maskwright recipes` are functions of `maskwright.recipes`. Names
are imported when they are first used: `import maskwright` itself imports neither PyTorch nor NumPy.
"""

# Both are imported when Python starts.
import os
import sys

if sys.argv[:1] == ["-m"] and not sys.flags.safe_path and sys.path[0] == os.getcwd():
    # `python -m` has put the current directory first, whose files must not take the place of modules.
    del sys.path[0]

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maskwright import recipes as recipes
    from maskwright.core.errors import MaskwrightError as MaskwrightError
    from maskwright.finetuning.evaluate import evaluate as evaluate
    from maskwright.finetuning.finetune import finetune as finetune
    from maskwright.finetuning.load import load as load
    from maskwright.finetuning.predict import predict as predict
    from maskwright.inference.commands import detect as detect
    from maskwright.inference.commands import embed as embed
    from maskwright.inference.commands import fill_mask as fill_mask
    from maskwright.inference.long_texts import TruncationWarning as TruncationWarning
    from maskwright.inference.model import Model as Model
    from maskwright.inference.quickstart import quickstart as quickstart
    from maskwright.inference.show import show as show
    from maskwright.serving.export import export as export
    from maskwright.serving.push import push as push
    from maskwright.serving.server import serve as serve
    from maskwright.study.compare import compare as compare
    from maskwright.study.plan import plan as plan
    from maskwright.training.doctor import doctor as doctor
    from maskwright.training.pretrain import RunResult as RunResult
    from maskwright.training.pretrain import pretrain as pretrain
    from maskwright.training.runs.examination import examine as examine
    from maskwright.training.start.prepared_text import prepare as prepare

_MODULES = {
    "MaskwrightError": "core.errors",
    "Model": "inference.model",
    "RunResult": "training.pretrain",
    "TruncationWarning": "inference.long_texts",
    "compare": "study.compare",
    "detect": "inference.commands",
    "doctor": "training.doctor",
    "embed": "inference.commands",
    "evaluate": "finetuning.evaluate",
    "examine": "training.runs.examination",
    "export": "serving.export",
    "fill_mask": "inference.commands",
    "finetune": "finetuning.finetune",
    "load": "finetuning.load",
    "plan": "study.plan",
    "predict": "finetuning.predict",
    "prepare": "training.start.prepared_text",
    "pretrain": "training.pretrain",
    "push": "serving.push",
    "quickstart": "inference.quickstart",
    "serve": "serving.server",
    "show": "inference.show",
}

__all__ = [*_MODULES, "recipes"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"maskwright.{_MODULES[name]}"), name)
    if name == "recipes":
        return importlib.import_module("maskwright.recipes")
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("maskwright")
    raise AttributeError(f"module 'maskwright' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
