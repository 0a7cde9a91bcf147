"""Which folder was meant: model folders that do not exist, or hold no model yet."""

from pathlib import Path

from maskwright.core.errors import ConversionError, nearest

_MARKS = ("config.json", "run.json")


def refuse_misspelt(folder_or_name: str | Path) -> None:
    """Raise ConversionError if a folder is meant and there is none, or the run in it has saved no model yet.

    Args:
        folder_or_name: A folder, or a name on the model hub. A name counts as a folder's if its parent is a
            folder here, so that a misspelt "runs/quickstat" is not asked for on the hub.
    """
    folder = Path(folder_or_name).expanduser()
    if folder.is_dir():
        if (folder / "run.json").exists() and not (folder / "config.json").exists():
            raise ConversionError(
                f"the run in {folder} has not saved a model yet",
                todo="It saves one with its first checkpoint; repeat its command to go on",
            )
        return
    if folder.exists():
        raise ConversionError(f"{folder} is a file", allowed="the folder that holds the model's files")
    models = _models_in(folder.parent)
    guess = nearest(folder.name, models)
    is_local = isinstance(folder_or_name, Path) or ("/" in folder_or_name and folder.parent.is_dir())
    if not is_local and guess is None:
        return
    raise ConversionError(
        f"there is no folder {str(folder)!r}",
        allowed=", ".join(str(folder.parent / name) for name in models[:10]),
        todo=f"Did you mean {str(folder.parent / guess)!r}?" if guess else "Check the path",
    )


def _models_in(parent: Path) -> list[str]:
    if not parent.is_dir():
        return []
    return sorted(path.name for path in parent.iterdir() if any((path / mark).is_file() for mark in _MARKS))
