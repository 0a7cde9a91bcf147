"""Segmenters by name, each library imported only when it is named.

`rjieba` and `jieba` carry their dictionary and work anywhere (`dictionary_segmenters`); `ltp`, `hanlp`, `spacy` and
`stanza` need a model that the user has installed or can download (`model_segmenters`).
"""

from functools import lru_cache
from importlib import metadata
from pathlib import Path

from maskwright.core.errors import DataError
from maskwright.data.words.dictionary_segmenters import DICTIONARY_SEGMENTERS
from maskwright.data.words.model_segmenters import model_package, open_model_segmenter
from maskwright.data.words.segmenter import Segmenter
from maskwright.data.words.word_lists import content_of


def segmenter_version(name: str, model: str | None = None) -> str:
    """Return the version of a segmenter's library ("" if not installed), part of what prepared text is made from.

    Where the model is a package of its own, as spaCy's are, its version follows. Models that are downloaded have none
    that can be asked for here.

    Args:
        name: See `open_segmenter`.
        model: Its model; None for the usual one.
    """
    versions = [_installed(name), _installed(model_package(name, model))]
    return " ".join(version for version in versions if version)


def _installed(package: str) -> str:
    try:
        return metadata.version(package) if package else ""
    except metadata.PackageNotFoundError:
        return ""


def open_segmenter(name: str, dictionary: Path | None = None, model: str | None = None) -> Segmenter:
    """Load a segmenter; it is kept for the life of the process, or until its dictionary's content changes.

    Args:
        name: "rjieba", "jieba", "ltp", "hanlp", "spacy" or "stanza".
        dictionary: A file of words that it must know.
        model: Its model, for those that need one; None for the usual one.

    Raises:
        DataError: If the library, the model or the dictionary is missing, or it takes no dictionary or model.
    """
    return _loaded(name, dictionary, model, "" if dictionary is None else content_of(dictionary))


@lru_cache(maxsize=4)
def _loaded(name: str, dictionary: Path | None, model: str | None, content: str) -> Segmenter:
    """Load a segmenter; `content` is the dictionary's, so that an edited one is read again."""
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
