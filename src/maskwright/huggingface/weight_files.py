"""Read config.json and the weights of model folders."""

from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from maskwright.core.errors import ConversionError
from maskwright.core.files import read_json

WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


def read_config(folder: Path) -> dict[str, Any]:
    """Read a folder's config.json.

    Raises:
        MaskwrightError: If it is missing or not a JSON object.
    """
    data = _json_object(folder / "config.json")
    if not isinstance(data.get("model_type"), str):
        raise ConversionError(
            f"{folder / 'config.json'} has no model_type", todo='Add it, for example `"model_type": "bert"`'
        )
    return data


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Read all tensors of a folder, from one safetensors file or from the shards that an index names.

    Pickled files are refused: reading one can execute arbitrary code.

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
        # Another class would drop the heads in the file, or add newly initialized ones.
        named = (read_config(folder).get("architectures") or ["AutoModel"])[0]
        read, save = f".from_pretrained({str(folder)!r})", ".save_pretrained('converted')"
        raise ConversionError(
            f"{folder} has its weights only as {', '.join(pickled)}, which can execute arbitrary code",
            allowed=f"{WEIGHTS}, or {_INDEX} with its shards",
            todo="If you trust the source, convert it once with transformers, model and tokenizer: "
            f"`transformers.{named}{read}{save}; transformers.AutoTokenizer{read}{save}`",
        )
    raise ConversionError(
        f"{folder} has no weights",
        allowed=f"{WEIGHTS}, or {_INDEX} with its shards",
        todo="Copy the model's weights into the folder, or give the folder that holds them",
    )


def _shards(index: Path) -> list[str]:
    places = _json_object(index).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise ConversionError(f"{index} has no weight_map", todo="Download the file again")
    names = sorted({str(name) for name in places.values()})
    for name in names:
        if Path(name).name != name or not name.isprintable():
            raise ConversionError(f"{index} names the shard {name!r}", allowed="files in the same folder")
    return names


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        return {
            name: tensor.float() if tensor.is_floating_point() else tensor
            for name, tensor in load_file(path, device="cpu").items()
        }
    except FileNotFoundError as error:
        raise ConversionError(f"the shard {path} is missing", todo="Download it again") from error
    except (SafetensorError, OSError) as error:
        raise ConversionError(
            f"{path} cannot be read ({path.stat().st_size:,} bytes): {error}",
            todo="It is damaged or truncated: download or copy it again",
        ) from error


def _json_object(path: Path) -> dict[str, Any]:
    try:
        data = read_json(path)
    except FileNotFoundError as error:
        raise ConversionError(
            f"{path} is missing", allowed="a folder with config.json and model.safetensors"
        ) from error
    if not isinstance(data, dict):
        raise ConversionError(f"{path} contains a {type(data).__name__}", allowed="a JSON object")
    return data
