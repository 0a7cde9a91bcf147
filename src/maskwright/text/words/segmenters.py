"""Segmenters by name, each library imported only when it is named.

`rjieba` and `jieba` carry their dictionary and work anywhere (`dictionary_segmenters`); `ltp`, `hanlp`, `spacy` and
`stanza` need a model that the user has installed or can download (`model_segmenters`).
"""

from functools import lru_cache
from importlib import metadata
from pathlib import Path

from maskwright.core.errors import DataError
from maskwright.text.words.dictionary_segmenters import DICTIONARY_SEGMENTERS
from maskwright.text.words.model_segmenters import open_model_segmenter
from maskwright.text.words.segmenter import Segmenter


def segmenter_version(name: str) -> str:
    """Return the version of a segmenter's library, part of what prepared text is made from ("" if not installed)."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


@lru_cache(maxsize=4)
def open_segmenter(name: str, dictionary: Path | None = None, model: str | None = None) -> Segmenter:
    """Load a segmenter; it is kept for the life of the process.

    Args:
        name: "rjieba", "jieba", "ltp", "hanlp", "spacy" or "stanza".
        dictionary: A file of words that it must know.
        model: Its model, for those that need one; None for the usual one.

    Raises:
        DataError: If the library, the model or the dictionary is missing, or it takes no dictionary or model.
    """
    if name in DICTIONARY_SEGMENTERS:
        if model is not None:
            raise DataError(f"the segmenter {name!r} has no model to choose", todo="Leave words.model out.")
        return DICTIONARY_SEGMENTERS[name](dictionary)
    if dictionary is not None and name != "ltp":
        raise DataError(
            f"the segmenter {name!r} cannot be told words",
            allowed="a dictionary for rjieba, jieba or ltp",
            todo="Leave words.dictionary out, or choose one of these.",
        )
    return open_model_segmenter(name, dictionary, model)
