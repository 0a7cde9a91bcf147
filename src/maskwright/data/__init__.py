"""The text room: from CORPUS arguments to clean sentences, a vocabulary, and shards of tokens on disk.

    sources -> readers -> parsing -> cleaning, sentences -> clean_block     one block at a time, in processes
    deduplication -> block_writer, data_card -> clean_store                 the corpus as a whole
    docstrings                                                              the corpus that every machine has
    words/                                                                  words, phrases and entities among the tokens

Import from the files; this page imports nothing, so that worker processes start quickly.
"""
