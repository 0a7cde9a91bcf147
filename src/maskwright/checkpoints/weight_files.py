"""Read config.json and the weights of model folders."""

from pathlib import Path
from typing import Any

from torch import Tensor

from maskwright.core.errors import ConversionError
from maskwright.core.storage.files import read_object
from maskwright.core.storage.tensor_files import read_tensors

WEIGHTS = "model.safetensors"
_OTHERS = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "model-*-of-*.safetensors")


def read_config(folder: Path) -> dict[str, Any]:
    """Read a folder's config.json; raises MaskwrightError if it is missing or not an object with a model type."""
    path = folder / "config.json"
    try:
        data = read_object(path)
    except FileNotFoundError as error:
        allowed = f"a folder with config.json and {WEIGHTS}"
        raise ConversionError(f"{path} is missing", allowed=allowed, hint=_nearby_model(folder)) from error
    if not isinstance(data.get("model_type"), str):
        hint = _nearby_model(folder) or 'Add it, for example `"model_type": "bert"`'
        raise ConversionError(f"{path} has no model_type", hint=hint)
    return data


def _nearby_model(folder: Path) -> str:
    """Return a hint if the folder is a part of a model (a module of sentence-transformers), or has one inside."""
    parent = folder.absolute().parent
    for model in (parent, *(sorted(folder.iterdir()) if folder.is_dir() else ())):
        if all((model / name).is_file() for name in ("config.json", WEIGHTS)):
            return f"Did you mean {str(folder.parent if model == parent else model)!r}?"
    return ""


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Return a folder's weights (see `read_tensors`); raises ConversionError if there are none.

    Pickled files are refused: reading one can execute arbitrary code. So are shards, which models of this size are not
    saved in.
    """
    path = folder / WEIGHTS
    if path.exists():
        return read_tensors(path)
    others = sorted(path.name for pattern in _OTHERS for path in folder.glob(pattern))
    if others:
        # Another class would drop the heads in the file, or add newly initialized ones.
        named = (read_config(folder).get("architectures") or ["AutoModel"])[0]
        read, save = f".from_pretrained({str(folder)!r})", ".save_pretrained('converted')"
        raise ConversionError(
            f"{folder} has its weights only as {', '.join(others)}; pickled files can execute arbitrary code",
            allowed=WEIGHTS,
            hint="If you trust the source, convert it once with transformers, model and tokenizer: "
            f"`transformers.{named}{read}{save}; transformers.AutoTokenizer{read}{save}`",
        )
    raise ConversionError(
        f"{folder} has no weights",
        allowed=WEIGHTS,
        hint="Copy the model's weights into the folder, or give the folder that holds them",
    )
