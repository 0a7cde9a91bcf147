"""`maskwright.push`: upload an exported folder to the model hub."""

from pathlib import Path

from maskwright.core.errors import ConversionError, MaskwrightError, first_line
from maskwright.core.extras import require


def files_to_push(folder: str | Path) -> list[Path]:
    """List the files that `push` uploads.

    Raises ConversionError if the folder has no model card, or is a run directory with its checkpoints and logs.
    """
    folder = Path(folder).expanduser()
    if not (folder / "README.md").is_file() or not (folder / "config.json").is_file() or (folder / "run.json").exists():
        raise ConversionError(
            f"{folder} is not an exported model",
            allowed="a folder that `maskwright export` wrote",
            hint=f"Write one first: `maskwright export {folder} --to hub --out FOLDER`",
        )
    return sorted(path for path in folder.rglob("*") if path.is_file())


def push(folder: str | Path, repo: str, *, private: bool = False) -> str:
    """Upload a folder that `export` wrote to the model hub; the repository is created if needed.

    Args:
        folder: A directory that `maskwright export` wrote.
        repo: The repository, USER/NAME.
        private: Make a new repository private.

    Returns:
        The address of the commit.

    Raises:
        MaskwrightError: If the folder is not an exported model, or the hub refuses.
    """
    files_to_push(folder)
    require("uploading", "hf", "huggingface_hub")
    from huggingface_hub import HfApi

    client = HfApi()
    try:
        client.create_repo(repo, private=private, exist_ok=True)
        return str(client.upload_folder(repo_id=repo, folder_path=Path(folder).expanduser()))
    except (OSError, ValueError) as error:  # The client's errors are of these two kinds.
        raise MaskwrightError(
            f"cannot upload to {repo}: {first_line(error)}",
            hint="Check the name and the connection, and log in with `hf auth login`",
        ) from error
