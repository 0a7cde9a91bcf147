"""Texts of a Hugging Face dataset, streamed: nothing but the rows in hand is kept in memory."""

from collections.abc import Iterator

from maskwright.core.errors import DataError
from maskwright.data.sources import HubDataset
from maskwright.data.tables import choose_column


def hub_documents(dataset: HubDataset, column: str | None) -> Iterator[str]:
    """Stream the text column of a dataset's split.

    Args:
        dataset: Name, configuration and split.
        column: The column to read; None for `text`, `content` or the only column of texts.

    Raises:
        DataError: If `datasets` is not installed, the dataset cannot be had, or no column fits.
    """
    try:
        import datasets
    except ImportError as error:
        raise DataError(
            f"{dataset.name!r} is no file or folder here, and reading it as a dataset of the Hugging Face hub needs "
            "the package `datasets`",
            todo="Check the path, or run `pip install 'maskwright[hub]'`",
        ) from error
    rows = 0
    try:
        stream = datasets.load_dataset(dataset.name, dataset.config, split=dataset.split, streaming=True)
        place = ""
        for row in stream:
            if not place:
                textual = [name for name, value in row.items() if isinstance(value, str)]
                place = choose_column(list(row), textual, column, dataset.name)
            rows += 1
            yield row[place] or ""
    except DataError:
        raise
    except Exception as error:
        # Whatever goes wrong at the hub (network, names, permissions, a half-read file) comes in many classes of
        # several packages; all of them mean that the text cannot be had.
        where = f"after {rows:,} rows" if rows else "at its start"
        raise DataError(
            f"cannot read the dataset {dataset.name!r} ({dataset.split}) from the Hugging Face hub {where}: "
            f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
            todo="Check the name, the split (`owner/name[split]` or `owner/name[configuration, split]`) and the "
            "connection; without one, give local files.",
        ) from error
