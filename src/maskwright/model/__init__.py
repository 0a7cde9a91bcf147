"""The encoder: packed tokens in, hidden states out. One Transformer for all families."""
