"""The start of a pretraining run: text, speed, source models, first weights."""
