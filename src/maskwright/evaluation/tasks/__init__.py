"""Kinds of tasks. One line each."""
