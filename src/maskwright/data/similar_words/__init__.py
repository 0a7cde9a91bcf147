"""Building the table of similar words: from the corpus itself, from word vectors, or from a thesaurus.

`check_source` says at once what could not work; `similar_words` builds the table or opens a kept one.
"""

from maskwright.data.similar_words.build import Coverage, KeptTable, similar_words, table_of
from maskwright.data.similar_words.sampling import TokenSample, sample_tokens
from maskwright.data.similar_words.source import check_source

__all__ = ["Coverage", "KeptTable", "TokenSample", "check_source", "sample_tokens", "similar_words", "table_of"]
