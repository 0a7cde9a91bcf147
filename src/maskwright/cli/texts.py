"""What the verbs that use a model share: where their texts come from, and how warnings are said."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from maskwright.cli import output

if TYPE_CHECKING:
    from maskwright.inference.model import Model
    from maskwright.inference.precision import Precision

MODEL_HELP = "A run's folder, or a Hugging Face model's folder or hub name."
FILE_HELP = "Read one text a line from a .txt or .jsonl file; `-` reads standard input."
DEVICE_HELP = "auto, cpu, cuda or cuda:N."
PRECISION_HELP = (
    "Of matrix products: fp32 (exact), bf16 or int8 (faster, rounded), or auto (bf16 on a GPU that has it, else fp32)."
)


def gather(texts: Sequence[str] | None, file: Path | None) -> list[str]:
    """Return the texts of the command line, then those of the file.

    Raises:
        MaskwrightError: If there are none.
    """
    from maskwright.core.errors import MaskwrightError
    from maskwright.inference.texts import read_texts

    gathered = [*(texts or ()), *(read_texts(file) if file else ())]
    if not gathered:
        raise MaskwrightError(
            "no text was given",
            todo="Write texts after the model, each in quotes, or name a file with --file.",
        )
    return gathered


def counted(texts: Sequence[object]) -> str:
    """Say how many texts there are: "1 text", "1,200 texts"."""
    return f"{len(texts):,} text{'s' * (len(texts) != 1)}"


def heading(text: str) -> None:
    """Print a line above a table, however long it is."""
    output.console().print(Text(text, style="bold"), soft_wrap=True)


def load_for_use(model: str, device: str, precision: "Precision") -> "Model":
    """Load a model into a process that does nothing else: memory is kept as in training, warnings are said."""
    from maskwright.inference.model import load
    from maskwright.training.allocator import keep_freed_memory

    keep_freed_memory()
    with warnings_said():
        return load(model, device=device, precision=precision)


@contextmanager
def warnings_said() -> Iterator[None]:
    """Say Python warnings of the block as lines, without file names and source."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in caught:
        output.warn(str(warning.message))
