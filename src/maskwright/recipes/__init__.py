"""Recipes: one frozen value each; `systems` has one file per system, annotated with its paper.

`catalog` finds recipes by name, `table` formats and compares them, `sizing` counts parameters, FLOPs and memory.
"""
