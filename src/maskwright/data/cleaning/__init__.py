"""Cleaning, sentence splitting and deduplication; the clean corpus on disk."""
