"""Chinese word segmenters behind one protocol; each library is imported only when it is named.

`rjieba` (Rust, fast) and `jieba` carry their dictionary. LTP (that of Chinese-BERT-wwm), HanLP, spaCy and Stanza need a
model that the user installs or downloads; where one cannot be loaded, the error names it.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from maskwright.core.errors import DataError
from maskwright.data.libraries import imported
from maskwright.data.words.lexicon import content_of, read_dictionary

_REMEDIES = {"rjieba": "`pip install 'maskwright[zh]'`"}


class TaggedWords(NamedTuple):
    """Words and their parts of speech.

    Attributes:
        words: All words, in order; they join to the text that was cut.
        tags: For each word, its part of speech in the segmenter's own names.
    """

    words: list[str]
    tags: list[str]


class Segmenter(Protocol):
    """Cuts runs of Chinese characters into words. Runs do not see each other."""

    @property
    def entity_tags(self) -> tuple[str, ...]:
        """What the tags of names of people, places, organizations and other proper nouns begin with."""

    def cut(self, runs: Sequence[str]) -> list[str]:
        """Return the words of all runs, one run after the other; they join to the runs joined."""

    def tag(self, runs: Sequence[str]) -> TaggedWords:
        """Return the words of all runs with their parts of speech; the words may differ from those of `cut`."""


def library(name: str) -> Any:
    """Import the library of a segmenter.

    Raises:
        DataError: If it is not installed, or fails on import.
    """
    package = name.partition(".")[0]
    todo = _REMEDIES.get(package, f"`pip install {package}`, or choose words.segmenter=rjieba")
    return imported(name, package=package, purpose=f"the segmenter {package!r}", todo=f"Install it: {todo}.")


def joined_or_single(run: str, words: Sequence[str]) -> list[str]:
    """Return the words of a run if they join to it, else its single characters.

    Libraries that normalize text may give back another; then nothing is known of the run's words (BERT-wwm did the
    same: Chinese-BERT-wwm, issue 13).
    """
    return list(words) if "".join(words) == run else list(run)


def tagged_or_single(run: str, words: Sequence[str], tags: Sequence[str]) -> TaggedWords:
    """Return the words of a run with their tags if they join to it, else its single characters without (see above)."""
    kept = joined_or_single(run, words)
    return TaggedWords(kept, list(tags) if kept == list(words) else [""] * len(kept))


# ICTCLAS's names, as jieba has them: people (also nrt, nrfg), places, organizations, other proper nouns.
_NAMES = ("nr", "ns", "nt", "nz")
_BETWEEN = "\n"


class Jieba:
    """A segmenter of the jieba kind: dictionary, most probable path, hidden Markov model for unknown words."""

    entity_tags = _NAMES

    def __init__(self, cut: Callable[[str], list[str]], tag: Callable[[str], list[tuple[str, str]]]) -> None:
        self._cut, self._tag = cut, tag

    def cut(self, runs: Sequence[str]) -> list[str]:
        """See `Segmenter.cut`."""
        # One call for all runs: a line break is a word of its own, and no word reaches across it.
        words = [word for word in self._cut(_BETWEEN.join(runs)) if word != _BETWEEN]
        if sum(map(len, words)) == sum(map(len, runs)):
            return words
        return [word for run in runs for word in joined_or_single(run, self._cut(run))]

    def tag(self, runs: Sequence[str]) -> TaggedWords:
        """See `Segmenter.tag`."""
        pairs = [pair for pair in self._tag(_BETWEEN.join(runs)) if pair[0] != _BETWEEN]
        if sum(len(word) for word, _ in pairs) == sum(map(len, runs)):
            return TaggedWords([word for word, _ in pairs], [tag for _, tag in pairs])
        every = TaggedWords([], [])
        for run in runs:
            found = self._tag(run)
            words, tags = tagged_or_single(run, [word for word, _ in found], [tag for _, tag in found])
            every.words.extend(words)
            every.tags.extend(tags)
        return every


def _rjieba(dictionary: Path | None) -> Segmenter:
    module = library("rjieba")
    if dictionary is None:
        return Jieba(module.cut, module.tag)
    own = module.Jieba()
    for entry in read_dictionary(dictionary):
        frequency = entry.frequency or own.suggest_freq(entry.word)
        own.add_word(entry.word, frequency, entry.tag or "n")
    return Jieba(own.cut, own.tag)


def _jieba(dictionary: Path | None) -> Segmenter:
    module, tagging = library("jieba"), library("jieba.posseg")
    own: Any = module.Tokenizer()
    module.setLogLevel("WARNING")
    for entry in read_dictionary(dictionary) if dictionary else ():
        own.add_word(entry.word, entry.frequency, entry.tag or None)
    tagger = tagging.POSTokenizer(own)
    return Jieba(own.lcut, lambda text: [(pair.word, pair.flag) for pair in tagger.cut(text)])


DICTIONARY_SEGMENTERS: dict[str, Callable[[Path | None], Segmenter]] = {"rjieba": _rjieba, "jieba": _jieba}
"""By name."""


Analysed = tuple[list[str], list[str]]
"""The words of one run, and their tags."""


class ModelSegmenter:
    """A segmenter whose library analyses runs one by one or in batches.

    Args:
        analyse: Takes runs; gives words and tags of each.
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

    # LTP's 863 tag set: people, organizations, places, other proper nouns.
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
            f"the segmenter {name!r} takes no dictionary",
            allowed="a dictionary for rjieba, jieba or ltp",
            todo="Leave words.dictionary out, or choose one of these.",
        )
    return open_model_segmenter(name, dictionary, model)
