"""One file per system, each with a function `recipes()` that yields its sizes. New files are found automatically."""
