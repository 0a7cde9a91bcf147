"""Words, phrases and entities: computed once, when text is tokenized, and stored beside the ids."""
