"""Words, phrases and entities: facts about runs of tokens, found once when text is tokenized.

    scripts -> segmenters                                 runs of Chinese characters to words
    word_lists -> lexicon                                 a user's lists, found in text
    collocations                                          phrases that the corpus itself holds
    given_spans                                           phrases and entities that came with the documents
    annotator                                             all of these, put on a stream of tokens
    resources                                             what must be there before any work begins

Import from the files; this page imports nothing, so that worker processes start quickly.
"""
