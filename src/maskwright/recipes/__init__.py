"""Recipes: one frozen value each; `systems` has one file per system, with the tables of its paper.

`catalog` finds recipes by name, `table` shows and compares them, `sizing` counts what they cost. Nothing here
opens a corpus or builds a model.
"""
