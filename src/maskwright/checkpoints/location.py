"""Locate model folders, without importing PyTorch."""

import re
from pathlib import Path

from maskwright.core.errors import ConversionError, first_line, nearest
from maskwright.core.text.amounts import listed

GENERATOR = "generator"
"""The subdirectory of ELECTRA's generator in the folder of its discriminator: a model folder too."""
_HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.model"]
_MARKS = ("config.json", "run.json")
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


def check_folder(folder_or_name: str | Path) -> Path | None:
    """Return a local model folder, or None if the argument can only be a name on the model hub.

    A name counts as a folder's if its parent is a folder here, so that a misspelled "runs/quickstat" is not requested
    from the hub. Raises ConversionError if the folder does not exist, or its run has not saved a model yet.
    """
    folder = Path(folder_or_name).expanduser()
    if folder.is_dir():
        if (folder / "run.json").exists() and not (folder / "config.json").exists():
            raise ConversionError(
                f"the run in {folder} has not saved a model yet",
                hint="It saves one with its first checkpoint; repeat its command to resume",
            )
        return folder
    if folder.exists():
        raise ConversionError(f"{folder} is a file", allowed="the folder that holds the model's files")
    models = _models_in(folder.parent)
    guess = nearest(folder.name, models)
    is_local = isinstance(folder_or_name, Path) or ("/" in folder_or_name and folder.parent.is_dir())
    if is_local or guess is not None:
        raise ConversionError(
            f"there is no folder {str(folder)!r}",
            allowed=listed((str(folder.parent / name) for name in models), 10),
            hint=f"Did you mean {str(folder.parent / guess)!r}?" if guess else "Check the path",
        )
    return None


def locate(folder_or_name: str | Path) -> Path:
    """Return the folder of a model; a name that is not a folder is downloaded from the model hub.

    Raises ConversionError as `check_folder`, or if the hub has no such name.
    """
    if (folder := check_folder(folder_or_name)) is not None:
        return folder
    name = str(folder_or_name)
    if not _HUB_NAME.fullmatch(name) or name.startswith("."):
        raise ConversionError(
            f"cannot load a model from {name}: it does not exist",
            allowed="a folder with config.json and model.safetensors",
        )
    return _from_hub(name)


def _models_in(parent: Path) -> list[str]:
    if not parent.is_dir():
        return []
    return sorted(path.name for path in parent.iterdir() if any((path / mark).is_file() for mark in _MARKS))


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download  # a dependency of tokenizers

    try:
        return Path(snapshot_download(name, allow_patterns=_HUB_FILES))
    except (OSError, ValueError) as error:
        raise ConversionError(
            f"there is no folder {name!r}, and downloading it from the model hub failed: {first_line(error)}",
            hint="Check the name and the connection, or give the path of a folder you have",
        ) from error
