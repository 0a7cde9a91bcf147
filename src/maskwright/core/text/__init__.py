"""Amounts as people write them, and surrogates in text."""
