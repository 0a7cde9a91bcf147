"""The encoder, one Transformer for all families: from packed tokens to hidden states."""
