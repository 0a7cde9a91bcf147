"""Floor 2: which. A recipe is one frozen value; `systems` holds the papers' tables, one file a system.

`catalog` finds recipes by name, `table` shows and compares them, `sizing` counts what they cost. Nothing here
opens a corpus or builds a model.
"""
