"""One file a system, each with a function `recipes()` that yields its sizes.

Every module here is found by itself: to add a system, add a file.
"""
