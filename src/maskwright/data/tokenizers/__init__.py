"""Tokenizers: loading, training, encoding, extending."""
