"""How a model's training file was read, kept in the model's folder (reading.json)."""

from pathlib import Path

from maskwright.core.errors import DataError
from maskwright.core.files import read_json, write_json
from maskwright.evaluation.readers import ReadAs, read_as_from_json

READING_FILE = "reading.json"


def write_read_as(folder: Path, read_as: ReadAs) -> None:
    """Keep it; a folder without it has none.

    Raises:
        DeviceError: If it cannot be written.
    """
    if read_as:
        write_json(folder / READING_FILE, dict(read_as))


def read_as_of(model: str | Path) -> ReadAs:
    """Return how the training file was read; nothing where the folder does not say, or is on a hub.

    Raises:
        DataError: If it cannot be read.
    """
    path = Path(model).expanduser() / READING_FILE
    if not path.is_file():
        return {}
    try:
        data = read_json(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}", todo="Remove it to have columns guessed.") from error
    return read_as_from_json(data, str(path))
