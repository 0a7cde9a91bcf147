"""The encoder: flat tokens in, hidden states out. One Transformer for the whole family; sharing is data."""
