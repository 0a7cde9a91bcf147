"""Corpus preparation: from CORPUS arguments to clean text, a tokenizer, and token shards on disk.

    sources/       CORPUS arguments, file formats, the docstring corpus
    cleaning/      cleaning, sentence splitting, deduplication; the clean corpus on disk
    tokenizers/    loading, training, fast encoding, vocabulary extension
    words/         word segmentation, phrases, entities, similar words
    shards/        writing and reading token shards

Packages import nothing, so that worker processes start quickly; import from the modules.
"""
