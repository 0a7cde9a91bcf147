"""Reading CORPUS arguments: files, folders, globs, hub datasets, and the docstring corpus."""
