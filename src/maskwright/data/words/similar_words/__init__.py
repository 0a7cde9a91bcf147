"""The table of similar words, from the corpus itself, from word vectors, or from groups of synonyms.

`check_source` reports an unusable source before any work; `similar_words` builds the table or opens the cached one.
"""

from maskwright.data.words.similar_words.counting import TokenSample, sample_tokens
from maskwright.data.words.similar_words.table import Coverage, KeptTable, check_source, similar_words, table_of

__all__ = ["Coverage", "KeptTable", "TokenSample", "check_source", "sample_tokens", "similar_words", "table_of"]
