"""Trained models for other programs: export, model card, upload."""
