"""Hugging Face model folders, in and out: one table of names per family."""
