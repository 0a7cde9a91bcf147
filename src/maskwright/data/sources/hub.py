"""Datasets of the Hugging Face hub as documents, streamed."""

from collections.abc import Iterator

from maskwright.core.errors import DataError, first_line
from maskwright.core.extras import imported
from maskwright.data.sources.arguments import HubDataset
from maskwright.data.tables import OnColumn, text_column, text_of


def hub_documents(dataset: HubDataset, column: str | None, on_column: OnColumn = lambda name: None) -> Iterator[str]:
    """Stream the text column of a dataset's split; DataError if that cannot be done. `on_column` receives its name."""
    purpose = f"{dataset.name!r} is no file or folder here, and reading it from the Hugging Face hub"
    datasets = imported("datasets", purpose, "hub", otherwise="correct the path")
    rows, name = 0, ""
    try:
        for row in datasets.load_dataset(dataset.name, dataset.config, split=dataset.split, streaming=True):
            if not rows:
                textual = [name for name, value in row.items() if isinstance(value, str)]
                name = text_column(list(row), textual, column, dataset.name, f"{dataset.name}#{{}}")
                on_column(name)
            rows += 1
            yield text_of(row[name])
    except DataError:
        raise
    except Exception as error:
        # Network, names, permissions and damaged files raise many classes of several packages.
        position = f"after {rows:,} rows" if rows else "at its start"
        raise DataError(
            f"cannot read the dataset {dataset.name!r} ({dataset.split}) from the Hugging Face hub {position}: "
            f"{type(error).__name__}: {first_line(error)}",
            hint="Check the name, the split (`owner/name[split]` or `owner/name[configuration, split]`) and the "
            "connection; without one, give local files.",
        ) from error
