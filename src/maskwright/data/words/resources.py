"""What finding words needs besides the text: segmenters, dictionaries and lexicons, checked before any work begins."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from maskwright.core.spec import fingerprint
from maskwright.data.words.annotator import Annotator
from maskwright.data.words.lexicon import Lexicon
from maskwright.data.words.segmenter import Segmenter
from maskwright.data.words.segmenters import open_segmenter, segmenter_version
from maskwright.data.words.word_lists import content_of, read_dictionary, read_lexicon
from maskwright.data.words_spec import LEXICON_SUFFIXES, Words

# Raise it with every change of what the same words become on the same tokens.
_VERSION = 1
_TRIED = "语言模型"


def check_words(words: Words) -> None:
    """Find out at once what would fail later: a library, a model or a file that is missing or broken.

    Raises:
        DataError: If something is.
    """
    if words.dictionary is not None:
        read_dictionary(Path(words.dictionary))
    segmenter = segmenter_of(words)
    if segmenter is not None:
        segmenter.tag([_TRIED])
    for path in _lexicon_paths(words):
        read_lexicon(path)
    if "collocations" in words.phrases or any(_lexicon_paths(words)):
        Lexicon([])


def words_fingerprint(words: Words) -> str:
    """Identify what counts as a word: the choices, the content of the files, the versions of segmenter and model.

    Where the files are is no part of it.

    Raises:
        DataError: If a file cannot be read.
    """
    phrases, entities = (
        [content_of(Path(source)) if _is_file(source) else source for source in sources]
        for sources in (words.phrases, words.entities)
    )
    return fingerprint([_VERSION, segmenter_fingerprint(words), words.units, phrases, entities])


def segmenter_fingerprint(words: Words) -> str:
    """Identify who cuts Chinese text into words.

    Raises:
        DataError: If the dictionary cannot be read.
    """
    if words.segmenter == "none":
        return "none"
    dictionary = "" if words.dictionary is None else content_of(Path(words.dictionary))
    version = segmenter_version(words.segmenter, words.model)
    return fingerprint([words.segmenter, version, words.model, dictionary])


def segmenter_of(words: Words) -> Segmenter | None:
    """Load the segmenter, if there is one.

    Raises:
        DataError: If it cannot be loaded.
    """
    if words.segmenter == "none":
        return None
    dictionary = None if words.dictionary is None else Path(words.dictionary)
    return open_segmenter(words.segmenter, dictionary, words.model)


def open_annotator(words: Words, collocations: Path | None = None) -> Annotator | None:
    """Load all that finds words; None where they are simply the tokenizer's own.

    Args:
        words: What counts as a word, a phrase and an entity.
        collocations: The corpus's own phrases, one a line; None leaves them out.

    Raises:
        DataError: If something cannot be loaded.
    """
    if words.are_the_tokenizers:
        return None
    lexicons = {
        "phrase": _lexicons(words.phrases, collocations),
        "entity": _lexicons(words.entities, None),
    }
    return Annotator(words, segmenter_of(words), lexicons)


def _lexicons(sources: Sequence[str], collocations: Path | None) -> list[Lexicon]:
    lists = [read_lexicon(Path(source)) for source in sources if _is_file(source)]
    if collocations is not None:
        lists.append(collocations.read_text(encoding="utf-8").splitlines())
    return [Lexicon(entries) for entries in lists]


def _lexicon_paths(words: Words) -> Iterator[Path]:
    yield from (Path(source) for source in (*words.phrases, *words.entities) if _is_file(source))


def _is_file(source: str) -> bool:
    return Path(source).suffix in LEXICON_SUFFIXES
