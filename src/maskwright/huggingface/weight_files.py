"""The files of a model folder: where they are, what is in them, and what to do if they cannot be read."""

import json
import re
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from maskwright.core.errors import ConversionError
from maskwright.core.files import read_json
from maskwright.huggingface.finding import refuse_misspelt

WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.model"]
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


def locate(folder_or_name: str | Path) -> Path:
    """Return the folder of a model; a name that is no folder is fetched from the model hub.

    Raises:
        ConversionError: If a folder is meant and there is none, or the run in it has saved no model yet; or if no such
            name can be reached.
    """
    refuse_misspelt(folder_or_name)
    folder = Path(folder_or_name).expanduser()
    if folder.is_dir():
        return folder
    name = str(folder_or_name)
    if not _HUB_NAME.fullmatch(name) or name.startswith("."):
        raise ConversionError(
            f"cannot load a model from {folder}: it does not exist",
            allowed="a folder with config.json and model.safetensors",
        )
    return _from_hub(name)


def _from_hub(name: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ConversionError(
            f"there is no folder {name!r}, and huggingface_hub, which asks the model hub, is not installed",
            todo="Give the path of a model folder, or install the extra: `pip install 'maskwright[hf]'`",
        ) from error
    try:
        return Path(snapshot_download(name, allow_patterns=_HUB_FILES))
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConversionError(
            f"there is no folder {name!r}, and the model hub gave no model of that name: {reason}",
            todo="Check the name and the connection, or give the path of a folder you have",
        ) from error


def read_config(folder: Path) -> dict[str, Any]:
    """Read a folder's config.json.

    Raises:
        ConversionError: If it is missing or not a JSON object.
    """
    data = _json_object(folder / "config.json")
    if not isinstance(data.get("model_type"), str):
        raise ConversionError(
            f"{folder / 'config.json'} has no model_type", todo='Add it, for example `"model_type": "bert"`'
        )
    return data


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Read all tensors of a folder, from one safetensors file or from the shards that an index names.

    Pickled files are refused: reading one can run any code.

    Raises:
        ConversionError: If there are none, or a file is damaged.
    """
    if (folder / WEIGHTS).exists():
        return _tensors(folder / WEIGHTS)
    if (folder / _INDEX).exists():
        tensors: dict[str, Tensor] = {}
        for name in _shards(folder / _INDEX):
            tensors |= _tensors(folder / name)
        return tensors
    pickled = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
    if pickled:
        raise ConversionError(
            f"{folder} holds its weights only as {', '.join(pickled)}, which can run any code",
            allowed=f"{WEIGHTS}, or {_INDEX} with its shards",
            todo="If you trust its source, convert it once with transformers: "
            f"`AutoModelForPreTraining.from_pretrained({str(folder)!r}).save_pretrained('converted')`",
        )
    raise ConversionError(f"{folder} holds no weights", allowed=f"{WEIGHTS}, or {_INDEX} with its shards")


def _shards(index: Path) -> list[str]:
    places = _json_object(index).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise ConversionError(f"{index} has no weight_map", todo="Fetch the file again")
    names = sorted({str(name) for name in places.values()})
    for name in names:
        if Path(name).name != name:
            raise ConversionError(f"{index} names the shard {name!r}", allowed="files of the same folder")
    return names


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        return {
            name: tensor.float() if tensor.is_floating_point() else tensor
            for name, tensor in load_file(path, device="cpu").items()
        }
    except FileNotFoundError as error:
        raise ConversionError(f"the shard {path} is missing", todo="Fetch it again") from error
    except (SafetensorError, OSError) as error:
        raise ConversionError(
            f"{path} cannot be read ({path.stat().st_size:,} bytes): {error}",
            todo="It is damaged or was cut short: fetch or copy it again",
        ) from error


def _json_object(path: Path) -> dict[str, Any]:
    try:
        data = read_json(path)
    except FileNotFoundError as error:
        raise ConversionError(
            f"{path} is missing", allowed="a folder with config.json and model.safetensors"
        ) from error
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ConversionError(f"{path} is not readable JSON: {error}", todo="Fetch or write it again") from error
    if not isinstance(data, dict):
        raise ConversionError(f"{path} holds a {type(data).__name__}", allowed="a JSON object")
    return data


def as_saved(tensor: Tensor) -> Tensor:
    """Return a tensor fit for a safetensors file: on the CPU, in fp32, contiguous, with memory of its own."""
    return tensor.detach().to("cpu", torch.float32, copy=True, memory_format=torch.contiguous_format)
