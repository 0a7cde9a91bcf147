"""A source of similar words is looked at before any long work, so that a wrong one fails at once."""

from pathlib import Path

from maskwright.core.similar_words import SimilarWordsSpec
from maskwright.data.similar_words.corpus_vectors import require_gensim
from maskwright.data.similar_words.layout import layout_of
from maskwright.data.similar_words.thesaurus import read_thesaurus
from maskwright.data.similar_words.vector_file import check_vectors


def check_source(spec: SimilarWordsSpec) -> None:
    """Find what can be found wrong at no cost: a missing or broken package, a missing file, one that is no thesaurus.

    Raises:
        DataError: If the source cannot be used.
    """
    if spec.source == "corpus":
        require_gensim()
        return
    path = Path(spec.source).expanduser()
    if (layout := layout_of(path)) == "vectors":
        check_vectors(path)
    else:
        read_thesaurus(path, layout)
