"""Interchange: model folders under Hugging Face's names, in and out. Tables as data, one per family."""
