"""Segmenters that need a trained model: LTP (that of Chinese-BERT-wwm), HanLP, spaCy, Stanza.

The models are installed or downloaded by the user; where one cannot be loaded, the error says which.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from maskwright.core.errors import DataError
from maskwright.data.words.segmenter import Segmenter, TaggedWords, library, tagged_or_single
from maskwright.data.words.word_lists import read_dictionary

Analysed = tuple[list[str], list[str]]
"""The words of one run, and their tags."""


class ModelSegmenter:
    """A segmenter whose library analyses runs one by one or in batches.

    Args:
        analyse: Takes runs; gives words and tags of each.
        entity_tags: What the tags of names begin with.
    """

    def __init__(self, analyse: Callable[[Sequence[str]], list[Analysed]], entity_tags: tuple[str, ...]) -> None:
        self._analyse = analyse
        self.entity_tags = entity_tags

    def cut(self, runs: Sequence[str]) -> list[str]:
        """See `Segmenter.cut`."""
        return self.tag(runs).words

    def tag(self, runs: Sequence[str]) -> TaggedWords:
        """See `Segmenter.tag`."""
        every = TaggedWords([], [])
        for run, found in zip(runs, self._analyse(runs), strict=True):
            words, tags = tagged_or_single(run, *found)
            every.words.extend(words)
            every.tags.extend(tags)
        return every


def model_package(name: str, model: str | None) -> str:
    """Return the package that a segmenter's model would be, were it one (spaCy's are); "" for no model segmenter."""
    return (model or _LOADERS[name][0]) if name in _LOADERS else ""


def open_model_segmenter(name: str, dictionary: Path | None, model: str | None) -> Segmenter:
    """Load a segmenter with its model.

    Raises:
        DataError: If the library is not installed, or the model cannot be loaded.
    """
    usual, load = _LOADERS[name]
    module, chosen = library(name), model or usual
    words = [entry.word for entry in read_dictionary(dictionary)] if dictionary else []
    try:
        return load(module, chosen, words)
    except Exception as error:  # whatever a library raises when its model is not there
        raise DataError(
            f"the segmenter {name!r} cannot load its model {chosen!r} ({type(error).__name__}: {error})",
            todo=f"Install or download the model as {name}'s documentation says, name another with words.model=NAME, "
            "or choose words.segmenter=rjieba, which needs none.",
        ) from error


def _ltp(module: Any, model: str, words: list[str]) -> Segmenter:
    ltp = module.LTP(model)
    if words:
        ltp.add_words(words, freq=2)

    def analyse(runs: Sequence[str]) -> list[Analysed]:
        found = ltp.pipeline(list(runs), tasks=["cws", "pos"])
        return list(zip(found.cws, found.pos, strict=True))

    # LTP's 863 tag set: people, organisations, places, other proper nouns.
    return ModelSegmenter(analyse, ("nh", "ni", "ns", "nz"))


def _hanlp(module: Any, model: str, words: list[str]) -> Segmenter:
    pretrained = module.pretrained
    cut = module.load(getattr(pretrained.tok, model, model))
    tag = module.load(pretrained.pos.PKU_POS_ELECTRA_SMALL)

    def analyse(runs: Sequence[str]) -> list[Analysed]:
        cut_runs = cut(list(runs))
        return list(zip(cut_runs, tag(cut_runs), strict=True))

    return ModelSegmenter(analyse, ("nr", "ns", "nt", "nz"))


def _spacy(module: Any, model: str, words: list[str]) -> Segmenter:
    pipeline = module.load(model)

    def analyse(runs: Sequence[str]) -> list[Analysed]:
        return [([token.text for token in run], [token.pos_ for token in run]) for run in pipeline.pipe(runs)]

    return ModelSegmenter(analyse, ("PROPN",))


def _stanza(module: Any, model: str, words: list[str]) -> Segmenter:
    pipeline = module.Pipeline(lang=model, processors="tokenize,pos", verbose=False)

    def analyse(runs: Sequence[str]) -> list[Analysed]:
        return [_stanza_words(pipeline(run)) for run in runs]

    return ModelSegmenter(analyse, ("PROPN",))


def _stanza_words(document: Any) -> Analysed:
    found = [word for sentence in document.sentences for word in sentence.words]
    return [word.text for word in found], [word.upos or "" for word in found]


_LOADERS: dict[str, tuple[str, Callable[[Any, str, list[str]], Segmenter]]] = {
    "ltp": ("LTP/small", _ltp),
    "hanlp": ("COARSE_ELECTRA_SMALL_ZH", _hanlp),
    "spacy": ("zh_core_web_sm", _spacy),
    "stanza": ("zh", _stanza),
}
